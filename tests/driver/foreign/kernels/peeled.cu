// Attention in the manner of large libraries: parameters in a structure, key tiles from right to left, masks in the first ones alone and
// the very first without a rescale, rows past the end not copied, the output through shared memory.
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>

struct Strides {
    long long batch, head, row;
};
struct Lengths {
    int queries, keys;
};
struct Params {
    __nv_bfloat16* o;
    const __nv_bfloat16 *q, *k, *v;
    float* lse;
    Strides of_queries, of_keys;
    const int* lengths_of_batches;
    bool is_bf16;
    Lengths lengths;
    int heads, group, right;
    float scale, scale_log2;
};

template <int ROWS_, int KEYS_, int DIM_>
struct Traits {
    static constexpr int ROWS = ROWS_, KEYS = KEYS_, DIM = DIM_, WARPS = ROWS / 16, MASKED = (ROWS + KEYS - 1) / KEYS + 1;
};

__device__ __forceinline__ uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ uint32_t pair(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
template <bool TRANSPOSED>
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* from) {
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address(from)));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address(from)));
    }
}
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies the rows that there are; those past them keep what they hold, or become zeros.
template <int ROWS, int DIM, bool CLEAR>
__device__ __forceinline__ void fetch(__nv_bfloat16* to, const __nv_bfloat16* from, long long stride, int rows) {
    constexpr int CHUNKS = DIM / 8;
    for (int n = threadIdx.x; n < ROWS * CHUNKS; n += blockDim.x) {
        const int row = n / CHUNKS, column = n % CHUNKS * 8;
        if (row < rows) {
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(address(&to[row * DIM + column])),
                         "l"(from + row * stride + column)
                         : "memory");
        } else if (CLEAR) {
            *reinterpret_cast<uint4*>(&to[row * DIM + column]) = make_uint4(0, 0, 0, 0);
        }
    }
}

template <class T>
struct Rows {
    float most[2], sum[2];
    template <bool FIRST, bool MASKED>
    __device__ __forceinline__ void add(float (&s)[T::KEYS / 8][4], float (&o)[T::DIM / 8][4], float scale_log2) {
        #pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float before = most[r];
            float larger = FIRST ? s[0][2 * r] : before;
            #pragma unroll
            for (int n = 0; n < T::KEYS / 4; ++n) larger = fmaxf(larger, s[n / 2][2 * r + n % 2]);
            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 2));
            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 1));
            most[r] = larger;
            const float base = MASKED && larger == -INFINITY ? 0.f : larger;
            if (!FIRST) {
                const float shrink = exp2f((before - base) * scale_log2);
                sum[r] *= shrink;
                #pragma unroll
                for (int n = 0; n < T::DIM / 4; ++n) o[n / 2][2 * r + n % 2] *= shrink;
            } else {
                sum[r] = 0.f;
            }
            #pragma unroll
            for (int n = 0; n < T::KEYS / 4; ++n) {
                float& x = s[n / 2][2 * r + n % 2];
                x = exp2f(x * scale_log2 - (larger == -INFINITY ? 0.f : larger * scale_log2));
                sum[r] += x;
            }
        }
    }
};

template <class T>
__device__ __forceinline__ void scores(float (&s)[T::KEYS / 8][4], const __nv_bfloat16* qs, const __nv_bfloat16* ks) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int d = 0; d < T::DIM; d += 16) {
        uint32_t a[4];
        load_matrices<false>(a, &qs[(warp * 16 + lane % 16) * T::DIM + d + lane / 16 * 8]);
        #pragma unroll
        for (int j = 0; j < T::KEYS; j += 16) {
            uint32_t b[4];
            load_matrices<false>(b, &ks[(j + lane % 8 + lane / 16 * 8) * T::DIM + d + lane / 8 % 2 * 8]);
            multiply(s[j / 8], a, b[0], b[1]);
            multiply(s[j / 8 + 1], a, b[2], b[3]);
        }
    }
}

template <class T>
__device__ __forceinline__ void add_values(float (&o)[T::DIM / 8][4], const float (&p)[T::KEYS / 8][4], const __nv_bfloat16* vs) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int j = 0; j < T::KEYS; j += 16) {
        const float(&low)[4] = p[j / 8];
        const float(&high)[4] = p[j / 8 + 1];
        const uint32_t a[4] = {pair(low[0], low[1]), pair(low[2], low[3]), pair(high[0], high[1]), pair(high[2], high[3])};
        #pragma unroll
        for (int d = 0; d < T::DIM; d += 16) {
            uint32_t b[4];
            load_matrices<true>(b, &vs[(j + lane % 16) * T::DIM + d + lane / 16 * 8]);
            multiply(o[d / 8], a, b[0], b[1]);
            multiply(o[d / 8 + 1], a, b[2], b[3]);
        }
    }
}

