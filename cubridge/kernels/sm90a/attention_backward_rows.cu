// Before attention_backward.cu: of each query row delta = sum of dO * O, less the gradient of its log-sum-exp, which folds into it;
// the log-sum-exp as an exponent of two; and dq_sum = 0. One block of 128 threads a query tile, HEAD_DIM / 8 threads a row.
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef BLOCK_Q
#define BLOCK_Q 64
#endif
#ifndef BLOCK_KV
#define BLOCK_KV 128
#endif
#include "common/tile_backward_sm90a.cuh"

constexpr int THREADS = 128;
constexpr int ROW_THREADS = HEAD_DIM / 8;

struct Params {
    half_t* o;             // @tensor o
    half_t* d_o;           // @tensor d_o
    float* lse;            // @tensor lse
    float* d_lse;          // @tensor d_lse
    float* lse_rows;       // @tensor lse_rows
    float* delta;          // @tensor delta
    float* dq_sum;         // @tensor dq_sum
    i64 o_batch;           // @stride o 0
    i64 o_head;            // @stride o 1
    i64 o_row;             // @stride o 2
    i64 d_o_batch;         // @stride d_o 0
    i64 d_o_head;          // @stride d_o 1
    i64 d_o_row;           // @stride d_o 2
    int heads_q;           // @host Hq
    int len_q;             // @host Lq
    int q_blocks;          // @host ceil_div(Lq, BLOCK_Q)
};

// @region row_exponent
// What `probs` gets of a row's log-sum-exp. +inf, the value of rows that saw no key or lie past the end, makes all weights 0.
DEVICE float row_exponent(float lse) { return lse == -INFINITY ? INFINITY : lse * LOG2E; }
// @endregion row_exponent

KERNEL(THREADS, 8) attention_backward_rows(const __grid_constant__ Params p) {
    const int n = block_index_x() % p.q_blocks, head = block_index_x() / p.q_blocks;
    const int b = head / p.heads_q, h = head % p.heads_q, q_start = n * BLOCK_Q;
    const OutputView o = head_view(p.o, p.o_batch, p.o_head, p.o_row, b, h, p.len_q);
    const OutputView d_o = head_view(p.d_o, p.d_o_batch, p.d_o_head, p.d_o_row, b, h, p.len_q);
    const RowView lse = row_view(p.lse, p.heads_q, b, h, p.len_q);
    const RowView d_lse = row_view(p.d_lse, p.heads_q, b, h, p.len_q);
    const RowView lse_rows = row_view(p.lse_rows, p.heads_q, b, h, p.q_blocks * BLOCK_Q);
    const RowView delta = row_view(p.delta, p.heads_q, b, h, p.q_blocks * BLOCK_Q);
    const int lane = thread_index() % ROW_THREADS;
    #pragma unroll 4
    for (int x = thread_index() / ROW_THREADS; x < BLOCK_Q; x += THREADS / ROW_THREADS) {
        const int row = q_start + x;
        float sum = dot_of_row(o, d_o, row, lane * 8);
        #pragma unroll
        for (int y = 1; y < ROW_THREADS; y *= 2) sum += shuffle_xor(sum, y);
        if (lane == 0) {
            const float exponent = row < p.len_q ? row_exponent(lse.ptr[row]) : INFINITY;
            lse_rows.ptr[q_start + row_position(x)] = exponent;
            delta.ptr[q_start + row_position(x)] = exponent == INFINITY ? 0.f : sum - d_lse.ptr[row];  // no weights: no NaN
        }
    }
    zero_tile<THREADS>(dq_part(p.dq_sum, head * p.q_blocks + n, 0));
}
