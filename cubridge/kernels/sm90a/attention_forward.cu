// Forward attention for sm_90a: a producer warpgroup (TMA) and two consumer warpgroups (wgmma) of 64 query rows each, persistent
// blocks. In a consumer the QK gemm of key tile t runs beside the PV gemm of t - 1, and the softmax of t hides behind that PV
// gemm. What a variant changes lives in the region functions; the kernel calls them and is never patched.
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef BLOCK_Q
#define BLOCK_Q 128
#endif
#ifndef BLOCK_KV
#define BLOCK_KV 128
#endif
#ifndef STAGES
#define STAGES 2
#endif
#include "common/tile_sm90a.cuh"
static_assert(CONSUMERS == 2, "two consumers take turns on the tensor cores");

constexpr int NEXT_TURN = 2;                    // named barrier NEXT_TURN + w: consumer w may start its gemms
constexpr int STAGING = NEXT_TURN + CONSUMERS;  // named barrier STAGING + w: consumer w alone, around its staged output
constexpr int Q_SLOTS = 2;                      // of each consumer: the queries of the next work tile come during this one

// Strides in elements. Each field says how the host fills it; sizes are B, Hq, Hk, Lq, Lk, D.
// group_heads: query heads whose keys and values take at most 2 ** 24 bytes, which stay in L2.
struct Params {
    TensorMap q;           // @tensor_map q
    TensorMap k;           // @tensor_map k
    TensorMap v;           // @tensor_map v
    TensorMap o;           // @tensor_map o
    float* lse;            // @tensor lse
    int batch;             // @host B
    int heads_q;           // @host Hq
    int heads_kv;          // @host Hk
    int len_q;             // @host Lq
    int len_kv;            // @host Lk
    int q_blocks;          // @host ceil_div(Lq, BLOCK_Q)
    int work_count;        // @host B * Hq * ceil_div(Lq, BLOCK_Q)
    int group_heads;       // @host minimum(B * Hq, maximum(1, 2 ** 24 // (4 * maximum(Lk, 1) * D)) * (Hq // Hk))
    int* counters;         // @counters 2
    // @region params
    float exponent_scale;  // @host D ** -0.5 * LOG2E
    // @endregion params
};

struct SharedTiles {
    SharedTile<64, HEAD_DIM> q[Q_SLOTS * CONSUMERS];  // slot x of consumer w: x * CONSUMERS + w
    SharedTile<64, HEAD_DIM> o[CONSUMERS];            // on its way out
    SharedTile<BLOCK_KV, HEAD_DIM> k[STAGES], v[STAGES];
    // From the producer: the next work and its coordinates, whose divisions stay off the consumers' way. Fixed addresses, since
    // a slot of a ring would cost uniform registers.
    shared_int work, work_b, work_h, work_hk, work_q_start;
    Barrier work_full, work_empty;
    Barrier q_full[Q_SLOTS * CONSUMERS];  // who has read the next message is done with these queries: no q_empty
    Barrier k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};

// One (batch, head, query block). b, h: batch and query head; hk: key head; q_start: first query row.
struct WorkTile {
    int b, h, hk, q_start;
    // @region tile_state
    // @endregion tile_state
};

struct RowState {
    // @region row_state
    float m[ROWS];           // reference of the exponents, score units: the running maximum or a little less
    float m_exponent[ROWS];  // m as an exponent of 2; 0 where m is -inf
    float l[ROWS];           // running sum of weights, PARTIAL over lanes
    float o_scale[ROWS];     // what this key tile multiplies the output by
    // @endregion row_state
};

// @region tile_setup
DEVICE void tile_setup(WorkTile& tile, const Params& p) {}
// @endregion tile_setup

// @region kv_range
// The sequence of key tiles of one work tile: tiles [lo, hi) from the right; those outside [full_lo, full_hi) are masked.
// Pure functions of tile and p: every role that walks key tiles calls these and nothing else.
struct KeySequence { int lo, hi, full_lo, full_hi; };
DEVICE KeySequence key_sequence(const WorkTile& tile, const Params& p) {
    const int lo = 0;
    const int hi = ceil_div(p.len_kv, BLOCK_KV);
    const int full_lo = 0;
    const int full_hi = p.len_kv / BLOCK_KV;
    return KeySequence{lo, hi, full_lo, full_hi};
}
DEVICE int key_count(const KeySequence& keys, const Params& p) { return imax(keys.hi - keys.lo, 0); }
DEVICE int key_tile(const KeySequence& keys, int t, const Params& p) { return keys.hi - 1 - t; }
DEVICE bool key_masked(const KeySequence& keys, int t, const Params& p) {
    const int n = keys.hi - 1 - t;
    return (n < keys.full_lo) | (n >= keys.full_hi);
}
// @endregion kv_range

