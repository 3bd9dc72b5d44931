// One wrapper per instruction that sm_90a adds to ptx_sm80.cuh: TMA, mbarrier, wgmma groups, named barriers, register budgets.
// emulate/ptx_sm90a.h gives the same names their meaning on a CPU.
#pragma once
#include "common/ptx_sm80.cuh"

struct alignas(64) TensorMap { u64 opaque[16]; };  // a CUtensorMap, made by the host
struct Barrier { u64 state; };                     // an mbarrier in shared memory

#ifdef CUBRIDGE_EMULATE
#include "emulate/ptx_sm90a.h"
#else
#include "common/wgmma_sm90a.cuh"

// ---- barriers with phases: a phase ends when `arrivals` have come and the expected bytes have landed ----
DEVICE void barrier_init(Barrier& b, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(smem_address(&b)), "r"(arrivals) : "memory");
}
// makes initialised barriers visible to the asynchronous proxy; before the block's first synchronisation
DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void barrier_arrive(Barrier& b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem_address(&b)) : "memory");
}
// one arrival; the phase then also waits for this many bytes
DEVICE void barrier_expect_bytes(Barrier& b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(smem_address(&b)), "r"(bytes) : "memory");
}
// returns when the phase of this parity has ended; on a fresh barrier parity 1 has
DEVICE void barrier_wait(Barrier& b, int parity) {
    asm volatile("{\n.reg .pred done;\nTRY:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nbra TRY;\nDONE:\n}"
                 :: "r"(smem_address(&b)), "r"(parity) : "memory");
}
// Barriers 1 to 15 by number, counting threads: `named_sync` arrives and waits, `named_arrive` goes on.
DEVICE void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }
DEVICE void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory"); }

// ---- TMA: one box of a [batch, head, row, column] tensor; what lies outside the tensor arrives as zeros ----
DEVICE void tma_load_4d(void* dst_smem, const TensorMap& map, Barrier& full, int column, int row, int head, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
                 :: "r"(smem_address(dst_smem)), "l"(&map), "r"(smem_address(&full)), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

// ---- wgmma groups, per warpgroup ----
// orders register accesses before it against the wgmma instructions after it
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// returns when at most PENDING groups are unfinished
template <int PENDING> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory"); }

// ---- register budgets: the sum over the warpgroups must fit what the block held at launch; ptxas does not check it ----
template <int REGISTERS> DEVICE void registers_release() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(REGISTERS)); }
template <int REGISTERS> DEVICE void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(REGISTERS)); }
#endif
