// Before attention_backward.cu: of each query row delta = sum of dO * O, less the gradient of its log-sum-exp, which folds into it;
// the log-sum-exp as an exponent of two; and dq_sum = 0. One block of one warpgroup a query tile, four threads a row.
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef BLOCK_Q
#define BLOCK_Q 64
#endif
#ifndef BLOCK_KV
#define BLOCK_KV 128
#endif
#include "common/rows_backward_sm90a.cuh"

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
    // @region params
    // @endregion params
};

// One (batch, head, query tile). q_start: first query row.
struct WorkTile {
    int b, h, q_start;
    // @region tile_state
    // @endregion tile_state
};

// @region tile_setup
DEVICE void tile_setup(WorkTile& tile, const Params& p) {}
// @endregion tile_setup

// @region row_terms
// Of each row the log-sum-exp becomes what `probs` gets, and delta, the sum of dO * O, what `probs_grad` gets. A row that saw no key
// or lies past the end gets +inf, which makes all weights 0, and no NaN.
DEVICE void row_terms(float (&lse)[ROWS], float (&delta)[ROWS], const float (&d_lse)[ROWS], const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        lse[r] = lse[r] == -INFINITY ? INFINITY : lse[r] * LOG2E;
        delta[r] = lse[r] == INFINITY ? 0.f : delta[r] - d_lse[r];
    }
}
// @endregion row_terms

DEVICE WorkTile work_tile(int work, const Params& p) {
    WorkTile tile;
    const int head = work / p.q_blocks;
    tile.b = head / p.heads_q;
    tile.h = head % p.heads_q;
    tile.q_start = work % p.q_blocks * BLOCK_Q;
    tile_setup(tile, p);
    return tile;
}

KERNEL(WARPGROUP, 8) attention_backward_rows(const __grid_constant__ Params p) {
    const int part = block_index_x();
    const WorkTile tile = work_tile(part, p);
    float lse[ROWS], delta[ROWS], d_lse[ROWS];
    const OutputView o = head_view(p.o, p.o_batch, p.o_head, p.o_row, tile.b, tile.h, p.len_q);
    const OutputView d_o = head_view(p.d_o, p.d_o_batch, p.d_o_head, p.d_o_row, tile.b, tile.h, p.len_q);
    dot_rows(delta, o, d_o, tile.q_start);
    load_rows(lse, row_view(p.lse, p.heads_q, tile.b, tile.h, p.len_q), tile.q_start, -INFINITY);
    load_rows(d_lse, row_view(p.d_lse, p.heads_q, tile.b, tile.h, p.len_q), tile.q_start, 0.f);
    row_terms(lse, delta, d_lse, tile, p);
    store_row_values(row_view(p.lse_rows, p.heads_q, tile.b, tile.h, p.q_blocks * BLOCK_Q), tile.q_start, lse);
    store_row_values(row_view(p.delta, p.heads_q, tile.b, tile.h, p.q_blocks * BLOCK_Q), tile.q_start, delta);
    clear_part(dq_part(p.dq_sum, part, 0));
    clear_part(dq_part(p.dq_sum, part, 1));
}