// @region score
DEVICE void score(float (&s)[ROWS][S_COLS], int kv_start, const WorkTile& tile, const Params& p) {}
// @endregion score

// @region mask
DEVICE void mask(float (&s)[ROWS][S_COLS], int kv_start, const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < S_COLS; ++c) {
            const int j = kv_start + frag_col(c);
            s[r][c] = j < p.len_kv ? s[r][c] : -INFINITY;
        }
    }
}
// @endregion mask

// @region row_init
DEVICE void row_init(RowState& row, const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        row.m[r] = -INFINITY;
        row.l[r] = 0.f;
    }
}
// @endregion row_init

// @region row_update
// The row state takes in the scores of a key tile. The reference follows the maximum only when it lags by more than
// RESCALE_LAG, so that most tiles leave the output as it is; weights stay below 2 ** RESCALE_LAG.
DEVICE void row_update(const float (&s)[ROWS][S_COLS], RowState& row, int kv_start, const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float m_max = fmaxf(row.m[r], row_max(s[r]));
        const float m_new = (m_max - row.m[r]) * p.exponent_scale <= RESCALE_LAG ? row.m[r] : m_max;
        const float m_safe = m_new == -INFINITY ? 0.f : m_new;
        row.o_scale[r] = exp2_approx((row.m[r] - m_safe) * p.exponent_scale);
        row.m[r] = m_new;
        row.m_exponent[r] = m_safe * p.exponent_scale;
    }
}
// @endregion row_update

// @region row_probs
// Row r of s becomes the weights of this key tile.
DEVICE void row_probs(float (&s)[ROWS][S_COLS], RowState& row, int r, int kv_start, const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int c = 0; c < S_COLS; ++c) {
        s[r][c] = exp2_approx(s[r][c] * p.exponent_scale - row.m_exponent[r]);
    }
    row.l[r] = row.l[r] * row.o_scale[r] + partial_row_sum(s[r]);
}
// @endregion row_probs

// @region row_rescale
DEVICE void row_rescale(float (&o)[ROWS][O_COLS], const RowState& row, const WorkTile& tile, const Params& p) {
    bool moved[ROWS];
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        moved[r] = row.o_scale[r] != 1.f;
    }
    if (!any_lane(moved)) return;
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < O_COLS; ++c) {
            o[r][c] = o[r][c] * row.o_scale[r];
        }
    }
}
// @endregion row_rescale

// @region row_finalize
// A row that saw no key: output 0, LSE -inf.
DEVICE void row_finalize(float (&o)[ROWS][O_COLS], float (&lse)[ROWS], const RowState& row, const WorkTile& tile, const Params& p) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float l = add_lanes(row.l[r]);
        const float inv = l == 0.f ? 0.f : 1.f / l;
        lse[r] = l == 0.f ? -INFINITY : (row.m[r] * p.exponent_scale + log2_approx(l)) * LN2;
        #pragma unroll
        for (int c = 0; c < O_COLS; ++c) {
            o[r][c] = o[r][c] * inv;
        }
    }
}
// @endregion row_finalize

// Work is numbered group of heads by group of heads, so that the keys and values of a group stay in L2. Inside a group the
// last query blocks come first: under a causal mask they see the most keys.
DEVICE WorkTile work_tile(int work, const Params& p) {
    WorkTile tile;
    const int group = work / (p.group_heads * p.q_blocks);
    const int first = group * p.group_heads;
    const int heads = imin(p.group_heads, p.batch * p.heads_q - first);
    const int rest = work - first * p.q_blocks;
    const int head = first + rest % heads;
    tile.b = head / p.heads_q;
    tile.h = head % p.heads_q;
    tile.hk = tile.h / (p.heads_q / p.heads_kv);
    tile.q_start = (p.q_blocks - 1 - rest / heads) * BLOCK_Q;
    tile_setup(tile, p);
    return tile;
}

// The work tile of these coordinates.
DEVICE WorkTile tile_at(int b, int h, int hk, int q_start, const Params& p) {
    WorkTile tile;
    tile.b = b;
    tile.h = h;
    tile.hk = hk;
    tile.q_start = q_start;
    tile_setup(tile, p);
    return tile;
}

