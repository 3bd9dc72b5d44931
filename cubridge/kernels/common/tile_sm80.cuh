// Tile helpers for sm_80: each has ONE CuIR meaning, written above it. HEAD_DIM, BLOCK_Q, BLOCK_KV and WARPS come from the
// kernel file.
#pragma once
#include "common/ptx_sm80.cuh"

constexpr int NUM_THREADS = WARPS * 32;
constexpr int WARP_ROWS = BLOCK_Q / WARPS;  // query rows a warp owns
constexpr int ROWS = WARP_ROWS / 8;         // of which a thread holds this many
static_assert(HEAD_DIM % 64 == 0, "a row of a shared tile is whole swizzle panels of 128 bytes");
static_assert(BLOCK_Q % (16 * WARPS) == 0 && BLOCK_KV % 16 == 0, "whole mma tiles per warp");

DEVICE int warp_row0() { return thread_index() / 32 * WARP_ROWS; }
// CuIR: i - tile.q_start      the row of element [r][c] of a score or output tile
DEVICE int frag_row(int r) { return warp_row0() + r / 2 * 16 + r % 2 * 8 + thread_index() % 32 / 4; }
#include "common/fragments.cuh"

// CuIR: shared(half, R, C, swizzle=128)
template <int R, int C> struct SharedTile {
    alignas(1024) half_t data[R * C];
    static constexpr int BYTES = R * C * 2;
};
// Element offset of a 16-byte chunk: the chunks of a row are XORed with the row, so 8 rows of one chunk hit 8 bank groups.
template <int C> DEVICE int swizzled(int row, int chunk) { return row * C + ((chunk ^ (row & 7)) << 3); }

// CuIR: copy_async(dst, src[row0 : row0 + R], fill=0)      joins the open cp.async group
template <int R, int C>
DEVICE void load_tile_async(SharedTile<R, C>& dst, const HeadView& src, int row0) {
    constexpr int CHUNKS = C / 8;               // of 16 bytes, in a row
    constexpr int STEP = NUM_THREADS / CHUNKS;  // rows between the copies of a thread: a multiple of 8 keeps the swizzle
    static_assert(STEP % 8 == 0 && R % STEP == 0, "whole copies per thread");
    const int lane_row = thread_index() / CHUNKS, chunk = thread_index() % CHUNKS;
    half_t* to = &dst.data[swizzled<C>(lane_row, chunk)];
    const half_t* from = src.ptr + (i64)(row0 + lane_row) * src.row_stride + chunk * 8;
    const int rows_left = src.rows - row0 - lane_row;
    #pragma unroll
    for (int x = 0; x < R / STEP; ++x) {
        const bool inside = x * STEP < rows_left;  // else nothing is read and zeros are written
        cp_async_16(to + x * STEP * C, inside ? from : src.ptr, inside ? 16 : 0);
        from += STEP * src.row_stride;
    }
}

// The swizzle makes "16-byte chunk x of this lane's row" the XOR of a lane constant with x: no address registers per step.
// CuIR: s = gemm(q, k.T)
DEVICE void gemm_qk(float (&s)[ROWS][S_COLS], const SharedTile<BLOCK_Q, HEAD_DIM>& q, const SharedTile<BLOCK_KV, HEAD_DIM>& k) {
    const int lane = thread_index() % 32;
    const u32 q_lane = smem_address(q.data) + (warp_row0() + (lane & 15)) * HEAD_DIM * 2 + (((lane >> 4) ^ (lane & 7)) << 4);
    const u32 k_lane = smem_address(k.data) + ((lane & 7) + ((lane >> 4) << 3)) * HEAD_DIM * 2 + ((((lane >> 3) & 1) ^ (lane & 7)) << 4);
    zero(s);
    #pragma unroll
    for (int kk = 0; kk < HEAD_DIM / 16; ++kk) {
        u32 a[ROWS / 2][4];
        #pragma unroll
        for (int m = 0; m < ROWS / 2; ++m) {
            ldmatrix_x4(a[m][0], a[m][1], a[m][2], a[m][3], (q_lane ^ (kk * 32)) + m * 16 * HEAD_DIM * 2);
        }
        #pragma unroll
        for (int n = 0; n < BLOCK_KV / 16; ++n) {
            u32 b0, b1, b2, b3;
            ldmatrix_x4(b0, b1, b2, b3, (k_lane ^ (kk * 32)) + n * 16 * HEAD_DIM * 2);
            #pragma unroll
            for (int m = 0; m < ROWS / 2; ++m) {
                float (&top)[S_COLS] = s[2 * m], (&bottom)[S_COLS] = s[2 * m + 1];
                mma_m16n8k16(top[4 * n], top[4 * n + 1], bottom[4 * n], bottom[4 * n + 1], a[m], b0, b1);
                mma_m16n8k16(top[4 * n + 2], top[4 * n + 3], bottom[4 * n + 2], bottom[4 * n + 3], a[m], b2, b3);
            }
        }
    }
}
// CuIR: o += gemm(p, v)
DEVICE void gemm_pv(float (&o)[ROWS][O_COLS], const ProbTile& p, const SharedTile<BLOCK_KV, HEAD_DIM>& v) {
    const int lane = thread_index() % 32;
    const u32 v_lane = smem_address(v.data) + (lane & 15) * HEAD_DIM * 2 + (((lane >> 4) ^ (lane & 7)) << 4);
    #pragma unroll
    for (int kk = 0; kk < BLOCK_KV / 16; ++kk) {
        #pragma unroll
        for (int n = 0; n < HEAD_DIM / 16; ++n) {
            u32 b0, b1, b2, b3;
            ldmatrix_x4_trans(b0, b1, b2, b3, (v_lane ^ (n * 32)) + kk * 16 * HEAD_DIM * 2);
            #pragma unroll
            for (int m = 0; m < ROWS / 2; ++m) {
                float (&top)[O_COLS] = o[2 * m], (&bottom)[O_COLS] = o[2 * m + 1];
                mma_m16n8k16(top[4 * n], top[4 * n + 1], bottom[4 * n], bottom[4 * n + 1], p.a[m][kk], b0, b1);
                mma_m16n8k16(top[4 * n + 2], top[4 * n + 3], bottom[4 * n + 2], bottom[4 * n + 3], p.a[m][kk], b2, b3);
            }
        }
    }
}
