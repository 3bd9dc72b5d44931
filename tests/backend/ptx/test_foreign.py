"""Kernels of other styles: right ones give the right numbers, and each wrong twin is caught with its line."""

from __future__ import annotations

import pytest
import torch

from cubridge.ir.diagnostics import CuError
from tests.backend.ptx.foreign import Given, fault, run


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def line(text: str) -> str:
    return text.split("//")[0].strip()


# ---- __syncthreads ----------------------------------------------------------------------------------------------------

SUM = """
G(const float* x, float* sum) {
    __shared__ float s[128];
    const int t = threadIdx.x;
    s[t] = x[t];
    for (int n = 64; n > 0; n /= 2) {
        __syncthreads();
        if (t < n) s[t] += s[t + n];
    }
    if (t == 0) *sum = s[0];
}
"""


def test_a_tree_of_sums() -> None:
    x = numbers(128)
    assert torch.allclose(run(SUM, Given((x, torch.empty(1)))), x.sum())


def test_a_tree_of_sums_without_its_barrier() -> None:
    found = fault(SUM.replace("__syncthreads();", ""), Given((numbers(128), torch.empty(1))))
    assert found.code == "CU833" and line(found.span.text) == "if (t < n) s[t] += s[t + n];"


# ---- lanes of a warp --------------------------------------------------------------------------------------------------

EXCHANGE = """
G(const float* x, float* y) {
    __shared__ float s[32];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp();
    y[t] = s[31 - t];
}
"""


def test_lanes_that_meet() -> None:
    x = numbers(32)
    assert torch.equal(run(EXCHANGE, Given((x, torch.empty(32)), threads=32)), x.flip(0))


def test_lanes_that_count_on_lockstep() -> None:
    found = fault(EXCHANGE.replace("__syncwarp();", ""), Given((numbers(32), torch.empty(32)), threads=32))
    assert found.code == "CU833" and line(found.span.text) == "y[t] = s[31 - t];"
    assert "the write" in found.notes[0].message and line(found.notes[0].span.text) == "s[t] = x[t];"


def test_a_shuffle_orders_nothing() -> None:
    shuffle = EXCHANGE.replace("__syncwarp();", "if (__shfl_xor_sync(~0u, t, 1) == 99) y[0] = 0;")
    assert fault(shuffle, Given((numbers(32), torch.empty(32)), threads=32)).code == "CU833"


HALVES = """
G(const u16* x, u16* y) {
    __shared__ u16 s[64];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[63 - t];
}
"""


def test_bytes_of_one_word_are_told_apart() -> None:
    x = torch.arange(64, dtype=torch.int16)
    assert torch.equal(run(HALVES, Given((x, x.clone()), threads=64)), x.flip(0))
    wrong = HALVES.replace("s[t] = x[t];", "s[t] = x[t]; if (t < 32) s[t + 1] = x[t + 1];")
    assert fault(wrong, Given((x, x.clone()), threads=64)).code == "CU833"


# ---- cp.async ---------------------------------------------------------------------------------------------------------

COPY = """
G(const float4* x, float4* y) {
    __shared__ float4 s[128];
    const int t = threadIdx.x;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at(&s[t])), "l"(x + t) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    y[t] = s[127 - t];
}
"""


def test_copies() -> None:
    x = numbers(128, 4)
    assert torch.equal(run(COPY, Given((x, torch.empty(128, 4)))), x.flip(0))


@pytest.mark.parametrize("statement", ["cp.async.commit_group;", "cp.async.wait_group 0;", "__syncthreads();"])
def test_copies_without_an_order(statement: str) -> None:
    found = fault(COPY.replace(statement, ""), Given((numbers(128, 4), torch.empty(128, 4))))
    assert found.code == "CU833" and line(found.span.text) == "y[t] = s[127 - t];"


# ---- what nobody wrote ------------------------------------------------------------------------------------------------


def test_shared_memory_that_nobody_wrote() -> None:
    found = fault(
        EXCHANGE.replace("s[t] = x[t];", "if (t < 31) s[t] = x[t];"), Given((numbers(32), torch.empty(32)), threads=32)
    )
    assert (
        found.code == "CU833"
        and "nothing has written" in found.message
        and line(found.span.text) == "y[t] = s[31 - t];"
    )


# ---- between blocks ---------------------------------------------------------------------------------------------------

LAST = """
G(const float* x, int* count, float* y) {
    float* part = y + 1;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        const int before = atomicAdd(count, 1);
        if (before == (int)gridDim.x - 1) {
            *count = 0;
            __threadfence();
            float sum = 0;
            for (int b = 0; b < (int)gridDim.x; ++b) sum += ((volatile float*)part)[b];
            y[0] = sum;
        }
    }
}
"""


# ---- TMA, mbarriers, wgmma --------------------------------------------------------------------------------------------