KERNEL(NUM_THREADS, 1) attention_forward(const __grid_constant__ Params p) {
    SHARED_TILES(SharedTiles, smem);
    if (thread_index() == 0) {
        for (int x = 0; x < Q_SLOTS * CONSUMERS; ++x) barrier_init(smem.q_full[x], 1);
        for (int x = 0; x < STAGES; ++x) {
            barrier_init(smem.k_full[x], 1);
            barrier_init(smem.k_empty[x], CONSUMERS);
            barrier_init(smem.v_full[x], 1);
            barrier_init(smem.v_empty[x], CONSUMERS);
        }
        barrier_init(smem.work_full, 1);
        barrier_init(smem.work_empty, CONSUMER_THREADS);
        barrier_init_fence();
    }
    block_sync();
    if (warpgroup_index() == 0) {
        registers_release<40>();
        if (thread_index() == 0) {
            Ring<STAGES> k_ring, v_ring;
            Ring<Q_SLOTS> q_ring;
            Ring<1> work_ring;
            int work = block_index_x();
            for (;;) {
                barrier_wait(smem.work_empty, work_ring.phase ^ 1);
                smem.work = work;
                if (work >= p.work_count) break;
                const WorkTile tile = work_tile(work, p);
                smem.work_b = tile.b;
                smem.work_h = tile.h;
                smem.work_hk = tile.hk;
                smem.work_q_start = tile.q_start;
                barrier_arrive(smem.work_full);
                const KeySequence keys = key_sequence(tile, p);
                const int count = key_count(keys, p);
                // equal shares, or, where tiles differ in length, whoever is free takes the next
                int next = work;
                if (p.counters != nullptr) next = atomic_add(p.counters, 1);  // comes while the copies of this tile are issued
                if (count > 0) {
                    barrier_wait(smem.k_empty[k_ring.slot], k_ring.phase ^ 1);
                    barrier_expect_bytes(smem.k_full[k_ring.slot], SharedTile<BLOCK_KV, HEAD_DIM>::BYTES);
                    load_tile_async(smem.k[k_ring.slot], p.k, smem.k_full[k_ring.slot], tile.b, tile.hk,
                                    key_tile(keys, 0, p) * BLOCK_KV);
                    k_ring.next();
                    for (int w = 0; w < CONSUMERS; ++w) {
                        const int free = q_ring.slot * CONSUMERS + w;
                        barrier_expect_bytes(smem.q_full[free], SharedTile<64, HEAD_DIM>::BYTES);
                        load_tile_async(smem.q[free], p.q, smem.q_full[free], tile.b, tile.h, tile.q_start + w * 64);
                    }
                    q_ring.next();
                    #pragma unroll 1
                    for (int t = 0; t < count; ++t) {
                        // the k tile of t + 1 goes before the v tile of t, the order in which they are used
                        if (t + 1 < count) {
                            barrier_wait(smem.k_empty[k_ring.slot], k_ring.phase ^ 1);
                            barrier_expect_bytes(smem.k_full[k_ring.slot], SharedTile<BLOCK_KV, HEAD_DIM>::BYTES);
                            load_tile_async(smem.k[k_ring.slot], p.k, smem.k_full[k_ring.slot], tile.b, tile.hk,
                                            key_tile(keys, t + 1, p) * BLOCK_KV);
                            k_ring.next();
                        }
                        barrier_wait(smem.v_empty[v_ring.slot], v_ring.phase ^ 1);
                        barrier_expect_bytes(smem.v_full[v_ring.slot], SharedTile<BLOCK_KV, HEAD_DIM>::BYTES);
                        load_tile_async(smem.v[v_ring.slot], p.v, smem.v_full[v_ring.slot], tile.b, tile.hk,
                                        key_tile(keys, t, p) * BLOCK_KV);
                        v_ring.next();
                    }
                }
                work = grid_size_x() + next;
                work_ring.next();
            }
            barrier_arrive(smem.work_full);  // there is no more
            if (p.counters != nullptr) finish_counters(p.counters);
        }
    } else {
        registers_take<232>();
        const int wg = consumer_index();
        const bool leader = thread_index() % WARPGROUP == 0;
        Ring<STAGES> k_ring, v_ring;
        Ring<Q_SLOTS> q_ring;
        Ring<1> work_ring;
        if (wg == 0) named_arrive(NEXT_TURN, CONSUMER_THREADS);  // in place of consumer 1: consumer 0 has the first turn
        for (;;) {
            barrier_wait(smem.work_full, work_ring.phase);
            const int work = smem.work;
            if (work >= p.work_count) break;
            const WorkTile tile = tile_at(smem.work_b, smem.work_h, smem.work_hk, smem.work_q_start, p);
            barrier_arrive(smem.work_empty);  // by every thread, since every thread has read it
            work_ring.next();
            const KeySequence keys = key_sequence(tile, p);
            const int count = key_count(keys, p);
            float o[ROWS][O_COLS];
            RowState row;
            zero(o);
            row_init(row, tile, p);
            if (count > 0) {
                float s[ROWS][S_COLS];
                ProbTile probs;
                const int q_slot = q_ring.slot * CONSUMERS + wg;
                // prologue: the first key tile has no PV gemm to run beside
                barrier_wait(smem.q_full[q_slot], q_ring.phase);
                barrier_wait(smem.k_full[k_ring.slot], k_ring.phase);
                wgmma_fence();
                gemm_qk_async(s, smem.q[q_slot], smem.k[k_ring.slot]);
                wgmma_commit();
                wgmma_wait<0>();
                if (leader) barrier_arrive(smem.k_empty[k_ring.slot]);
                k_ring.next();
                score(s, key_tile(keys, 0, p) * BLOCK_KV, tile, p);
                if (key_masked(keys, 0, p)) mask(s, key_tile(keys, 0, p) * BLOCK_KV, tile, p);
                row_update(s, row, key_tile(keys, 0, p) * BLOCK_KV, tile, p);
                row_probs(s, row, 0, key_tile(keys, 0, p) * BLOCK_KV, tile, p);
                row_probs(s, row, 1, key_tile(keys, 0, p) * BLOCK_KV, tile, p);
                cast_probs(probs, s);
                barrier_wait(smem.v_full[v_ring.slot], v_ring.phase);
                #pragma unroll 1
                for (int t = 1; t < count; ++t) {
                    const int n = key_tile(keys, t, p);
                    const int v_slot = v_ring.slot;
                    barrier_wait(smem.k_full[k_ring.slot], k_ring.phase);
                    named_sync(NEXT_TURN + wg, CONSUMER_THREADS);
                    wgmma_fence();
                    gemm_qk_async(s, smem.q[q_slot], smem.k[k_ring.slot]);
                    wgmma_commit();   // group: s of t
                    gemm_pv_async(o, probs, smem.v[v_slot]);
                    wgmma_commit();   // group: o of t - 1
                    named_arrive(NEXT_TURN + (wg ^ 1), CONSUMER_THREADS);
                    wgmma_wait<1>();  // s of t is here
                    if (leader) barrier_arrive(smem.k_empty[k_ring.slot]);
                    k_ring.next();
                    score(s, n * BLOCK_KV, tile, p);
                    if (key_masked(keys, t, p)) mask(s, n * BLOCK_KV, tile, p);
                    row_update(s, row, n * BLOCK_KV, tile, p);
                    row_probs(s, row, 0, n * BLOCK_KV, tile, p);
                    v_ring.next();
                    barrier_wait(smem.v_full[v_ring.slot], v_ring.phase);  // v of t; a branch: keeps row 0 above the next wait
                    wgmma_wait<0>();  // o of t - 1 is here, probs may be overwritten
                    if (leader) barrier_arrive(smem.v_empty[v_slot]);
                    row_rescale(o, row, tile, p);
                    row_probs(s, row, 1, n * BLOCK_KV, tile, p);
                    cast_probs(probs, s);
                }
                q_ring.next();
                // epilogue: the PV gemm of the last key tile
                wgmma_fence();
                gemm_pv_async(o, probs, smem.v[v_ring.slot]);
                wgmma_commit();
                wgmma_wait<0>();
                if (leader) barrier_arrive(smem.v_empty[v_ring.slot]);
                v_ring.next();
            }
            float lse[ROWS];
            row_finalize(o, lse, row, tile, p);
            if (leader) bulk_wait_read<0>();          // the output before this one has left
            named_sync(STAGING + wg, WARPGROUP);
            stage_tile(smem.o[wg], o);
            async_proxy_fence();
            named_sync(STAGING + wg, WARPGROUP);
            if (leader) {
                store_tile_async(p.o, smem.o[wg], tile.b, tile.h, tile.q_start + wg * 64);
                bulk_commit();
            }
            if (p.lse != nullptr) store_rows(row_view(p.lse, p.heads_q, tile.b, tile.h, p.len_q), tile.q_start, lse);
        }
        if (leader) bulk_wait_read<0>();
    }
}
