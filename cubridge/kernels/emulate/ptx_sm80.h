// The meaning of ptx_sm80.cuh on a CPU. Stricter than the hardware: see runtime.cpp.
#pragma once

DEVICE int thread_index() { return emu::thread_index(); }
DEVICE int block_index_x() { return emu::block_index; }
DEVICE int grid_size_x() { return emu::grid_size; }

DEVICE u32 shuffle_xor(u32 x, int lanes) { return emu::warp_shuffle_xor(x, lanes); }
DEVICE float shuffle_xor(float x, int lanes) {
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return __int_as_float((int)emu::warp_shuffle_xor(bits, lanes));
}
DEVICE bool any_lane(bool x) { return emu::warp_any(x); }
DEVICE int uniform(int x) { return emu::warp_uniform(x); }

DEVICE u32 smem_address(const void* p) { return emu::shared_offset(p); }
DEVICE void block_sync() { emu::block_sync(); }

DEVICE void cp_async_16(void* dst_smem, const void* src_gmem, int valid_bytes) { emu::copy_16(dst_smem, src_gmem, valid_bytes); }
DEVICE void cp_async_commit() { emu::copy_commit(); }
template <int PENDING> DEVICE void cp_async_wait() { emu::copy_wait(PENDING); }

DEVICE u32 pack_half2(float lo, float hi) { return emu::pack_half2(lo, hi); }
DEVICE void ldmatrix_x4(u32& r0, u32& r1, u32& r2, u32& r3, u32 src_smem) {
    u32* registers[4] = {&r0, &r1, &r2, &r3};
    emu::load_matrices(registers, src_smem, false);
}
DEVICE void ldmatrix_x4_trans(u32& r0, u32& r1, u32& r2, u32& r3, u32 src_smem) {
    u32* registers[4] = {&r0, &r1, &r2, &r3};
    emu::load_matrices(registers, src_smem, true);
}
DEVICE void mma_m16n8k16(float& d0, float& d1, float& d2, float& d3, const u32 (&a)[4], u32 b0, u32 b1) {
    float* d[4] = {&d0, &d1, &d2, &d3};
    emu::multiply_16x8x16(d, a, b0, b1);
}

DEVICE float exp2_approx(float x) { return exp2f(x); }
DEVICE float log2_approx(float x) { return log2f(x); }
DEVICE float tanh_approx(float x) { return tanhf(x); }
DEVICE float rcp_approx(float x) { return 1.f / x; }

DEVICE int atomic_add(int* p, int x) {  // one emulated thread runs at a time
    const int old = *p;
    *p = old + x;
    return old;
}
DEVICE void memory_fence() {}
DEVICE void store_16(half_t* p, u32 a, u32 b, u32 c, u32 d) { emu::store_16(p, a, b, c, d); }
