// What the three kernels of a backward pass for sm_90a share: sizes, the layouts of what they hand on to each other, stores.
// HEAD_DIM, BLOCK_Q, BLOCK_KV come from the kernel file.
#pragma once
#include "common/ptx_backward_sm90a.cuh"
#include "common/views.cuh"

constexpr int WARPGROUP = 128;
constexpr int CONSUMERS = BLOCK_KV / 64;  // consumer warpgroups, each owns 64 keys
constexpr int CONSUMER_THREADS = CONSUMERS * WARPGROUP;
constexpr int ROWS = 2;                // rows of a fragment that a thread holds
constexpr int PART = HEAD_DIM / 2;     // columns of the dq tile that a consumer makes
constexpr int DQ_COLS = PART / 4;      // of these a thread holds
static_assert(CONSUMERS == 2 && BLOCK_Q == 64, "a dq tile is 64 rows, and each of two consumers makes half of its columns");

// CuIR: warpgroup      warp-uniform; called by whole warps
DEVICE int warpgroup_index() { return uniform(thread_index() / WARPGROUP); }

// CuIR: t = zeros()
template <int N> DEVICE void zero(float (&t)[ROWS][N]) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < N; ++c) t[r][c] = 0.f;
    }
}

// CuIR: t = t * x
template <int N> DEVICE void scale(float (&t)[ROWS][N], float x) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < N; ++c) t[r][c] = t[r][c] * x;
    }
}

// ---- what one kernel hands on to the next ----
// Rows of numbers per query lie in fragment order: of 16 queries the four that a lane holds are neighbours.
DEVICE constexpr int row_position(int i) { return i / 16 * 16 + i % 8 / 2 * 4 + i % 16 / 8 * 2 + i % 2; }
// The sum of dq is fp32 in global memory, [head, query tile, consumer, fragment order], so that adds are 16 bytes wide
// CuIR: DQ[tile, part wg]      tile: (b * heads + h) * query tiles + query tile
DEVICE float* dq_part(float* base, int tile, int wg) { return base + ((i64)tile * CONSUMERS + wg) * (64 * PART); }

// ---- stores ----
// CuIR: store(X[b, h, row0 : row0 + 64 or 128, 4 * N columns from column0], cast(o, half))      rows past the end are dropped
// Four lanes of a row trade 2-column pieces until each holds 8 columns in a run (as in fragments.cuh); `row` of fragment row r.
template <int N> DEVICE void store_fragment(const OutputView& dst, int row0, int column0, const float (&o)[ROWS][N]) {
    const int lane = thread_index() % 4;
    const bool odd = lane & 1, high = lane & 2;
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = row0 + r * 8;
        #pragma unroll
        for (int c = 0; c < N; c += 8) {
            const u32 a0 = pack_half2(o[r][c], o[r][c + 1]), a1 = pack_half2(o[r][c + 2], o[r][c + 3]);
            const u32 a2 = pack_half2(o[r][c + 4], o[r][c + 5]), a3 = pack_half2(o[r][c + 6], o[r][c + 7]);
            const u32 x0 = shuffle_xor(odd ? a0 : a1, 1), x1 = shuffle_xor(odd ? a2 : a3, 1);
            const u32 b0 = odd ? x0 : a0, b1 = odd ? a1 : x0, b2 = odd ? x1 : a2, b3 = odd ? a3 : x1;
            const u32 y0 = shuffle_xor(high ? b0 : b2, 2), y1 = shuffle_xor(high ? b1 : b3, 2);
            const u32 c0 = high ? y0 : b0, c1 = high ? y1 : b1, c2 = high ? b2 : y0, c3 = high ? b3 : y1;
            if (row < dst.rows) store_16(dst.ptr + (i64)row * dst.row_stride + column0 + (c + 2 * lane) * 4, c0, c1, c2, c3);
        }
    }
}
