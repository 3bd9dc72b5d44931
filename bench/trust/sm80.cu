// Test kernels of the trusted base for sm_80 and later: one block of NUM_THREADS threads each.
#include "common/tile_sm80.cuh"

struct Args {
    const half_t* q;
    const half_t* k;
    const half_t* v;
    half_t* out;
    float* x;
    float* y;
    float* z;
    float* w;
    float* v_out;
    int* i;
    int* j;
    i64 batch_stride, head_stride, row_stride;
    float limit;
    int n, b, h, heads, rows, row0;
};
#define v v_out
#include "trust/common.cuh"
#undef v

struct SharedTiles {
    SharedTile<BLOCK_Q, HEAD_DIM> q;
    SharedTile<BLOCK_KV, HEAD_DIM> k, v;
};

// s = q k^T and o = o + cast(s) v, tiles through cp.async in three groups, each waited for just before its use.
KERNEL(NUM_THREADS, 1) gemms(const __grid_constant__ Args a) {
    SHARED_TILES(SharedTiles, smem);
    const HeadView q = head_view(a.q, a.batch_stride, a.head_stride, a.row_stride, a.b, a.h, a.rows);
    const HeadView k = head_view(a.k, a.batch_stride, a.head_stride, a.row_stride, a.b, a.h, a.rows);
    const HeadView v = head_view(a.v, a.batch_stride, a.head_stride, a.row_stride, a.b, a.h, a.rows);
    load_tile_async(smem.q, q, a.row0);
    cp_async_commit();
    load_tile_async(smem.k, k, a.row0);
    cp_async_commit();
    load_tile_async(smem.v, v, a.row0);
    cp_async_commit();
    float s[ROWS][S_COLS], o[ROWS][O_COLS];
    ProbTile p;
    read_tile(o, a.x);
    cp_async_wait<1>();
    block_sync();
    gemm_qk(s, smem.q, smem.k);
    write_tile(a.y, s);
    cast_probs(p, s);
    cp_async_wait<0>();
    block_sync();
    gemm_pv(o, p, smem.v);
    write_tile(a.z, o);
}

KERNEL(NUM_THREADS, 1) rows(const __grid_constant__ Args a) { rows_of(a); }
KERNEL(NUM_THREADS, 1) stores(const __grid_constant__ Args a) { stores_of(a); }
KERNEL(NUM_THREADS, 1) columns(const __grid_constant__ Args a) { columns_of(a); }

// i[t * 8 ..]: helpers of the integers j[2 t], j[2 t + 1]
KERNEL(NUM_THREADS, 1) scalars(const __grid_constant__ Args a) {
    for (int t = thread_index(); t < a.n; t += NUM_THREADS) {
        const int x = a.j[2 * t], y = a.j[2 * t + 1];
        a.i[8 * t] = imin(x, y);
        a.i[8 * t + 1] = imax(x, y);
        a.i[8 * t + 2] = iabs(x);
        a.i[8 * t + 3] = y == 0 ? 0 : floor_div(x, y);
        a.i[8 * t + 4] = y == 0 ? 0 : floor_mod(x, y);
        a.i[8 * t + 5] = y <= 0 ? 0 : ceil_div(x, y);
        a.i[8 * t + 6] = (int)select(x < y, (float)x, (float)y);
    }
}

// y[5 t ..]: elementary functions of x[t]
KERNEL(NUM_THREADS, 1) functions(const __grid_constant__ Args a) {
    for (int t = thread_index(); t < a.n; t += NUM_THREADS) {
        a.y[5 * t] = exp2_approx(a.x[t]);
        a.y[5 * t + 1] = log2_approx(a.x[t]);
        a.y[5 * t + 2] = tanh_approx(a.x[t]);
        a.y[5 * t + 3] = rcp_approx(a.x[t]);
        a.y[5 * t + 4] = log1p_unit(a.x[t]);
    }
}
