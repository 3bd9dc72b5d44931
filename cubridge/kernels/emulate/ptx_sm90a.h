// The meaning of ptx_sm90a.cuh and wgmma_sm90a.cuh on a CPU. Stricter than the hardware: see runtime.cpp.
#pragma once

DEVICE void barrier_init(Barrier& b, int arrivals) { emu::barrier_init(&b, arrivals); }
DEVICE void barrier_init_fence() { emu::barrier_init_fence(); }
DEVICE void barrier_arrive(Barrier& b) { emu::barrier_arrive(&b); }
DEVICE void barrier_expect_bytes(Barrier& b, int bytes) { emu::barrier_expect_bytes(&b, bytes); }
DEVICE void barrier_wait(Barrier& b, int parity) { emu::barrier_wait(&b, parity); }
DEVICE void named_sync(int id, int threads) { emu::named_sync(id, threads); }
DEVICE void named_arrive(int id, int threads) { emu::named_arrive(id, threads); }

DEVICE void tma_load_4d(void* dst_smem, const TensorMap& map, Barrier& full, int column, int row, int head, int batch) {
    emu::tensor_load(dst_smem, &map, &full, column, row, head, batch);
}

DEVICE void wgmma_fence() { emu::wgmma_fence(); }
DEVICE void wgmma_commit() { emu::wgmma_commit(); }
template <int PENDING> DEVICE void wgmma_wait() { emu::wgmma_wait(PENDING); }
template <int N> DEVICE void wgmma_k16_ss(float (&d)[2][N], u64 a, u64 b, int accumulate) {
    emu::wgmma_shared(&d[0][0], N, a, b, accumulate != 0);
}
template <int N> DEVICE void wgmma_k16_rs(float (&d)[2][N], const u32 (&a)[4], u64 b) {
    emu::wgmma_registers(&d[0][0], N, a, b);
}

template <int REGISTERS> DEVICE void registers_release() { emu::registers_release(REGISTERS); }
template <int REGISTERS> DEVICE void registers_take() { emu::registers_take(REGISTERS); }
