// After attention_backward.cu: dq, its sum times the factor of scores, as halves. One block a query tile, a warpgroup for each part.
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

struct Params {
    float* dq_sum;         // @tensor dq_sum
    half_t* dq;            // @tensor dq
    i64 dq_batch;          // @stride dq 0
    i64 dq_head;           // @stride dq 1
    i64 dq_row;            // @stride dq 2
    int heads_q;           // @host Hq
    int len_q;             // @host Lq
    int q_blocks;          // @host ceil_div(Lq, BLOCK_Q)
    // @region params
    float grad_scale;      // @host D ** -0.5
    // @endregion params
};

KERNEL(CONSUMER_THREADS, 4) attention_backward_dq(const __grid_constant__ Params p) {
    const int n = block_index_x() % p.q_blocks, head = block_index_x() / p.q_blocks;
    const int b = head / p.heads_q, h = head % p.heads_q, wg = warpgroup_index();
    float dq[ROWS][DQ_COLS];
    load_part(dq, dq_part(p.dq_sum, head * p.q_blocks + n, wg));
    scale(dq, p.grad_scale);
    const OutputView view = head_view(p.dq, p.dq_batch, p.dq_head, p.dq_row, b, h, p.len_q);
    store_part_rows(view, n * BLOCK_Q, dq, wg);
}
