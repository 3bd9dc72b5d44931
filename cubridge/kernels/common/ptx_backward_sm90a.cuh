// What a backward kernel needs beyond ptx_sm90a.cuh: one wrapper per instruction.
#pragma once
#include "common/ptx_sm90a.cuh"
#include "common/wgmma_backward_sm90a.cuh"

// ---- bulk copies without a tensor map: `bytes` is a multiple of 16, both addresses are 16-byte aligned ----
// global -> shared; completes `bytes` on the barrier, like a TMA load
DEVICE void bulk_load(void* dst_smem, const float* src_gmem, int bytes, Barrier& full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(smem_address(dst_smem)), "l"(src_gmem), "r"(bytes), "r"(smem_address(&full)) : "memory");
}
// dst += src, fp32, shared -> global, each element atomically; joins this thread's open bulk group
DEVICE void bulk_reduce_add(float* dst_gmem, const void* src_smem, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                 :: "l"(dst_gmem), "r"(smem_address(src_smem)), "r"(bytes) : "memory");
}

// x, of which the compiler knows nothing: what is computed from it is computed again, not kept in registers over a loop
DEVICE u32 opaque(u32 x) {
    u32 y;
    asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// ---- shared memory ----
DEVICE void store_shared_16(void* dst_smem, float a, float b, float c, float d) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(smem_address(dst_smem)), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// ---- global memory, for the small kernels before and after ----
DEVICE void load_16(const half_t* p, u32 (&x)[4]) {
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}
DEVICE void load_16(const float* p, float (&x)[4]) {
    const float4 v = *reinterpret_cast<const float4*>(p);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}
DEVICE void store_16(float* p, float a, float b, float c, float d) { *reinterpret_cast<float4*>(p) = make_float4(a, b, c, d); }
// two halves of a register as floats
#ifdef HALF_FP16
DEVICE float half_low(u32 x) { float y; asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(y) : "r"(x)); return y; }
DEVICE float half_high(u32 x) { float y; asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(y) : "r"(x)); return y; }
#else
DEVICE float half_low(u32 x) { return __uint_as_float(x << 16); }
DEVICE float half_high(u32 x) { return __uint_as_float(x & 0xffff0000u); }
#endif
