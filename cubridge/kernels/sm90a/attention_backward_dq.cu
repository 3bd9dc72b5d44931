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
#include "common/rows_backward_sm90a.cuh"

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

// One (batch, head, query tile). q_start: first query row.
struct WorkTile {
    int b, h, q_start;
    // @region tile_state
    // @endregion tile_state
};

// @region tile_setup
DEVICE void tile_setup(WorkTile& tile, const Params& p) {}
// @endregion tile_setup

DEVICE WorkTile work_tile(int work, const Params& p) {
    WorkTile tile;
    const int head = work / p.q_blocks;
    tile.b = head / p.heads_q;
    tile.h = head % p.heads_q;
    tile.q_start = work % p.q_blocks * BLOCK_Q;
    tile_setup(tile, p);
    return tile;
}

KERNEL(CONSUMER_THREADS, 4) attention_backward_dq(const __grid_constant__ Params p) {
    const int wg = warpgroup_index();
    const int part = block_index_x();
    const WorkTile tile = work_tile(part, p);
    float dq[ROWS][DQ_COLS];
    load_part(dq, dq_part(p.dq_sum, part, wg));
    scale(dq, p.grad_scale);
    store_part_rows(head_view(p.dq, p.dq_batch, p.dq_head, p.dq_row, tile.b, tile.h, p.len_q), tile.q_start, wg, dq);
}
