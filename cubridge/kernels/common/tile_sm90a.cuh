// Tile helpers for sm_90a: the names and CuIR meanings of tile_sm80.cuh, so that region text serves both kernels. HEAD_DIM,
// BLOCK_Q and BLOCK_KV come from the kernel file.
#pragma once
#include "common/persistent_sm90a.cuh"

constexpr int WARPGROUP = 128;                // threads; wgmma gives each 64 rows
constexpr int CONSUMERS = BLOCK_Q / 64;       // consumer warpgroups
constexpr int CONSUMER_THREADS = CONSUMERS * WARPGROUP;
constexpr int NUM_THREADS = CONSUMER_THREADS + WARPGROUP;  // the producer is warpgroup 0
constexpr int ROWS = 2;                       // rows a thread holds
static_assert(HEAD_DIM % 64 == 0, "a row of a shared tile is whole swizzle panels of 128 bytes");
static_assert(BLOCK_Q % 64 == 0 && BLOCK_KV % 16 == 0, "whole wgmma tiles per consumer");

// CuIR: warpgroup, consumer      warp-uniform; called by whole warps
DEVICE int warpgroup_index() { return uniform(thread_index() / WARPGROUP); }
DEVICE int consumer_index() { return warpgroup_index() - 1; }
// CuIR: i - tile.q_start      the row of element [r][c] of a score or output tile. The producer holds no rows; it gets some
// row of the tile, so that a tile_setup that reads per row stays inside the tensors in every role.
DEVICE int frag_row(int r) {
    const int consumer_thread = (thread_index() + CONSUMER_THREADS - WARPGROUP) % CONSUMER_THREADS;
    return consumer_thread / 32 * 16 + r * 8 + consumer_thread % 32 / 4;
}
#include "common/fragments.cuh"

// CuIR: shared(half, R, C, swizzle=128)      as panels of 64 columns = 128 bytes, the span of the swizzle
template <int R, int C> struct SharedTile {
    alignas(1024) half_t data[C / 64][R][64];
    static constexpr int BYTES = R * C * 2;
};

// CuIR: copy_async(dst, src[b, h, row0 : row0 + R], fill=0, signal=full)
template <int R, int C>
DEVICE void load_tile_async(SharedTile<R, C>& dst, const TensorMap& src, Barrier& full, int b, int h, int row0) {
    #pragma unroll
    for (int panel = 0; panel < C / 64; ++panel) tma_load_4d(dst.data[panel], src, full, panel * 64, row0, h, b);
}
// CuIR: dst = cast(o, half)      the 64 rows of this consumer, by stmatrix: async_proxy_fence and a meeting before TMA reads them
DEVICE void stage_tile(SharedTile<64, HEAD_DIM>& dst, const float (&o)[ROWS][O_COLS]) {
    const int lane = thread_index() % 32, row = thread_index() % WARPGROUP / 32 * 16 + lane % 16;
    const u32 row_address = smem_address(dst.data) + row * 128;
    #pragma unroll
    for (int n = 0; n < HEAD_DIM / 16; ++n) {
        const u32 chunk = (u32)(n % 4 * 2 + lane / 16) ^ (row % 8);  // of 16 bytes, swizzled
        stmatrix_x4(row_address + n / 4 * 64 * 128 + (chunk << 4), pack_half2(o[0][4 * n], o[0][4 * n + 1]),
                    pack_half2(o[1][4 * n], o[1][4 * n + 1]), pack_half2(o[0][4 * n + 2], o[0][4 * n + 3]),
                    pack_half2(o[1][4 * n + 2], o[1][4 * n + 3]));
    }
}
// CuIR: store_async(dst[b, h, row0 : row0 + R], src)      one thread; joins its open bulk group; rows past the end are dropped
template <int R, int C>
DEVICE void store_tile_async(const TensorMap& dst, const SharedTile<R, C>& src, int b, int h, int row0) {
    #pragma unroll
    for (int panel = 0; panel < C / 64; ++panel) tma_store_4d(dst, src.data[panel], panel * 64, row0, h, b);
}

// Shared-memory matrix descriptor: 128-byte swizzle, addresses and strides in units of 16 bytes, 1024 bytes between groups of
// 8 rows. Only the low word depends on the address, so the steps of a gemm are 32-bit additions to one base (shared memory
// ends below 256 KB: the 14-bit address field never carries into the leading stride).
constexpr u32 DESCRIPTOR_HIGH = 1u << 30 | 1024 >> 4;
DEVICE u32 descriptor_base(const void* tile, int leading_bytes) {
    return (smem_address(tile) >> 4) + ((u32)(leading_bytes >> 4) << 16);
}
DEVICE u64 descriptor(u32 base, int offset_bytes) { return (u64)DESCRIPTOR_HIGH << 32 | (base + (u32)(offset_bytes >> 4)); }

// CuIR: s = gemm_async(q, k.T)      q: the 64 rows of this consumer; joins the open wgmma group
DEVICE void gemm_qk_async(float (&s)[ROWS][S_COLS], const SharedTile<64, HEAD_DIM>& q, const SharedTile<BLOCK_KV, HEAD_DIM>& k) {
    const u32 a = descriptor_base(&q, 16), b = descriptor_base(&k, 16);
    #pragma unroll
    for (int kk = 0; kk < HEAD_DIM / 16; ++kk) {
        const int panel = kk / 4, step_bytes = kk % 4 * 32;
        wgmma_k16_ss(s, descriptor(a, panel * 64 * 128 + step_bytes), descriptor(b, panel * BLOCK_KV * 128 + step_bytes), kk != 0);
    }
}
// CuIR: o += gemm_async(p, v)      reads the registers of p until its wait
DEVICE void gemm_pv_async(float (&o)[ROWS][O_COLS], const ProbTile& p, const SharedTile<BLOCK_KV, HEAD_DIM>& v) {
    const u32 b = descriptor_base(&v, BLOCK_KV * 128);
    #pragma unroll
    for (int kk = 0; kk < BLOCK_KV / 16; ++kk) wgmma_k16_rs(o, p.a[0][kk], descriptor(b, kk * 16 * 128));
}
