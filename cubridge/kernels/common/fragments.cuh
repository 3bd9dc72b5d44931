// Score and output fragments: t[r][c], ROWS x S_COLS or ROWS x O_COLS floats a thread. mma.sync and wgmma lay accumulators out
// alike, so region text written against this header serves both. frag_row is each architecture's own; the rest is here.
#pragma once
#include "common/ptx_sm80.cuh"
#include "common/views.cuh"

constexpr int S_COLS = BLOCK_KV / 4;  // score columns a thread holds
constexpr int O_COLS = HEAD_DIM / 4;  // output columns a thread holds

// ---- where an element lies in its tile: row frag_row(r), column frag_col(c) == lane_col() + col_offset(c) ----
DEVICE int lane_col() { return (thread_index() % 4) * 2; }
DEVICE constexpr int col_offset(int c) { return (c / 2) * 8 + c % 2; }
// CuIR: j - kv_start
DEVICE int frag_col(int c) { return lane_col() + col_offset(c); }
// CuIR: f32(j)      exact below 2^24; an FADD of a constant instead of a quarter-rate I2F per element
DEVICE float frag_col_f32(int kv_start, int c) { return (float)(kv_start + lane_col()) + (float)col_offset(c); }

// CuIR: t = zeros()
template <int N> DEVICE void zero(float (&t)[ROWS][N]) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < N; ++c) t[r][c] = 0.f;
    }
}

// ---- rows: a row vector is x[ROWS]; four lanes hold one row ----
// CuIR: rowmax(s)[i]      the same in the four lanes; four chains, for latency
DEVICE float row_max(const float (&row)[S_COLS]) {
    float chain[4] = {row[0], row[1], row[2], row[3]};
    #pragma unroll
    for (int c = 4; c < S_COLS; ++c) chain[c % 4] = fmaxf(chain[c % 4], row[c]);
    float x = fmaxf(fmaxf(chain[0], chain[1]), fmaxf(chain[2], chain[3]));
    x = fmaxf(x, shuffle_xor(x, 1));
    return fmaxf(x, shuffle_xor(x, 2));
}
// CuIR: partial_rowsum(s)[i]      this lane's columns only: a Partial, until add_lanes
DEVICE float partial_row_sum(const float (&row)[S_COLS]) {
    float x = row[0];
    #pragma unroll
    for (int c = 1; c < S_COLS; ++c) x += row[c];
    return x;
}
// CuIR: add_lanes(x)      Partial -> Row
DEVICE float add_lanes(float x) {
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
}
// CuIR: any_lane(x)      some row of this warp, so the answer is warp-uniform
DEVICE bool any_lane(const bool (&x)[ROWS]) {
    bool any = false;
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) any = any | x[r];
    return any_lane(any);
}

// ---- probabilities as the left operand of the PV gemm: the C fragment of QK is the A fragment of PV ----
struct ProbTile { u32 a[ROWS / 2][BLOCK_KV / 16][4]; };
// CuIR: p = cast(s, half)
DEVICE void cast_probs(ProbTile& p, const float (&s)[ROWS][S_COLS]) {
    #pragma unroll
    for (int m = 0; m < ROWS / 2; ++m) {
        #pragma unroll
        for (int n = 0; n < BLOCK_KV / 16; ++n) {
            #pragma unroll
            for (int x = 0; x < 4; ++x) {
                const int r = 2 * m + x % 2, c = 4 * n + x / 2 * 2;
                p.a[m][n][x] = pack_half2(s[r][c], s[r][c + 1]);
            }
        }
    }
}

// ---- stores ----
// CuIR: store(O[b, h, row0 : row0 + BLOCK_Q], cast(o, half))      rows past the end are dropped
// The four lanes of a row trade 2-column pieces until each holds 8 columns in a run, so that a store is 16 bytes wide: a 4 x 4
// transpose, first with the lane one off, then with the lane two off. All lanes take part, also those whose row is dropped.
DEVICE void store_tile(const OutputView& dst, int row0, const float (&o)[ROWS][O_COLS]) {
    const int lane = thread_index() % 4;
    const bool odd = lane & 1, high = lane & 2;
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = row0 + frag_row(r);
        #pragma unroll
        for (int c = 0; c < O_COLS; c += 8) {
            const u32 a0 = pack_half2(o[r][c], o[r][c + 1]), a1 = pack_half2(o[r][c + 2], o[r][c + 3]);
            const u32 a2 = pack_half2(o[r][c + 4], o[r][c + 5]), a3 = pack_half2(o[r][c + 6], o[r][c + 7]);
            const u32 x0 = shuffle_xor(odd ? a0 : a1, 1), x1 = shuffle_xor(odd ? a2 : a3, 1);
            const u32 b0 = odd ? x0 : a0, b1 = odd ? a1 : x0, b2 = odd ? x1 : a2, b3 = odd ? a3 : x1;
            const u32 y0 = shuffle_xor(high ? b0 : b2, 2), y1 = shuffle_xor(high ? b1 : b3, 2);
            const u32 c0 = high ? y0 : b0, c1 = high ? y1 : b1, c2 = high ? b2 : y0, c3 = high ? b3 : y1;
            if (row < dst.rows) store_16(dst.ptr + (i64)row * dst.row_stride + (c + 2 * lane) * 4, c0, c1, c2, c3);
        }
    }
}
// CuIR: store(LSE[b, h, row0 : row0 + BLOCK_Q], x)      rows past the end are dropped
DEVICE void store_rows(const RowView& dst, int row0, const float (&x)[ROWS]) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = row0 + frag_row(r);
        if (row < dst.rows && thread_index() % 4 == 0) dst.ptr[row] = x[r];
    }
}
