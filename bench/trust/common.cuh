// What the test kernels of both architectures share. A test reads and writes plain arrays whose index is the claim's own.
#pragma once

// x[row][column] = t[r][c] for every element that the lane maps place
template <int N> DEVICE void write_tile(float* x, const float (&t)[ROWS][N]) {
    for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < N; ++c) x[frag_row(r) * (4 * N) + frag_col(c)] = t[r][c];
    }
}
template <int N> DEVICE void read_tile(float (&t)[ROWS][N], const float* x) {
    for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < N; ++c) t[r][c] = x[frag_row(r) * (4 * N) + frag_col(c)];
    }
}

// Row helpers on scores x: maxima, this lane's sums (one column a lane), whole sums, and who votes for a row above `limit`.
DEVICE void rows_of(const Args& a) {
    float s[ROWS][S_COLS];
    read_tile(s, a.x);
    bool above[ROWS];
    for (int r = 0; r < ROWS; ++r) {
        const float top = row_max(s[r]);
        const float part = partial_row_sum(s[r]);
        const int at = frag_row(r) * 4 + thread_index() % 4;
        a.y[at] = top;
        a.z[at] = part;
        a.w[at] = add_lanes(part);
        above[r] = top > a.limit;
    }
    const bool some = any_lane(above);
    for (int r = 0; r < ROWS; ++r) a.v[frag_row(r)] = some ? 1.f : 0.f;
}

// A tile that is zeroed, then stored to rows [row0, ..) of a view; row values likewise.
DEVICE void stores_of(const Args& a) {
    float o[ROWS][O_COLS], x[ROWS];
    zero(o);
    if (a.n != 0) read_tile(o, a.x);
    for (int r = 0; r < ROWS; ++r) x[r] = a.y[frag_row(r)];
    store_tile(head_view(a.out, a.batch_stride, a.head_stride, a.row_stride, a.b, a.h, a.rows), a.row0, o);
    store_rows(row_view(a.z, a.heads, a.b, a.h, a.rows), a.row0, x);
}

// Column helpers: frag_col and frag_col_f32 of each element, by row and column.
DEVICE void columns_of(const Args& a) {
    for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < S_COLS; ++c) {
            const int at = frag_row(r) * (4 * S_COLS) + frag_col(c);
            a.y[at] = frag_row(r) * 1024 + frag_col(c);
            a.z[at] = frag_col_f32(a.n, c);
        }
    }
}
