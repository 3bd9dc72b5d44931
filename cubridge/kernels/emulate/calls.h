// The calls from emulated kernel text into the runtime (runtime.cpp). Each is made by one thread of the emulated block; the
// return address tells the runtime which statement made it.
#pragma once
#include <cstddef>

namespace emu {
typedef unsigned int u32;
typedef unsigned long long u64;

extern int block_index, grid_size;

int thread_index();

// ---- shared memory: offsets from its start serve as addresses ----
void* shared_memory(size_t bytes, size_t alignment);
u32 shared_offset(const void* p);
void shared_read(const void* p, int bytes);
void shared_write(const void* p, int bytes);

// ---- operations of a whole warp: all 32 lanes must come ----
u32 warp_shuffle_xor(u32 value, int lanes);
bool warp_any(bool value);
int warp_uniform(int value);
void load_matrices(u32* (&registers)[4], u32 row_address, bool transposed);
void multiply_16x8x16(float* (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);

// ---- cp.async groups of a thread ----
void copy_16(void* dst_smem, const void* src_gmem, int valid_bytes);
void copy_commit();
void copy_wait(int pending);

// ---- meeting points ----
void block_sync();
void named_sync(int id, int threads);
void named_arrive(int id, int threads);

// ---- mbarriers and TMA ----
void barrier_init(void* barrier, int arrivals);
void barrier_init_fence();
void barrier_arrive(void* barrier);
void barrier_expect_bytes(void* barrier, int bytes);
void barrier_wait(void* barrier, int parity);
void tensor_load(void* dst_smem, const void* map, void* full, int column, int row, int head, int batch);

// ---- wgmma: d is 2 rows of `columns` accumulators; A lies in shared memory or in 4 registers of each thread ----
void wgmma_fence();
void wgmma_shared(float* d, int columns, u64 a, u64 b, bool accumulate);
void wgmma_registers(float* d, int columns, const u32* a, u64 b);
void wgmma_commit();
void wgmma_wait(int pending);
void registers_release(int count);
void registers_take(int count);

// ---- global memory ----
void store_16(void* p, u32 a, u32 b, u32 c, u32 d);
u32 pack_half2(float lo, float hi);
}  // namespace emu
