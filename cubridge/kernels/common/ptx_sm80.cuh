// One wrapper per instruction, for sm_80 and later. No other header but those named ptx_* and wgmma_* contains `asm`.
// A wrapper that orders memory clobbers "memory". emulate/ptx_sm80.h gives the same names their meaning on a CPU.
#pragma once
#include "common/base.cuh"

#ifdef CUBRIDGE_EMULATE
#include "emulate/ptx_sm80.h"
#else

// ---- where this thread is ----
DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index_x() { return blockIdx.x; }
DEVICE int grid_size_x() { return gridDim.x; }

// ---- warp ----
DEVICE float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
DEVICE u32 shuffle_xor(u32 x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
DEVICE bool any_lane(bool x) { return __any_sync(0xffffffffu, x); }
// x is the same in all 32 lanes; says so to the compiler, which then keeps it in a uniform register
DEVICE int uniform(int x) { return __reduce_max_sync(0xffffffffu, x); }

// ---- shared memory ----
DEVICE u32 smem_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void* uniform_smem(void* p) { return __cvta_shared_to_generic(__reduce_max_sync(0xffffffffu, smem_address(p))); }
// The block's shared memory as one struct; its address is made uniform once.
#define SHARED_TILES(type, name)                                  \
    extern __shared__ __align__(1024) unsigned char smem_bytes[]; \
    type& name = *reinterpret_cast<type*>(uniform_smem(smem_bytes))
DEVICE void block_sync() { __syncthreads(); }

// ---- asynchronous copies, in groups per thread ----
// 16 bytes global -> shared; those past `valid_bytes` are written as zeros and not read
DEVICE void cp_async_16(void* dst_smem, const void* src_gmem, int valid_bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(smem_address(dst_smem)), "l"(src_gmem), "r"(valid_bytes) : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// returns when at most PENDING of this thread's groups are still on their way
template <int PENDING> DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }

// ---- matrices ----
#ifdef HALF_FP16
#define MMA_TYPES "f16.f16"
#define PACK_TYPE "f16x2"
#else
#define MMA_TYPES "bf16.bf16"
#define PACK_TYPE "bf16x2"
#endif
// two floats, rounded to nearest even, as one register of two halves
DEVICE u32 pack_half2(float lo, float hi) {
    u32 packed;
    asm("cvt.rn." PACK_TYPE ".f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
    return packed;
}
DEVICE void ldmatrix_x4(u32& r0, u32& r1, u32& r2, u32& r3, u32 src_smem) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(src_smem) : "memory");
}
DEVICE void ldmatrix_x4_trans(u32& r0, u32& r1, u32& r2, u32& r3, u32 src_smem) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(src_smem) : "memory");
}
// d[16 x 8] += a[16 x 16] b[16 x 8], fp32 sums; d0, d1 lie in row lane / 4, d2, d3 eight rows below
DEVICE void mma_m16n8k16(float& d0, float& d1, float& d2, float& d3, const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." MMA_TYPES ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- elementary functions: one MUFU operation each; relative error about 2^-22, of tanh 2^-11 ----
DEVICE float exp2_approx(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float log2_approx(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float tanh_approx(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float rcp_approx(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

// ---- global memory ----
DEVICE int atomic_add(int* p, int x) { return atomicAdd(p, x); }
// 16 bytes; p is 16-byte aligned
DEVICE void store_16(half_t* p, u32 a, u32 b, u32 c, u32 d) { *reinterpret_cast<uint4*>(p) = make_uint4(a, b, c, d); }
#endif
