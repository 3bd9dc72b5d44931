// The patchable part of a kernel, for tests of lowering: what its regions call is in the headers of cubridge/kernels/common.
struct Params {
    const half_t* q;       // @tensor q
    int batch;             // @host B
    int heads_q;           // @host Hq
    int heads_kv;          // @host Hk
    int len_q;             // @host Lq
    int len_kv;            // @host Lk
    // @region params
    float exponent_scale;  // @host D ** -0.5 * LOG2E
    // @endregion params
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
    float l[ROWS];           // running sum of weights, PARTIAL over lanes
    float o_scale[ROWS];     // what this key tile multiplies the output by
    float m_exponent[ROWS];  // m as an exponent of 2; 0 where m is -inf
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
DEVICE bool key_masked(const KeySequence& keys, int t, const Params& p) { return (keys.hi - 1 - t < keys.full_lo) | (keys.hi - 1 - t >= keys.full_hi); }
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
        const float m_seen = fmaxf(row.m[r], row_max(s[r]));
        const float m_new = (m_seen - row.m[r]) * p.exponent_scale <= 8.f ? row.m[r] : m_seen;
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