TMA = """
struct alignas(64) Map { u64 opaque[16]; };
G(const __grid_constant__ Map from, const __grid_constant__ Map to, const float* x, float* y) {
    __shared__ alignas(1024) float s[16 * 32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2048;" :: "r"(at(&full)) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                     :: "r"(at(s)), "l"(&from), "r"(at(&full)), "r"(0), "r"(8) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra L; }"
                 :: "r"(at(&full)) : "memory");
    for (int n = threadIdx.x; n < 512; n += blockDim.x) s[n] += 1;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                     :: "l"(&to), "r"(at(s)), "r"(0), "r"(0) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    s[threadIdx.x] = 0;
}
"""


def tma(rows: int = 20) -> Given:
    return Given((numbers(rows, 32), torch.empty(16, 32)), maps=((0, (16, 32), 128), (1, (16, 32), 128)))


def test_a_box_in_and_out() -> None:
    given = tma()
    right = torch.zeros(16, 32)
    right[:12] = given.tensors[0][8:]
    assert torch.equal(run(TMA, given), right + 1)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("fence.mbarrier_init.release.cluster;", "CU833"),
        ("fence.proxy.async;", "CU833"),
        ("cp.async.bulk.commit_group;", "CU833"),
        ("cp.async.bulk.wait_group 0;", "CU833"),
        ("@!p bra L;", "CU833"),
        (", 2048;", "CU833"),
    ],
)
def test_a_box_without_an_order(statement: str, code: str) -> None:
    found = fault(TMA.replace(statement, ", 0;" if "2048" in statement else ""), tma())
    assert found.code == code


def test_a_barrier_that_nobody_completes() -> None:
    found = fault(TMA.replace(", 2048;", ", 4096;"), tma())
    assert found.code == "CU832" and "lacks 0 arrivals and 2048 bytes" in found.notes[0].message


# ---- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("y[t] = x[t + 1];", "CU835", "0 bytes past the end of `t0`"),
        ("y[t] = x[t - 1];", "CU835", "4 bytes before the start of `t0`"),
        ("const_cast<float*>(x)[t] = 0;", "CU835", "which is an input"),
        ("y[t] = *(const float*)((u64)t * 4);", "CU835", "no tensor's"),
        ("y[t] = *(const float*)((const char*)x + 2);", "CU834", "not aligned"),
        ("y[t] = x[t] / (float)(t / (int)threadIdx.y);", "CU836", "divided by zero"),
        ("if (t == 3) y[0] = x[0]; else y[0] = x[1];", "CU833", "overwritten"),
        ("__trap();", "CU836", "trap"),
        ("while (((volatile float*)x)[0] != 12345.f) {}", "CU837", "does not end"),
    ],
)
def test_wild_kernels(statement: str, code: str, message: str) -> None:
    text = f"G(const float* x, float* y) {{ const int t = threadIdx.x; {statement} }}"
    with pytest.raises(CuError) as caught:
        run(text, Given((numbers(32), torch.empty(32)), threads=32), seconds=0.5)
    assert caught.value.diagnostics[0].code == code and message in caught.value.diagnostics[0].message


def blocks() -> Given:
    return Given((numbers(4), torch.zeros(1, dtype=torch.int32), torch.empty(5)), threads=32, blocks=4, zeros=(1,))


def test_the_last_block_adds_what_all_wrote() -> None:
    """Fence and atomic order it, and nothing else does."""
    given = blocks()
    found = run(LAST, given)
    assert torch.allclose(found[0], given.tensors[0].sum()) and torch.equal(found[1:], given.tensors[0])


@pytest.mark.parametrize("fence", [0, 1])
def test_the_last_block_without_a_fence(fence: int) -> None:
    parts = LAST.split("__threadfence();")
    wrong = (
        parts[0] + ("__threadfence();" if fence else "") + parts[1] + ("" if fence else "__threadfence();") + parts[2]
    )
    found = fault(wrong, blocks())
    assert found.code == "CU833" and "part)[b]" in found.span.text and "part[blockIdx.x] =" in found.notes[0].span.text


WAITS = """
G(const float* x, int* flag, float* y) {
    if (threadIdx.x) return;
    if (blockIdx.x == 1) {
        y[1] = x[0];
        __threadfence();
        atomicExch(flag, 1);
    } else {
        while (((volatile int*)flag)[0] == 0) {}
        __threadfence();
        y[0] = y[1];
        atomicExch(flag, 0);
    }
}
"""


def test_a_block_that_waits_for_another() -> None:
    given = Given((numbers(1), torch.zeros(1, dtype=torch.int32), torch.empty(2)), threads=32, blocks=2, zeros=(1,))
    assert torch.equal(run(WAITS, given), given.tensors[0].expand(2))
