// Tile helpers of the small kernels before and after attention_backward.cu: a fragment t[r][c] has queries as its rows.
#pragma once
#include "common/backward_sm90a.cuh"

// CuIR: i - tile.q_start      of the 64 rows of a warpgroup; four lanes hold one row
DEVICE int warpgroup_row(int r) { return thread_index() % WARPGROUP / 32 * 16 + r * 8 + thread_index() % 32 / 4; }

// ---- before ----
// CuIR: sum[i] = sum over columns of f32(X[b, h, i]) * f32(Y[b, h, i])      the same in the four lanes of a row; 0 past the end
DEVICE void dot_rows(float (&sum)[ROWS], const OutputView& x, const OutputView& y, int row0) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = row0 + warpgroup_row(r);
        float part = 0.f;
        if (row < x.rows) {
            #pragma unroll
            for (int c = 0; c < HEAD_DIM; c += 32) {
                const int column = c + thread_index() % 4 * 8;
                u32 a[4], b[4];
                load_16(x.ptr + row * x.row_stride + column, a);
                load_16(y.ptr + row * y.row_stride + column, b);
                #pragma unroll
                for (int n = 0; n < 4; ++n) part += half_low(a[n]) * half_low(b[n]) + half_high(a[n]) * half_high(b[n]);
            }
        }
        part += shuffle_xor(part, 1);
        sum[r] = part + shuffle_xor(part, 2);
    }
}
// CuIR: x = X[b, h, row0 : row0 + 64]      `past_end` past the end
DEVICE void load_rows(float (&x)[ROWS], const RowView& src, int row0, float past_end) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = row0 + warpgroup_row(r);
        x[r] = row < src.rows ? src.ptr[row] : past_end;
    }
}
// CuIR: store(X[b, h, row0 : row0 + 64], x)      in the order of `row_position`; X is padded to whole tiles
DEVICE void store_row_values(const RowView& dst, int row0, const float (&x)[ROWS]) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        if (thread_index() % 4 == 0) dst.ptr[row0 + row_position(warpgroup_row(r))] = x[r];
    }
}
// CuIR: DQ[tile, part] = 0      by the one warpgroup of a block
DEVICE void clear_part(float* part) {
    #pragma unroll 4
    for (int x = thread_index() % WARPGROUP; x < 64 * PART / 4; x += WARPGROUP) store_16(part + x * 4, 0.f, 0.f, 0.f, 0.f);
}

// ---- after ----
// CuIR: dq = DQ[tile, part]
DEVICE void load_part(float (&dq)[ROWS][DQ_COLS], const float* part) {
    #pragma unroll
    for (int x = 0; x < DQ_COLS / 2; ++x) {
        float y[4];
        load_16(part + (x * WARPGROUP + thread_index() % WARPGROUP) * 4, y);
        dq[0][2 * x] = y[0];
        dq[0][2 * x + 1] = y[1];
        dq[1][2 * x] = y[2];
        dq[1][2 * x + 1] = y[3];
    }
}
// CuIR: store(X[b, h, row0 : row0 + 64, PART * part : PART * part + PART], cast(dq, half))      rows past the end are dropped
DEVICE void store_part_rows(const OutputView& dst, int row0, int part, const float (&dq)[ROWS][DQ_COLS]) {
    store_fragment(dst, row0 + warpgroup_row(0), PART * part, dq);
}
