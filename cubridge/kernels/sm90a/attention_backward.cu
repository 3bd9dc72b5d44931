// Backward attention for sm_90a: a producer warpgroup (TMA) and two consumer warpgroups (wgmma) of 64 keys each, persistent
// blocks. One work tile is a key block of one key head: dk and dv stay in registers while the loop runs over the query tiles of
// all query heads of the group; dq is summed in fp32 in global memory. Before it runs attention_backward_rows.cu, after it
// attention_backward_dq.cu. What a variant changes lives in the region functions; the kernel calls them and is never patched.
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef BLOCK_Q
#define BLOCK_Q 64
#endif
#ifndef BLOCK_KV
#define BLOCK_KV 128
#endif
#ifndef Q_STAGES
#define Q_STAGES 3
#endif
#ifndef DO_STAGES
#define DO_STAGES 2
#endif
#include "common/tile_backward_sm90a.cuh"

constexpr int STEP_BYTES = BLOCK_Q * HEAD_DIM * 2 + BLOCK_Q * 4;  // a tile and its row of numbers
constexpr int DS_READY = 1;    // named barrier: ds of this step is written by both consumers
constexpr int PART_READY = 2;  // named barrier PART_READY + w: consumer w has written its part of the last dq

// Strides in elements. Each field says how the host fills it; sizes are B, Hq, Hk, Lq, Lk, D.
// lse_rows, delta and dq_sum are of whole query tiles, in the orders that tile_backward_sm90a.cuh says.
struct Params {
    TensorMap q;           // @tensor_map q
    TensorMap k;           // @tensor_map k
    TensorMap v;           // @tensor_map v
    TensorMap d_o;         // @tensor_map d_o
    half_t* dk;            // @tensor dk
    half_t* dv;            // @tensor dv
    float* lse_rows;       // @tensor lse_rows
    float* delta;          // @tensor delta
    float* dq_sum;         // @tensor dq_sum
    i64 dk_batch;          // @stride dk 0
    i64 dk_head;           // @stride dk 1
    i64 dk_row;            // @stride dk 2
    i64 dv_batch;          // @stride dv 0
    i64 dv_head;           // @stride dv 1
    i64 dv_row;            // @stride dv 2
    int batch;             // @host B
    int heads_q;           // @host Hq
    int heads_kv;          // @host Hk
    int len_q;             // @host Lq
    int len_kv;            // @host Lk
    int q_blocks;          // @host ceil_div(Lq, BLOCK_Q)
    int kv_blocks;         // @host ceil_div(Lk, BLOCK_KV)
    int work_count;        // @host B * Hk * ceil_div(Lk, BLOCK_KV)
    int group_heads;       // @host minimum(B * Hk, maximum(1, 2 ** 25 // (8 * maximum(Lq, 1) * D)))
    int* counters;         // @counters 2
    // @region params
    float exponent_scale;  // @host D ** -0.5 * LOG2E
    float grad_scale;      // @host D ** -0.5
    // @endregion params
};

struct SharedTiles {
    SharedTile<BLOCK_KV, HEAD_DIM> k, v;
    SharedTile<BLOCK_Q, HEAD_DIM> q[Q_STAGES], d_o[DO_STAGES];
    SharedTile<BLOCK_KV, BLOCK_Q> ds;
    SharedPart dq[2 * CONSUMERS];  // of two steps
    SharedRow<BLOCK_Q> lse[Q_STAGES], delta[DO_STAGES];
    shared_int work;
    Barrier work_full, work_empty;
    Barrier k_full, v_full, kv_empty, ds_empty;
    Barrier q_full[Q_STAGES], q_empty[Q_STAGES], d_o_full[DO_STAGES], d_o_empty[DO_STAGES];
};

// One (batch, key head, key block) and one query head of its group. b, hk, h: batch, key head, query head; kv_start: first key.
struct WorkTile {
    int b, h, hk, kv_start;
    // @region tile_state
    // @endregion tile_state
};

// What `score` keeps of its scores for `score_grad`.
struct ScoreState {
    // @region score_state
    // @endregion score_state
};

// @region tile_setup
DEVICE void tile_setup(WorkTile& tile, const Params& p) {}
// @endregion tile_setup

