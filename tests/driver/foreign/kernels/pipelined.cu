// Causal attention on tensor cores: cp.async by raw instructions, four warps of sixteen rows, one slot for keys and one for values.
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>

template <int N>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ uint32_t pair(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rows of a tile lie `WIDTH + 8` elements apart, so that eight of them meet no bank twice.
template <int ROWS, int WIDTH>
struct Tile {
    __nv_bfloat16 data[ROWS][WIDTH + 8];
    __device__ void fetch(const __nv_bfloat16* from, int first, int length) {
        constexpr int CHUNKS = WIDTH / 8;
        for (int n = threadIdx.x; n < ROWS * CHUNKS; n += blockDim.x) {
            const int row = n / CHUNKS, column = n % CHUNKS * 8, at = first + row < length ? first + row : 0;
            const int bytes = first + row < length ? 16 : 0;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(&data[row][column])),
                         "l"(from + (long long)at * WIDTH + column), "r"(bytes)
                         : "memory");
        }
    }
};

template <int KEYS, int WIDTH>
__global__ void __launch_bounds__(128)
pipelined(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* out, float* lse, int heads,
          int group, int len_q, int len_kv, float scale_log2) {
    extern __shared__ __align__(16) uint8_t memory[];
    using Queries = Tile<64, WIDTH>;
    using Keys = Tile<KEYS, WIDTH>;
    Queries& qs = *reinterpret_cast<Queries*>(memory);
    Keys& ks = *reinterpret_cast<Keys*>(memory + sizeof(Queries));
    Keys& vs = *reinterpret_cast<Keys*>(memory + sizeof(Queries) + sizeof(Keys));
    const int first = blockIdx.x * 64, head = blockIdx.y, batch = blockIdx.z;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long row_of_head = (long long)batch * heads + head;
    const long long head_kv = (long long)batch * (heads / group) + head / group;
    q += row_of_head * len_q * WIDTH;
    k += head_kv * len_kv * WIDTH;
    v += head_kv * len_kv * WIDTH;
    const int end = min(len_kv, first + 64), count = (end + KEYS - 1) / KEYS;

    float o[WIDTH / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
    qs.fetch(q, first, len_q);
    ks.fetch(k, 0, len_kv);
    close_group();
    #pragma unroll 1
    for (int t = 0; t < count; ++t) {
        wait_for_copies<0>();
        __syncthreads();
        vs.fetch(v, t * KEYS, len_kv);
        close_group();
        float s[KEYS / 8][4] = {};
        #pragma unroll
        for (int d = 0; d < WIDTH; d += 16) {
            uint32_t a[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                         : "r"(address(&qs.data[warp * 16 + lane % 16][d + lane / 16 * 8])));
            #pragma unroll
            for (int j = 0; j < KEYS; j += 8) {
                uint32_t b0, b1;
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                             : "=r"(b0), "=r"(b1)
                             : "r"(address(&ks.data[j + lane % 8][d + lane / 8 % 2 * 8])));
                multiply(s[j / 8], a, b0, b1);
            }
        }
        float shrink[2];
        #pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int i = first + warp * 16 + lane / 4 + 8 * r;
            float larger = most[r];
            #pragma unroll
            for (int n = 0; n < KEYS / 8; ++n) {
                #pragma unroll
                for (int c = 0; c < 2; ++c) {
                    const int j = t * KEYS + n * 8 + lane % 4 * 2 + c;
                    float& x = s[n][2 * r + c];
                    x = j < len_kv && j <= i ? x : -INFINITY;
                    larger = fmaxf(larger, x);
                }
            }
            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 1));
            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 2));
            const float base = larger == -INFINITY ? 0.f : larger * scale_log2;
            shrink[r] = exp2f(most[r] * scale_log2 - base);
            most[r] = larger;
            float total = 0.f;
            #pragma unroll
            for (int n = 0; n < KEYS / 8; ++n) {
                #pragma unroll
                for (int c = 0; c < 2; ++c) {
                    s[n][2 * r + c] = exp2f(s[n][2 * r + c] * scale_log2 - base);
                    total += s[n][2 * r + c];
                }
            }
            sum[r] = sum[r] * shrink[r] + total;
        }
        wait_for_copies<0>();
        __syncthreads();
        if (t + 1 < count) ks.fetch(k, (t + 1) * KEYS, len_kv);
        close_group();
        #pragma unroll
        for (int n = 0; n < WIDTH / 8; ++n) {
            #pragma unroll
            for (int c = 0; c < 4; ++c) o[n][c] *= shrink[c / 2];
            #pragma unroll
            for (int j = 0; j < KEYS; j += 16) {
                const float(&low)[4] = s[j / 8];
                const float(&high)[4] = s[j / 8 + 1];
                const uint32_t a[4] = {pair(low[0], low[1]), pair(low[2], low[3]), pair(high[0], high[1]), pair(high[2], high[3])};
                uint32_t b0, b1;
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                             : "=r"(b0), "=r"(b1)
                             : "r"(address(&vs.data[j + lane % 16][n * 8])));
                multiply(o[n], a, b0, b1);
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int i = first + warp * 16 + lane / 4 + 8 * r;
        float total = sum[r];
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        const float inverse = total == 0.f ? 0.f : 1.f / total;
        if (i >= len_q) continue;
        const long long at = row_of_head * len_q + i;
        #pragma unroll
        for (int n = 0; n < WIDTH / 8; ++n) {
            *reinterpret_cast<uint32_t*>(&out[at * WIDTH + n * 8 + lane % 4 * 2]) =
                pair(o[n][2 * r] * inverse, o[n][2 * r + 1] * inverse);
        }
        if (lane % 4 == 0) lse[at] = total == 0.f ? -INFINITY : (most[r] * scale_log2 + log2f(total)) * 0.69314718f;
    }
    wait_for_copies<0>();
}
template __global__ void pipelined<16, 32>(const __nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*,
                                           float*, int, int, int, int, float);
