// Tile helpers of the backward kernel for sm_90a. A score fragment is t[r][c] as in the forward, but its rows are KEYS and its
// columns QUERIES (S^T = K Q^T), so that P^T and dS^T are left operands of the gemms for dV and dK straight from registers.
// HEAD_DIM, BLOCK_Q, BLOCK_KV come from the kernel file.
#pragma once
#include "common/backward_sm90a.cuh"
#include "common/persistent_sm90a.cuh"

constexpr int NUM_THREADS = CONSUMER_THREADS + WARPGROUP;  // the producer is warpgroup 0
constexpr int S_COLS = BLOCK_Q / 4;    // queries a thread holds
constexpr int O_COLS = HEAD_DIM / 4;   // columns of dk and dv a thread holds

// CuIR: consumer      warp-uniform; called by whole warps
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

// CuIR: shared(half, R, C, swizzle=128)      as panels of 64 columns = 128 bytes, the span of the swizzle
template <int R, int C> struct SharedTile {
    alignas(1024) half_t data[C / 64][R][64];
    static constexpr int BYTES = R * C * 2;
};
// CuIR: shared(f32, 1, N)      one number per query of a tile
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
// CuIR: x = src      the queries' numbers, shared by the rows of the fragment; src is in the order of `row_position`
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

// CuIR: s = gemm_async(rows(k, 64 * wg, 64), q.T)      joins the open wgmma group
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
// CuIR: dq = gemm_async(ds.T, columns(k, PART * wg, PART))      the keys lie along rows: both operands are read transposed
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
// CuIR: rows(dst, 64 * consumer, 64) = x      by generic stores: async_proxy_fence and a meeting before wgmma reads them
DEVICE void store_operand(SharedTile<BLOCK_KV, BLOCK_Q>& dst, const OperandTile& x) {
    const int lane = thread_index() % 32, row = consumer_thread() / 32 * 16 + (lane & 15);
    const u32 lane_base = smem_address(&dst) + row * 128 + (((lane >> 4) ^ (lane & 7)) << 4);
    #pragma unroll
    for (int n = 0; n < BLOCK_Q / 16; ++n) {
        stmatrix_x4((lane_base ^ (n % 4 * 32)) + n / 4 * BLOCK_KV * 128, x.a[n][0], x.a[n][1], x.a[n][2], x.a[n][3]);
    }
}

// ---- what a step adds to dq ----
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
// CuIR: store(X[b, h, row0 : row0 + BLOCK_KV], cast(x, half))
DEVICE void store_tile(const OutputView& dst, int row0, const float (&x)[ROWS][O_COLS]) {
    store_fragment(dst, row0 + frag_row(0), 0, x);
}
