// Test kernels of what the backward kernels add to the trusted base: one block of NUM_THREADS threads each. In turn they are a step:
// numbers of rows and a cleared sum, gemms of one key tile and one query tile, the sum as halves.
#include "common/rows_backward_sm90a.cuh"
#include "common/tile_backward_sm90a.cuh"

struct Args {
    TensorMap q, k, v;
    half_t* out;
    float* x;
    float* y;
    float* z;
    float* w;
    float* v_out;
    int* i;
    i64 batch_stride, head_stride, row_stride;
    float limit;
    int n, b, h, heads, rows, row0;
};

struct SharedTiles {
    SharedTile<BLOCK_KV, HEAD_DIM> k;
    SharedTile<BLOCK_Q, HEAD_DIM> q;
    SharedTile<BLOCK_KV, BLOCK_Q> ds;
    SharedPart dq[CONSUMERS];
    SharedRow<BLOCK_Q> row;
    Barrier full;
};

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

// z[row][lane] = the sum of squares of a row of `out`; y = numbers x of rows as `read_columns` wants them; part n of w = 0
KERNEL(NUM_THREADS, 1) before(const __grid_constant__ Args a) {
    if (warpgroup_index() != 0) return;
    const OutputView view = head_view(a.out, a.batch_stride, a.head_stride, a.row_stride, a.b, a.h, a.rows);
    float x[ROWS], sum[ROWS];
    dot_rows(sum, view, view, a.row0);
    for (int r = 0; r < ROWS; ++r) a.z[warpgroup_row(r) * 4 + thread_index() % 4] = sum[r];
    load_rows(x, row_view(a.x, a.heads, a.b, a.h, a.rows), a.row0, a.limit);
    store_row_values(row_view(a.y, 1, 0, 0, BLOCK_Q), 0, x);
    clear_part(dq_part(a.w, a.n, 0));
    clear_part(dq_part(a.w, a.n, 1));
}

// z[key][query] = k q^T plus a number y of each query; x += cast(z) q; part n of w += cast(z)^T k, twice
KERNEL(NUM_THREADS, 1) step(const __grid_constant__ Args a) {
    SHARED_TILES(SharedTiles, smem);
    if (thread_index() == 0) {
        barrier_init(smem.full, 1);
        barrier_init_fence();
    }
    block_sync();
    if (warpgroup_index() == 0) {
        if (thread_index() == 0) {
            barrier_expect_bytes(smem.full, SharedTile<BLOCK_KV, HEAD_DIM>::BYTES + SharedTile<BLOCK_Q, HEAD_DIM>::BYTES
                                                + SharedRow<BLOCK_Q>::BYTES);
            load_tile_async(smem.k, a.k, smem.full, a.b, a.h, a.row0);
            load_tile_async(smem.q, a.q, smem.full, a.b, a.h, a.row0);
            load_row_async(smem.row, row_view(a.y, 1, 0, 0, BLOCK_Q), smem.full, 0);
        }
    } else {
        const int wg = consumer_index();
        const bool leader = thread_index() % WARPGROUP == 0;
        float s[ROWS][S_COLS], d[ROWS][O_COLS], dq[ROWS][DQ_COLS], number[S_COLS];
        OperandTile p;
        read_tile(d, a.x);
        barrier_wait(smem.full, 0);
        wgmma_fence();
        gemm_keys_async(s, smem.k, wg, smem.q);
        wgmma_commit();
        wgmma_wait<0>();
        read_columns(number, smem.row);
        for (int r = 0; r < ROWS; ++r) {
            for (int c = 0; c < S_COLS; ++c) s[r][c] += number[c];
        }
        write_tile(a.z, s);
        cast_tile(p, s);
        store_operand(smem.ds, p);
        async_proxy_fence();
        named_sync(1, CONSUMER_THREADS);
        wgmma_fence();
        gemm_queries_async(d, p, smem.q);
        wgmma_commit();
        gemm_dq_async(dq, smem.ds, smem.k, wg);
        wgmma_commit();
        wgmma_wait<0>();
        write_tile(a.x, d);
        store_part(smem.dq[wg], dq);
        async_proxy_fence();
        named_sync(2 + wg, WARPGROUP);
        if (leader) {
            reduce_part_async(dq_part(a.w, a.n, wg), smem.dq[wg]);
            bulk_commit();
            reduce_part_async(dq_part(a.w, a.n, wg), smem.dq[wg]);
            bulk_commit();
            bulk_wait_read<0>();
        }
    }
}

// rows of `out` = part n of w times `limit`
KERNEL(NUM_THREADS, 1) after(const __grid_constant__ Args a) {
    const int wg = warpgroup_index();
    if (wg >= CONSUMERS) return;
    float dq[ROWS][DQ_COLS];
    load_part(dq, dq_part(a.w, a.n, wg));
    scale(dq, a.limit);
    store_part_rows(head_view(a.out, a.batch_stride, a.head_stride, a.row_stride, a.b, a.h, a.rows), a.row0, wg, dq);
}
