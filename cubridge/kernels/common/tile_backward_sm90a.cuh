// Tile helpers of the backward kernel for sm_90a. A score fragment is t[r][c] as in the forward, but its rows are KEYS and its
// columns QUERIES (S^T = K Q^T), so that P^T and dS^T are left operands of the gemms for dV and dK straight from registers.
// HEAD_DIM, BLOCK_Q, BLOCK_KV come from the kernel file.
#pragma once
#include "common/persistent_sm90a.cuh"
#include "common/ptx_backward_sm90a.cuh"
#include "common/views.cuh"

constexpr int WARPGROUP = 128;
constexpr int CONSUMERS = BLOCK_KV / 64;  // consumer warpgroups, each owns 64 keys
constexpr int CONSUMER_THREADS = CONSUMERS * WARPGROUP;
constexpr int NUM_THREADS = CONSUMER_THREADS + WARPGROUP;  // the producer is warpgroup 0
constexpr int ROWS = 2;                // keys a thread holds
constexpr int S_COLS = BLOCK_Q / 4;    // queries a thread holds
constexpr int O_COLS = HEAD_DIM / 4;   // columns of dk and dv a thread holds
constexpr int PART = HEAD_DIM / 2;     // columns of the dq tile that a consumer makes
constexpr int DQ_COLS = PART / 4;      // of these a thread holds
static_assert(CONSUMERS == 2 && BLOCK_Q == 64, "a dq tile is 64 rows, and each of two consumers makes half of its columns");

// CuIR: warpgroup, consumer      warp-uniform; called by whole warps
DEVICE int warpgroup_index() { return uniform(thread_index() / WARPGROUP); }
DEVICE int consumer_index() { return warpgroup_index() - 1; }
DEVICE int consumer_thread() { return (thread_index() + CONSUMER_THREADS - WARPGROUP) % CONSUMER_THREADS; }

// ---- where an element of a score fragment lies: key kv_start + frag_row(r), query q_start + frag_col(c) ----
// CuIR: j - tile.kv_start
DEVICE int frag_row(int r) { return consumer_thread() / 32 * 16 + r * 8 + thread_index() % 32 / 4; }
DEVICE int lane_col() { return (thread_index() % 4) * 2; }
DEVICE constexpr int col_offset(int c) { return (c / 2) * 8 + c % 2; }
// CuIR: i - q_start
DEVICE int frag_col(int c) { return lane_col() + col_offset(c); }
// CuIR: f32(i)      exact below 2^24
DEVICE float frag_col_f32(int q_start, int c) { return (float)(q_start + lane_col()) + (float)col_offset(c); }

// CuIR: t = zeros()
template <int N> DEVICE void zero(float (&t)[ROWS][N]) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < N; ++c) t[r][c] = 0.f;
    }
}

// CuIR: t = t * x
template <int N> DEVICE void scale(float (&t)[ROWS][N], float x) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < N; ++c) t[r][c] = t[r][c] * x;
    }
}

// CuIR: shared(half, R, C, swizzle=128)      as panels of 64 columns = 128 bytes, the span of the swizzle
template <int R, int C> struct SharedTile {
    alignas(1024) half_t data[C / 64][R][64];
    static constexpr int BYTES = R * C * 2;
};
// CuIR: shared(f32, N)      one number per query of a tile
template <int N> struct SharedRow {
    alignas(16) float data[N];
    static constexpr int BYTES = N * 4;
};
// CuIR: shared(f32, 64, PART, layout=fragment)      what one consumer adds to dq, in the order of its fragments
struct SharedPart {
    alignas(128) float data[DQ_COLS / 2][WARPGROUP][4];
    static constexpr int BYTES = 64 * PART * 4;
};

// CuIR: copy_async(dst, src[b, h, row0 : row0 + R], fill=0, signal=full)
template <int R, int C>
DEVICE void load_tile_async(SharedTile<R, C>& dst, const TensorMap& src, Barrier& full, int b, int h, int row0) {
    #pragma unroll
    for (int panel = 0; panel < C / 64; ++panel) tma_load_4d(dst.data[panel], src, full, panel * 64, row0, h, b);
}
// CuIR: copy_async(dst, src[row0 : row0 + N], signal=full)      src is padded to whole tiles
template <int N> DEVICE void load_row_async(SharedRow<N>& dst, const RowView& src, Barrier& full, int row0) {
    bulk_load(dst.data, src.ptr + row0, SharedRow<N>::BYTES, full);
}
// Rows of numbers per query lie in fragment order: of 16 queries the four that a lane holds are neighbours.
DEVICE constexpr int row_position(int i) { return i / 16 * 16 + i % 8 / 2 * 4 + i % 16 / 8 * 2 + i % 2; }
// CuIR: x[i] of the columns of a fragment      the queries' numbers, shared by the rows of the fragment
DEVICE void read_columns(float (&x)[S_COLS], const SharedRow<BLOCK_Q>& src) {
    #pragma unroll
    for (int c = 0; c < S_COLS; c += 4) {
        const float4 y = *reinterpret_cast<const float4*>(src.data + lane_col() * 2 + c * 4);
        x[c] = y.x;
        x[c + 1] = y.y;
        x[c + 2] = y.z;
        x[c + 3] = y.w;
    }
}