template <class T>
__global__ void __launch_bounds__(T::WARPS * 32) peeled(const __grid_constant__ Params params) {
    extern __shared__ __align__(16) uint8_t memory[];
    __nv_bfloat16* const qs = reinterpret_cast<__nv_bfloat16*>(memory);
    __nv_bfloat16* const ks = qs + T::ROWS * T::DIM;
    __nv_bfloat16* const vs = ks + T::KEYS * T::DIM;
    const int first = blockIdx.x * T::ROWS, lane = threadIdx.x % 32, warp = threadIdx.x / 32, hk = blockIdx.z / params.group;
    const int rows = params.lengths.queries;
    const int keys = params.lengths_of_batches ? params.lengths_of_batches[blockIdx.y] : params.lengths.keys;
    const __nv_bfloat16* q = params.q + blockIdx.y * params.of_queries.batch + blockIdx.z * params.of_queries.head;
    __nv_bfloat16* o_gmem = params.o + blockIdx.y * params.of_queries.batch + blockIdx.z * params.of_queries.head;
    const __nv_bfloat16* k = params.k + blockIdx.y * params.of_keys.batch + hk * params.of_keys.head;
    const __nv_bfloat16* v = params.v + blockIdx.y * params.of_keys.batch + hk * params.of_keys.head;
    float* lse = params.lse + (blockIdx.y * params.heads + blockIdx.z) * (long long)rows;
    const int seen = (first + T::ROWS + keys - rows + params.right + T::KEYS - 1) / T::KEYS;
    const int tiles = min((keys + T::KEYS - 1) / T::KEYS, seen);
    if (tiles <= 0) {
        for (int n = threadIdx.x; n < T::ROWS && first + n < rows; n += blockDim.x) {
            for (int d = 0; d < T::DIM; ++d) o_gmem[(first + n) * params.of_queries.row + d] = __float2bfloat16(0.f);
            lse[first + n] = INFINITY;
        }
        return;
    }
    int tile = tiles - 1;
    fetch<T::ROWS, T::DIM, false>(qs, q + first * params.of_queries.row, params.of_queries.row, rows - first);
    fetch<T::KEYS, T::DIM, false>(ks, k + tile * T::KEYS * params.of_keys.row, params.of_keys.row, keys - tile * T::KEYS);
    close_group();

    float o[T::DIM / 8][4] = {};
    Rows<T> state;
    #pragma unroll
    for (int step = 0; step < T::MASKED; ++step, --tile) {
        float s[T::KEYS / 8][4] = {};
        wait_for_copies();
        __syncthreads();
        const __nv_bfloat16* const values = v + tile * T::KEYS * params.of_keys.row;
        if (step > 0) {
            fetch<T::KEYS, T::DIM, false>(vs, values, params.of_keys.row, T::KEYS);
        } else {
            fetch<T::KEYS, T::DIM, true>(vs, values, params.of_keys.row, keys - tile * T::KEYS);
        }
        close_group();
        scores<T>(s, qs, ks);
        #pragma unroll
        for (int n = 0; n < T::KEYS / 2; ++n) {
            const int i = first + warp * 16 + lane / 4 + n / 2 % 2 * 8, j = tile * T::KEYS + n / 4 * 8 + lane % 4 * 2 + n % 2;
            if (j >= min(keys, i + 1 + keys - rows + params.right)) s[n / 4][n % 4] = -INFINITY;
        }
        wait_for_copies();
        __syncthreads();
        if (tile > 0) {
            fetch<T::KEYS, T::DIM, false>(ks, k + (tile - 1) * T::KEYS * params.of_keys.row, params.of_keys.row, T::KEYS);
            close_group();
        }
        if (step == 0) {
            state.template add<true, true>(s, o, params.scale_log2);
        } else {
            state.template add<false, true>(s, o, params.scale_log2);
        }
        add_values<T>(o, s, vs);
        if (tile <= 0) {
            --tile;
            break;
        }
    }
    #pragma unroll 1
    for (; tile >= 0; --tile) {
        float s[T::KEYS / 8][4] = {};
        wait_for_copies();
        __syncthreads();
        fetch<T::KEYS, T::DIM, false>(vs, v + tile * T::KEYS * params.of_keys.row, params.of_keys.row, T::KEYS);
        close_group();
        scores<T>(s, qs, ks);
        wait_for_copies();
        __syncthreads();
        if (tile > 0) {
            fetch<T::KEYS, T::DIM, false>(ks, k + (tile - 1) * T::KEYS * params.of_keys.row, params.of_keys.row, T::KEYS);
            close_group();
        }
        state.template add<false, false>(s, o, params.scale_log2);
        add_values<T>(o, s, vs);
    }

    float total[2], inverse[2];
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
        total[r] = state.sum[r] + __shfl_xor_sync(~0u, state.sum[r], 2);
        total[r] += __shfl_xor_sync(~0u, total[r], 1);
        inverse[r] = total[r] == 0.f || total[r] != total[r] ? 1.f : 1.f / total[r];
        #pragma unroll
        for (int d = 0; d < T::DIM; d += 8) {
            *reinterpret_cast<uint32_t*>(&qs[(warp * 16 + lane / 4 + 8 * r) * T::DIM + d + lane % 4 * 2]) =
                pair(o[d / 8][2 * r] * inverse[r], o[d / 8][2 * r + 1] * inverse[r]);
        }
    }
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int i = first + warp * 16 + lane / 4 + 8 * r;
        if (lane % 4 == 0 && i < rows) {
            lse[i] = total[r] == 0.f || total[r] != total[r] ? INFINITY : state.most[r] * params.scale + __logf(total[r]);
        }
    }
    for (int n = threadIdx.x; n < T::ROWS * T::DIM / 8; n += blockDim.x) {
        const int row = n / (T::DIM / 8), column = n % (T::DIM / 8) * 8;
        if (first + row < rows) {
            *reinterpret_cast<uint4*>(&o_gmem[(first + row) * params.of_queries.row + column]) =
                *reinterpret_cast<const uint4*>(&qs[row * T::DIM + column]);
        }
    }
}
