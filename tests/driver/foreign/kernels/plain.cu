// Attention without anything asynchronous: a thread has a row of queries, key tiles come through shared memory.
#include <cmath>
#include <cuda_bf16.h>

#define ROWS 64
#define KEYS 16
#define WIDTH 16

extern "C" __global__ void __launch_bounds__(ROWS)
plain_attention(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* out, float* lse,
                int heads, int heads_kv, int len_q, int len_kv, float scale) {
    __shared__ __nv_bfloat16 queries[ROWS][WIDTH], keys[KEYS][WIDTH], values[KEYS][WIDTH];
    const int first = blockIdx.x * ROWS, head = blockIdx.y, batch = blockIdx.z, thread = threadIdx.x;
    const int head_kv = head / (heads / heads_kv);
    q += (long long)(batch * heads + head) * len_q * WIDTH;
    k += (long long)(batch * heads_kv + head_kv) * len_kv * WIDTH;
    v += (long long)(batch * heads_kv + head_kv) * len_kv * WIDTH;
    for (int n = thread; n < ROWS * WIDTH; n += ROWS) {
        const int row = n / WIDTH, column = n % WIDTH;
        queries[row][column] = first + row < len_q ? q[(first + row) * WIDTH + column] : __nv_bfloat16(0.f);
    }
    float most = -INFINITY, sum = 0.f, acc[WIDTH];
    for (int e = 0; e < WIDTH; ++e) acc[e] = 0.f;
    #pragma unroll 1
    for (int start = 0; start < len_kv; start += KEYS) {
        __syncthreads();
        for (int n = thread; n < KEYS * WIDTH; n += ROWS) {
            const int row = n / WIDTH, column = n % WIDTH;
            const bool inside = start + row < len_kv;
            keys[row][column] = inside ? k[(start + row) * WIDTH + column] : __nv_bfloat16(0.f);
            values[row][column] = inside ? v[(start + row) * WIDTH + column] : __nv_bfloat16(0.f);
        }
        __syncthreads();
        float s[KEYS];
        float larger = most;
        #pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            float dot = 0.f;
            #pragma unroll
            for (int d = 0; d < WIDTH; ++d) dot += __bfloat162float(queries[thread][d]) * __bfloat162float(keys[j][d]);
            s[j] = start + j < len_kv ? dot * scale : -INFINITY;
            larger = fmaxf(larger, s[j]);
        }
        const float base = larger == -INFINITY ? 0.f : larger;
        const float shrink = exp2f((most - base) * 1.44269504f);
        float total = 0.f;
        #pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            s[j] = exp2f((s[j] - base) * 1.44269504f);
            total += s[j];
        }
        sum = sum * shrink + total;
        most = larger;
        #pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
            acc[e] *= shrink;
            #pragma unroll
            for (int j = 0; j < KEYS; ++j) acc[e] += s[j] * __bfloat162float(values[j][e]);
        }
    }
    const int row = first + thread;
    if (row >= len_q) return;
    const float inverse = sum == 0.f ? 0.f : 1.f / sum;
    const long long at = (long long)(batch * heads + head) * len_q + row;
    for (int e = 0; e < WIDTH; ++e) out[at * WIDTH + e] = __float2bfloat16(acc[e] * inverse);
    lse[at] = sum == 0.f ? -INFINITY : most + logf(sum);
}