// Shared-memory matrix descriptors as in tile_sm90a.cuh: 128-byte swizzle, 1024 bytes between groups of 8 rows.
constexpr u32 DESCRIPTOR_HIGH = 1u << 30 | 1024 >> 4;
DEVICE u32 descriptor_base(const void* tile, int leading_bytes) {
    return (opaque(smem_address(tile)) >> 4) + ((u32)(leading_bytes >> 4) << 16);
}
DEVICE u64 descriptor(u32 base, int offset_bytes) { return (u64)DESCRIPTOR_HIGH << 32 | (base + (u32)(offset_bytes >> 4)); }

// CuIR: s = gemm_async(k[64 * wg : 64 * wg + 64], q.T)      joins the open wgmma group
DEVICE void gemm_keys_async(float (&s)[ROWS][S_COLS], const SharedTile<BLOCK_KV, HEAD_DIM>& k, int wg,
                            const SharedTile<BLOCK_Q, HEAD_DIM>& q) {
    const u32 a = descriptor_base(&k, 16) + (u32)(wg * 64 * 128 >> 4), b = descriptor_base(&q, 16);
    #pragma unroll
    for (int kk = 0; kk < HEAD_DIM / 16; ++kk) {
        const int panel = kk / 4, step_bytes = kk % 4 * 32;
        const u64 left = descriptor(a, panel * BLOCK_KV * 128 + step_bytes), right = descriptor(b, panel * BLOCK_Q * 128 + step_bytes);
        if (kk == 0) wgmma_k16_ss_new(s, left, right);
        else wgmma_k16_ss_add(s, left, right);
    }
}
// ---- weights and score gradients as left operands, [64 keys, BLOCK_Q queries] a consumer ----
struct OperandTile { u32 a[BLOCK_Q / 16][4]; };
// CuIR: d += gemm_async(p, y)      reads the registers of p until its wait
DEVICE void gemm_queries_async(float (&d)[ROWS][O_COLS], const OperandTile& p, const SharedTile<BLOCK_Q, HEAD_DIM>& y) {
    const u32 b = descriptor_base(&y, BLOCK_Q * 128);
    #pragma unroll
    for (int kk = 0; kk < BLOCK_Q / 16; ++kk) wgmma_k16_rs(d, p.a[kk], descriptor(b, kk * 16 * 128));
}
// CuIR: dq = gemm_async(ds.T, k[:, PART * wg : PART * wg + PART])      the keys lie along rows: both operands are read transposed
DEVICE void gemm_dq_async(float (&dq)[ROWS][DQ_COLS], const SharedTile<BLOCK_KV, BLOCK_Q>& ds,
                          const SharedTile<BLOCK_KV, HEAD_DIM>& k, int wg) {
    constexpr int PART_BYTES = PART == 64 ? BLOCK_KV * 128 : PART * 2;  // to the next panel, or within the rows of one
    const u32 a = descriptor_base(&ds, 16), b = descriptor_base(&k, 16) + (u32)(wg * PART_BYTES >> 4);
    #pragma unroll
    for (int kk = 0; kk < BLOCK_KV / 16; ++kk) {
        const u64 left = descriptor(a, kk * 16 * 128), right = descriptor(b, kk * 16 * 128);
        if (kk == 0) wgmma_k16_tt_new(dq, left, right);
        else wgmma_k16_tt_add(dq, left, right);
    }
}

// CuIR: p = cast(s, half)
DEVICE void cast_tile(OperandTile& p, const float (&s)[ROWS][S_COLS]) {
    #pragma unroll
    for (int n = 0; n < BLOCK_Q / 16; ++n) {
        #pragma unroll
        for (int x = 0; x < 4; ++x) {
            const int r = x % 2, c = 4 * n + x / 2 * 2;
            p.a[n][x] = pack_half2(s[r][c], s[r][c + 1]);
        }
    }
}
// CuIR: dst[64 * wg : 64 * wg + 64] = x      by generic stores: async_proxy_fence and a meeting before wgmma reads them
DEVICE void store_operand(SharedTile<BLOCK_KV, BLOCK_Q>& dst, const OperandTile& x) {
    const int lane = thread_index() % 32, row = consumer_thread() / 32 * 16 + (lane & 15);
    const u32 lane_base = smem_address(&dst) + row * 128 + (((lane >> 4) ^ (lane & 7)) << 4);
    #pragma unroll
    for (int n = 0; n < BLOCK_Q / 16; ++n) {
        stmatrix_x4((lane_base ^ (n % 4 * 32)) + n / 4 * BLOCK_KV * 128, x.a[n][0], x.a[n][1], x.a[n][2], x.a[n][3]);
    }
}

