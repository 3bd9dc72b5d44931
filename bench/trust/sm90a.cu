// Test kernels of the trusted base for sm_90a: one block of NUM_THREADS threads each, roles as in the kernel.
#include "common/tile_sm90a.cuh"

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
#define v v_out
#include "trust/common.cuh"
#undef v

struct SharedTiles {
    SharedTile<64, HEAD_DIM> q[CONSUMERS];
    SharedTile<BLOCK_KV, HEAD_DIM> k, v;
    Barrier q_full[CONSUMERS], k_full, v_full, k_empty, ready[2], done;
    int order[8];
};

// s = q k^T and o = o + cast(s) v: the producer loads, both consumers compute their 64 rows.
KERNEL(NUM_THREADS, 1) gemms(const __grid_constant__ Args a) {
    SHARED_TILES(SharedTiles, smem);
    if (thread_index() == 0) {
        for (int w = 0; w < CONSUMERS; ++w) barrier_init(smem.q_full[w], 1);
        barrier_init(smem.k_full, 1);
        barrier_init(smem.v_full, 1);
        barrier_init_fence();
    }
    block_sync();
    if (warpgroup_index() == 0) {
        registers_release<24>();
        if (thread_index() == 0) {
            for (int w = 0; w < CONSUMERS; ++w) {
                barrier_expect_bytes(smem.q_full[w], SharedTile<64, HEAD_DIM>::BYTES);
                load_tile_async(smem.q[w], a.q, smem.q_full[w], a.b, a.h, a.row0 + w * 64);
            }
            barrier_expect_bytes(smem.k_full, SharedTile<BLOCK_KV, HEAD_DIM>::BYTES);
            load_tile_async(smem.k, a.k, smem.k_full, a.b, a.h, a.row0);
            barrier_expect_bytes(smem.v_full, SharedTile<BLOCK_KV, HEAD_DIM>::BYTES);
            load_tile_async(smem.v, a.v, smem.v_full, a.b, a.h, a.row0);
        }
    } else {
        registers_take<240>();
        float s[ROWS][S_COLS], o[ROWS][O_COLS];
        ProbTile p;
        read_tile(o, a.x);
        barrier_wait(smem.q_full[consumer_index()], 0);
        barrier_wait(smem.k_full, 0);
        wgmma_fence();
        gemm_qk_async(s, smem.q[consumer_index()], smem.k);
        wgmma_commit();
        wgmma_wait<0>();
        write_tile(a.y, s);
        cast_probs(p, s);
        barrier_wait(smem.v_full, 0);
        wgmma_fence();
        gemm_pv_async(o, p, smem.v);
        wgmma_commit();
        wgmma_wait<0>();
        write_tile(a.z, o);
    }
}

// Rows of head h of batch b of q = x as halves, through shared memory, a tile of 64 rows a consumer.
KERNEL(NUM_THREADS, 1) staged(const __grid_constant__ Args a) {
    SHARED_TILES(SharedTiles, smem);
    if (warpgroup_index() == 0) return;
    const int wg = consumer_index();
    float o[ROWS][O_COLS];
    read_tile(o, a.x);
    stage_tile(smem.q[wg], o);
    async_proxy_fence();
    named_sync(1 + wg, WARPGROUP);
    if (thread_index() % WARPGROUP == 0) {
        store_tile_async(a.q, smem.q[wg], a.b, a.h, a.row0 + wg * 64);
        bulk_commit();
        bulk_wait_read<0>();
    }
}

KERNEL(NUM_THREADS, 1) rows(const __grid_constant__ Args a) {
    if (warpgroup_index() != 0) rows_of(a);
}
KERNEL(NUM_THREADS, 1) stores(const __grid_constant__ Args a) {
    if (warpgroup_index() != 0) stores_of(a);
}
KERNEL(NUM_THREADS, 1) columns(const __grid_constant__ Args a) {
    if (warpgroup_index() != 0) columns_of(a);
}

// i[..]: what the claims about coordinates, rings, phases, named barriers and counters come to; the host knows each answer.
KERNEL(NUM_THREADS, 1) order(const __grid_constant__ Args a) {
    SHARED_TILES(SharedTiles, smem);
    if (thread_index() == 0) {
        barrier_init(smem.ready[0], 1);
        barrier_init(smem.ready[1], CONSUMER_THREADS);
        barrier_init(smem.done, 1);
        barrier_init_fence();
        for (int x = 0; x < 8; ++x) smem.order[x] = 0;
    }
    block_sync();
    a.i[thread_index()] = warpgroup_index() * 1000 + consumer_index() + 1;
    if (warpgroup_index() == 0) {
        if (thread_index() == 0) {
            barrier_wait(smem.done, 1);         // a fresh barrier: parity 1 has ended
            smem.order[0] = 7;
            barrier_arrive(smem.ready[0]);      // one arrival ends phase 0
            barrier_wait(smem.ready[1], 0);     // after all consumers
            smem.order[2] = smem.order[1];
            Ring<3> ring;
            for (int x = 0; x < 7; ++x) ring.next();
            smem.order[3] = ring.slot * 10 + ring.phase;
        }
    } else {
        barrier_wait(smem.ready[0], 0);
        if (smem.order[0] == 7) atomic_add(&smem.order[1], 1);
        barrier_arrive(smem.ready[1]);
        // consumer 1 writes only after consumer 0 has, through a named barrier that consumer 0 only arrives at
        if (consumer_index() == 0) {
            smem.order[4] = 5;
            named_arrive(2, CONSUMER_THREADS);
        } else {
            named_sync(2, CONSUMER_THREADS);
            smem.order[5] = smem.order[4] + 1;
        }
    }
    block_sync();
    if (thread_index() < 8) a.i[NUM_THREADS + thread_index()] = smem.order[thread_index()];
}

// Every block counts once, then finishes: i[0], i[1] are zero again, i[2 + n] says how often number n was handed out.
KERNEL(NUM_THREADS, 1) counters(const __grid_constant__ Args a) {
    if (thread_index() == 0) {
        atomic_add(a.i + 2 + atomic_add(a.i, 1), 1);
        finish_counters(a.i);
    }
}
