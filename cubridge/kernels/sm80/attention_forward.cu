// Forward attention for sm_80 and later: cp.async rings of two K and two V slots, ldmatrix, mma.sync, online softmax in base 2,
// one work tile a block. What a variant changes lives in the region functions; the kernel calls them and is never patched.
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef BLOCK_Q
#define BLOCK_Q 128
#endif
#ifndef BLOCK_KV
#define BLOCK_KV 64
#endif
#ifndef WARPS
#define WARPS 4
#endif
#ifndef STAGES
#define STAGES 2
#endif
#include "common/tile_sm80.cuh"

// Strides in elements. Each field says how the host fills it; sizes are B, Hq, Hk, Lq, Lk, D.
// group_heads: query heads whose keys and values take at most 2 ** 25 bytes, which stay in L2.
struct Params {
    const half_t* q;       // @tensor q
    const half_t* k;       // @tensor k
    const half_t* v;       // @tensor v
    half_t* o;             // @tensor o
    float* lse;            // @tensor lse
    i64 q_batch;           // @stride q 0
    i64 q_head;            // @stride q 1
    i64 q_row;             // @stride q 2
    i64 k_batch;           // @stride k 0
    i64 k_head;            // @stride k 1
    i64 k_row;             // @stride k 2
    i64 v_batch;           // @stride v 0
    i64 v_head;            // @stride v 1
    i64 v_row;             // @stride v 2
    i64 o_batch;           // @stride o 0
    i64 o_head;            // @stride o 1
    i64 o_row;             // @stride o 2
    int batch;             // @host B
    int heads_q;           // @host Hq
    int heads_kv;          // @host Hk
    int len_q;             // @host Lq
    int len_kv;            // @host Lk
    int q_blocks;          // @host ceil_div(Lq, BLOCK_Q)
    int group_heads;       // @host minimum(B * Hq, maximum(1, 2 ** 25 // (4 * maximum(Lk, 1) * D)) * (Hq // Hk))
    // @region params
    float exponent_scale;  // @host D ** -0.5 * LOG2E
    // @endregion params
};

struct SharedTiles {
    SharedTile<BLOCK_Q, HEAD_DIM> q;
    SharedTile<BLOCK_KV, HEAD_DIM> k[STAGES], v[STAGES];
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

KERNEL(NUM_THREADS, 1) attention_forward(const __grid_constant__ Params p) {
    SHARED_TILES(SharedTiles, smem);
    const WorkTile tile = work_tile(block_index_x(), p);
    const HeadView q_gmem = head_view(p.q, p.q_batch, p.q_head, p.q_row, tile.b, tile.h, p.len_q);
    const HeadView k_gmem = head_view(p.k, p.k_batch, p.k_head, p.k_row, tile.b, tile.hk, p.len_kv);
    const HeadView v_gmem = head_view(p.v, p.v_batch, p.v_head, p.v_row, tile.b, tile.hk, p.len_kv);
    const OutputView o_gmem = head_view(p.o, p.o_batch, p.o_head, p.o_row, tile.b, tile.h, p.len_q);
    const KeySequence keys = key_sequence(tile, p);
    const int count = key_count(keys, p);

    float o[ROWS][O_COLS];
    RowState row;
    zero(o);
    row_init(row, tile, p);

    int slot = 0;
    if (count > 0) {
        load_tile_async(smem.q, q_gmem, tile.q_start);
        load_tile_async(smem.k[0], k_gmem, key_tile(keys, 0, p) * BLOCK_KV);
        cp_async_commit();  // group: q, first k
        load_tile_async(smem.v[0], v_gmem, key_tile(keys, 0, p) * BLOCK_KV);
        cp_async_commit();  // group: first v
    }
    #pragma unroll 1
    for (int t = 0; t < count; ++t) {
        const int n = key_tile(keys, t, p);
        float s[ROWS][S_COLS];
        ProbTile probs;
        cp_async_wait<1>();  // k[slot] is here, v[slot] may be on its way
        block_sync();        // for every thread; and nobody reads k[slot ^ 1] any more
        if (t + 1 < count) load_tile_async(smem.k[slot ^ 1], k_gmem, key_tile(keys, t + 1, p) * BLOCK_KV);
        cp_async_commit();   // an empty group at the last tile keeps the count
        gemm_qk(s, smem.q, smem.k[slot]);
        score(s, n * BLOCK_KV, tile, p);
        if (key_masked(keys, t, p)) mask(s, n * BLOCK_KV, tile, p);
        row_update(s, row, n * BLOCK_KV, tile, p);
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) row_probs(s, row, r, n * BLOCK_KV, tile, p);
        cast_probs(probs, s);
        row_rescale(o, row, tile, p);
        cp_async_wait<1>();  // v[slot] is here
        block_sync();
        if (t + 1 < count) load_tile_async(smem.v[slot ^ 1], v_gmem, key_tile(keys, t + 1, p) * BLOCK_KV);
        cp_async_commit();
        gemm_pv(o, probs, smem.v[slot]);
        slot ^= 1;
    }

    float lse[ROWS];
    row_finalize(o, lse, row, tile, p);
    store_tile(o_gmem, tile.q_start, o);
    if (p.lse != nullptr) store_rows(row_view(p.lse, p.heads_q, tile.b, tile.h, p.len_q), tile.q_start, lse);
}