// ---- the sum of dq: fp32 in global memory, [head, query tile, consumer, fragment order], so that adds are 16 bytes wide ----
// CuIR: DQ[tile, part wg]      tile: (b * heads + h) * query tiles + query tile
DEVICE float* dq_part(float* base, int tile, int wg) { return base + ((i64)tile * CONSUMERS + wg) * (64 * PART); }
// CuIR: dst = dq      shared memory, by generic stores: async_proxy_fence and a meeting before a bulk copy reads them
DEVICE void store_part(SharedPart& dst, const float (&dq)[ROWS][DQ_COLS]) {
    #pragma unroll
    for (int x = 0; x < DQ_COLS / 2; ++x) {
        store_shared_16(dst.data[x][thread_index() % WARPGROUP], dq[0][2 * x], dq[0][2 * x + 1], dq[1][2 * x], dq[1][2 * x + 1]);
    }
}
// CuIR: dst += src      asynchronous, one thread; joins its open bulk group
DEVICE void reduce_part_async(float* dst, const SharedPart& src) { bulk_reduce_add(dst, src.data, SharedPart::BYTES); }

// ---- stores ----
// CuIR: store(X[b, h, row0 : row0 + 64 or 128, 4 * N columns from column0], cast(o, half))      rows past the end are dropped
// Four lanes of a row trade 2-column pieces until each holds 8 columns in a run (as in fragments.cuh); `row` of fragment row r.
template <int N> DEVICE void store_fragment(const OutputView& dst, int row0, int column0, const float (&o)[ROWS][N]) {
    const int lane = thread_index() % 4;
    const bool odd = lane & 1, high = lane & 2;
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = row0 + r * 8;
        #pragma unroll
        for (int c = 0; c < N; c += 8) {
            const u32 a0 = pack_half2(o[r][c], o[r][c + 1]), a1 = pack_half2(o[r][c + 2], o[r][c + 3]);
            const u32 a2 = pack_half2(o[r][c + 4], o[r][c + 5]), a3 = pack_half2(o[r][c + 6], o[r][c + 7]);
            const u32 x0 = shuffle_xor(odd ? a0 : a1, 1), x1 = shuffle_xor(odd ? a2 : a3, 1);
            const u32 b0 = odd ? x0 : a0, b1 = odd ? a1 : x0, b2 = odd ? x1 : a2, b3 = odd ? a3 : x1;
            const u32 y0 = shuffle_xor(high ? b0 : b2, 2), y1 = shuffle_xor(high ? b1 : b3, 2);
            const u32 c0 = high ? y0 : b0, c1 = high ? y1 : b1, c2 = high ? b2 : y0, c3 = high ? b3 : y1;
            if (row < dst.rows) store_16(dst.ptr + (i64)row * dst.row_stride + column0 + (c + 2 * lane) * 4, c0, c1, c2, c3);
        }
    }
}
// CuIR: store(X[b, h, row0 : row0 + BLOCK_KV], cast(x, half))
DEVICE void store_tile(const OutputView& dst, int row0, const float (&x)[ROWS][O_COLS]) {
    store_fragment(dst, row0 + frag_row(0), 0, x);
}

// ---- the small kernels before and after ----
// CuIR: sum(f32(X[b, h, row, column0 : column0 + 8]) * f32(Y[same]))      0 past the end
DEVICE float dot_of_row(const OutputView& x, const OutputView& y, int row, int column0) {
    u32 a[4] = {}, g[4] = {};
    if (row < x.rows) {
        load_16(x.ptr + row * x.row_stride + column0, a);
        load_16(y.ptr + row * y.row_stride + column0, g);
    }
    float sum = 0.f;
    #pragma unroll
    for (int n = 0; n < 4; ++n) sum += half_low(a[n]) * half_low(g[n]) + half_high(a[n]) * half_high(g[n]);
    return sum;
}
// CuIR: DQ[tile] = 0      by all THREADS of a block
template <int THREADS> DEVICE void zero_tile(float* tile) {
    #pragma unroll 4
    for (int x = thread_index(); x < BLOCK_Q * HEAD_DIM / 4; x += THREADS) store_16(tile + x * 4, 0.f, 0.f, 0.f, 0.f);
}
// CuIR: dq = DQ[tile, part wg]
DEVICE void load_part(float (&dq)[ROWS][DQ_COLS], const float* part) {
    #pragma unroll
    for (int x = 0; x < DQ_COLS / 2; ++x) {
        float y[4];
        load_16(part + (x * WARPGROUP + thread_index() % WARPGROUP) * 4, y);
        dq[0][2 * x] = y[0];
        dq[0][2 * x + 1] = y[1];
        dq[1][2 * x] = y[2];
        dq[1][2 * x + 1] = y[3];
    }
}
// CuIR: store(X[b, h, row0 : row0 + BLOCK_Q, PART * wg : PART * wg + PART], cast(dq, half))
DEVICE void store_part_rows(const OutputView& dst, int row0, const float (&dq)[ROWS][DQ_COLS], int wg) {
    const int thread = thread_index() % WARPGROUP, row = thread / 32 * 16 + thread % 32 / 4;
    store_fragment(dst, row0 + row, PART * wg, dq);
}