// @region query_range
// The sequence of query tiles that a key tile visits: tiles [lo, hi), from `first` to the end and then from lo on, so that the key
// tiles of a head do not add to the same dq at the same time. Those outside [full_lo, full_hi) are masked.
struct QuerySequence { int lo, hi, full_lo, full_hi, first; };
DEVICE QuerySequence query_sequence(const WorkTile& tile, const Params& p) {
    const bool whole = tile.kv_start + BLOCK_KV <= p.len_kv;
    return QuerySequence{0, p.q_blocks, 0, whole ? p.q_blocks : 0, tile.kv_start / BLOCK_Q % imax(p.q_blocks, 1)};
}
DEVICE int query_count(const QuerySequence& queries, const Params& p) { return imax(queries.hi - queries.lo, 0); }
DEVICE int query_tile(const QuerySequence& queries, int t, const Params& p) {
    const int x = queries.first + t;
    return x < queries.hi ? x : x - (queries.hi - queries.lo);
}
DEVICE bool query_masked(const QuerySequence& queries, int t, const Params& p) {
    const int x = queries.first + t;
    const int n = x < queries.hi ? x : x - (queries.hi - queries.lo);
    return (n < queries.full_lo) | (n >= queries.full_hi);
}
// @endregion query_range

// @region score
DEVICE void score(float (&s)[ROWS][S_COLS], ScoreState& kept, int q_start, const WorkTile& tile, const Params& p) {}
// @endregion score

// @region mask
// Queries past the end need no mask: their lse is +inf.
DEVICE void mask(float (&s)[ROWS][S_COLS], int q_start, const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int j = tile.kv_start + frag_row(r);
        #pragma unroll
        for (int c = 0; c < S_COLS; ++c) {
            s[r][c] = j < p.len_kv ? s[r][c] : -INFINITY;
        }
    }
}
// @endregion mask

// @region probs
// Scores become the weights of the forward. lse: of each query, as an exponent of two.
DEVICE void probs(float (&s)[ROWS][S_COLS], const float (&lse)[S_COLS], int q_start, const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < S_COLS; ++c) {
            s[r][c] = exp2_approx(s[r][c] * p.exponent_scale - lse[c]);
        }
    }
}
// @endregion probs

// @region probs_grad
// dp, the gradient of the weights w, becomes the gradient of the scores. delta: sum over all keys of w * dp, less dlse, of each query.
DEVICE void probs_grad(float (&dp)[ROWS][S_COLS], const float (&w)[ROWS][S_COLS], const float (&delta)[S_COLS], int q_start,
                       const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int c = 0; c < S_COLS; ++c) {
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            dp[r][c] = w[r][c] * (dp[r][c] - delta[c]);
        }
    }
}
// @endregion probs_grad

// @region score_grad
// ds, the gradient of what `score` gave, becomes the gradient of what it was given. A derivative that depends on the score finds
// it in the weights w and lse, or in what `score` kept, which costs registers.
DEVICE void score_grad(float (&ds)[ROWS][S_COLS], const ScoreState& kept, const float (&w)[ROWS][S_COLS],
                       const float (&lse)[S_COLS], int q_start, const WorkTile& tile, const Params& p) {}
// @endregion score_grad

// Work is numbered group of heads by group of heads, so that queries, dO and dq of a group stay in L2. Inside a group the first
// key blocks come first: under a causal mask they see the most queries.
DEVICE WorkTile work_tile(int work, const Params& p) {
    WorkTile tile;
    const int group = work / (p.group_heads * p.kv_blocks);
    const int first = group * p.group_heads;
    const int heads = imin(p.group_heads, p.batch * p.heads_kv - first);
    const int rest = work - first * p.kv_blocks;
    const int head = first + rest % heads;
    tile.b = head / p.heads_kv;
    tile.hk = head % p.heads_kv;
    tile.h = tile.hk * (p.heads_q / p.heads_kv);
    tile.kv_start = rest / heads * BLOCK_KV;
    tile_setup(tile, p);
    return tile;
}
// The same keys for the next query head of the group.
DEVICE void next_head(WorkTile& tile, const Params& p) {
    ++tile.h;
    tile_setup(tile, p);
}

KERNEL(NUM_THREADS, 1) attention_backward(const __grid_constant__ Params p) {
    SHARED_TILES(SharedTiles, smem);
    if (thread_index() == 0) {
        for (int x = 0; x < Q_STAGES; ++x) {
            barrier_init(smem.q_full[x], 1);
            barrier_init(smem.q_empty[x], CONSUMERS);
        }
        for (int x = 0; x < DO_STAGES; ++x) {
            barrier_init(smem.d_o_full[x], 1);
            barrier_init(smem.d_o_empty[x], CONSUMERS);
        }
        barrier_init(smem.k_full, 1);
        barrier_init(smem.v_full, 1);
        barrier_init(smem.kv_empty, CONSUMERS);
        barrier_init(smem.ds_empty, CONSUMERS);
        barrier_init(smem.work_full, 1);
        barrier_init(smem.work_empty, CONSUMER_THREADS);
        barrier_init_fence();
    }
    block_sync();
    const int group = p.heads_q / p.heads_kv;
    if (warpgroup_index() == 0) {
        registers_release<24>();
        if (thread_index() == 0) {
            Ring<Q_STAGES> q_ring;
            Ring<DO_STAGES> d_o_ring;
            Ring<1> kv_ring, work_ring;
            int work = block_index_x();
            for (;;) {
                barrier_wait(smem.work_empty, work_ring.phase ^ 1);
                smem.work = work;
                barrier_arrive(smem.work_full);
                work_ring.next();
                if (work >= p.work_count) break;
                WorkTile tile = work_tile(work, p);
                const QuerySequence queries = query_sequence(tile, p);
                const int count = query_count(queries, p);
                int next = work;
                if (p.counters != nullptr) next = atomic_add(p.counters, 1);
                if (count > 0) {
                    barrier_wait(smem.kv_empty, kv_ring.phase ^ 1);
                    barrier_expect_bytes(smem.k_full, SharedTile<BLOCK_KV, HEAD_DIM>::BYTES);
                    load_tile_async(smem.k, p.k, smem.k_full, tile.b, tile.hk, tile.kv_start);
                    barrier_expect_bytes(smem.v_full, SharedTile<BLOCK_KV, HEAD_DIM>::BYTES);
                    load_tile_async(smem.v, p.v, smem.v_full, tile.b, tile.hk, tile.kv_start);
                    kv_ring.next();
                    for (int g = 0; g < group; ++g) {
                        const RowView lse = row_view(p.lse_rows, p.heads_q, tile.b, tile.h, p.q_blocks * BLOCK_Q);
                        const RowView delta = row_view(p.delta, p.heads_q, tile.b, tile.h, p.q_blocks * BLOCK_Q);
                        #pragma unroll 1
                        for (int t = 0; t < count; ++t) {
                            const int q_start = query_tile(queries, t, p) * BLOCK_Q;
                            barrier_wait(smem.q_empty[q_ring.slot], q_ring.phase ^ 1);
                            barrier_expect_bytes(smem.q_full[q_ring.slot], STEP_BYTES);
                            load_tile_async(smem.q[q_ring.slot], p.q, smem.q_full[q_ring.slot], tile.b, tile.h, q_start);
                            load_row_async(smem.lse[q_ring.slot], lse, smem.q_full[q_ring.slot], q_start);
                            q_ring.next();
                            barrier_wait(smem.d_o_empty[d_o_ring.slot], d_o_ring.phase ^ 1);
                            barrier_expect_bytes(smem.d_o_full[d_o_ring.slot], STEP_BYTES);
                            load_tile_async(smem.d_o[d_o_ring.slot], p.d_o, smem.d_o_full[d_o_ring.slot], tile.b, tile.h, q_start);
                            load_row_async(smem.delta[d_o_ring.slot], delta, smem.d_o_full[d_o_ring.slot], q_start);
                            d_o_ring.next();
                        }
                        if (g + 1 < group) next_head(tile, p);
                    }
                }
                work = grid_size_x() + next;
            }
            if (p.counters != nullptr) finish_counters(p.counters);
        }
    } else {
        registers_take<240>();
        const int wg = consumer_index();
        const bool leader = thread_index() % WARPGROUP == 0;
        Ring<Q_STAGES> q_ring;
        Ring<DO_STAGES> d_o_ring;
        Ring<2> dq_ring;
        Ring<1> kv_ring, work_ring, ds_ring;
        for (;;) {
            barrier_wait(smem.work_full, work_ring.phase);
            const int work = smem.work;
            barrier_arrive(smem.work_empty);  // by every thread, since every thread has read it
            work_ring.next();
            if (work >= p.work_count) break;
            WorkTile tile = work_tile(work, p);
            const QuerySequence queries = query_sequence(tile, p);
            const int count = query_count(queries, p);
            const int steps = count * group;
            float dk[ROWS][O_COLS], dv[ROWS][O_COLS];
            zero(dk);
            zero(dv);
            if (count > 0) {
                float s[ROWS][S_COLS];
                OperandTile weights, grads;  // out here: the dk gemm of a step reads grads until the next
                int t = 0, q_done = 0, dq_done = 0;  // slot of q and tile of dq of the last step
                // prologue: the scores of the first step
                barrier_wait(smem.k_full, kv_ring.phase);
                barrier_wait(smem.q_full[q_ring.slot], q_ring.phase);
                wgmma_fence();
                gemm_keys_async(s, smem.k, wg, smem.q[q_ring.slot]);
                wgmma_commit();   // group: s
                wgmma_wait<0>();
                barrier_wait(smem.v_full, kv_ring.phase);
                kv_ring.next();
                #pragma unroll 1
                for (int step = 0; step < steps; ++step) {
                    const int n = query_tile(queries, t, p);
                    const int q_slot = q_ring.slot;
                    const bool last = step + 1 == steps;
                    float dp[ROWS][S_COLS], dq[ROWS][DQ_COLS], lse[S_COLS], delta[S_COLS];
                    ScoreState kept;
                    barrier_wait(smem.d_o_full[d_o_ring.slot], d_o_ring.phase);
                    wgmma_fence();
                    gemm_keys_async(dp, smem.v, wg, smem.d_o[d_o_ring.slot]);
                    wgmma_commit();   // group: dp, behind dk of the last step
                    read_columns(lse, smem.lse[q_slot]);
                    score(s, kept, n * BLOCK_Q, tile, p);
                    if (query_masked(queries, t, p)) mask(s, n * BLOCK_Q, tile, p);
                    probs(s, lse, n * BLOCK_Q, tile, p);
                    cast_tile(weights, s);
                    read_columns(delta, smem.delta[d_o_ring.slot]);
                    wgmma_wait<0>();  // dp is here, and dk of the last step
                    if (leader & step > 0) barrier_arrive(smem.q_empty[q_done]);
                    q_done = q_slot;
                    probs_grad(dp, s, delta, n * BLOCK_Q, tile, p);
                    read_columns(lse, smem.lse[q_slot]);  // again, for fewer registers; only where score_grad asks for it
                    score_grad(dp, kept, s, lse, n * BLOCK_Q, tile, p);
                    cast_tile(grads, dp);
                    barrier_wait(smem.ds_empty, ds_ring.phase ^ 1);
                    store_operand(smem.ds, grads);
                    wgmma_fence();
                    gemm_queries_async(dv, weights, smem.d_o[d_o_ring.slot]);
                    wgmma_commit();   // group: dv
                    async_proxy_fence();
                    q_ring.next();
                    if (!last) barrier_wait(smem.q_full[q_ring.slot], q_ring.phase);
                    wgmma_fence();
                    gemm_keys_async(s, smem.k, wg, smem.q[last ? q_slot : q_ring.slot]);
                    wgmma_commit();   // group: s of the next step; nobody reads that of the last
                    if (leader) bulk_wait_read<0>();  // the copy of the step before the last has read its dq
                    named_sync(DS_READY, CONSUMER_THREADS);
                    if (leader & step > 0) {  // the same fence and meeting serve dq of the last step
                        reduce_part_async(dq_part(p.dq_sum, dq_done, wg), smem.dq[(dq_ring.slot ^ 1) * CONSUMERS + wg]);
                        bulk_commit();
                    }
                    wgmma_wait<1>();  // dv is here
                    if (leader) barrier_arrive(smem.d_o_empty[d_o_ring.slot]);
                    d_o_ring.next();
                    wgmma_fence();
                    gemm_dq_async(dq, smem.ds, smem.k, wg);
                    wgmma_commit();   // group: dq
                    gemm_queries_async(dk, grads, smem.q[q_slot]);
                    wgmma_commit();   // group: dk
                    wgmma_wait<1>();  // dq is here, and s of the next step
                    if (leader) barrier_arrive(smem.ds_empty);
                    ds_ring.next();
                    store_part(smem.dq[dq_ring.slot * CONSUMERS + wg], dq);
                    dq_done = (tile.b * p.heads_q + tile.h) * p.q_blocks + n;
                    dq_ring.next();
                    ++t;
                    if (t == count & !last) {
                        t = 0;
                        next_head(tile, p);
                    }
                }
                // epilogue: dq of the last step
                async_proxy_fence();
                named_sync(PART_READY + wg, WARPGROUP);
                if (leader) {
                    reduce_part_async(dq_part(p.dq_sum, dq_done, wg), smem.dq[(dq_ring.slot ^ 1) * CONSUMERS + wg]);
                    bulk_commit();
                    bulk_wait_read<0>();
                }
                wgmma_wait<0>();  // dk of the last step
                if (leader) {
                    barrier_arrive(smem.q_empty[q_done]);
                    barrier_arrive(smem.kv_empty);
                }
            }
            scale(dk, p.grad_scale);
            store_tile(head_view(p.dk, p.dk_batch, p.dk_head, p.dk_row, tile.b, tile.hk, p.len_kv), tile.kv_start, dk);
            store_tile(head_view(p.dv, p.dv_batch, p.dv_head, p.dv_row, tile.b, tile.hk, p.len_kv), tile.kv_start, dv);
        }
    }
}
