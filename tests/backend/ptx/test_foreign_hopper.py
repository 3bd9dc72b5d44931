"""Warpgroups and clusters in other styles: probabilities kept in shared memory, data handed between CTAs of a cluster."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.backend.ptx.foreign import Given, fault, run

# 8 x 8 halves lie as one block of 128 bytes; blocks along k are 128 bytes apart, along rows 256
TWO_PRODUCTS = """
__device__ u64 matrix(const void* p) { return (u64)((at(p) & 0x3ffff) >> 4) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32; }
__device__ int place(int row, int k) { return row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8; }
__device__ u16 bf16(float x) { u32 u = __float_as_uint(x); return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16); }
G(const u16* a, const u16* b, const u16* c, float* y) {
    __shared__ alignas(128) u16 sa[64 * 16], sb[16 * 16], sc[8 * 16], sp[64 * 16];
    const int t = threadIdx.x;
    for (int n = t; n < 64 * 16; n += 128) sa[place(n / 16, n % 16)] = a[n];
    for (int n = t; n < 16 * 16; n += 128) sb[place(n / 16, n % 16)] = b[n];
    for (int n = t; n < 8 * 16; n += 128) sc[place(n / 16, n % 16)] = c[n];
    asm volatile("fence.proxy.async;" ::: "memory");  // inputs
    __syncthreads();  // inputs
    float d[8], o[4];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 0, 1, 1, 0, 0;"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7])
                 : "l"(matrix(sa)), "l"(matrix(sb)));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");  // first
    asm volatile("wgmma.wait_group.sync.aligned 0;"  // first
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) :: "memory");
    for (int x = 0; x < 8; ++x) {
        const int row = t / 32 * 16 + t % 32 / 4 + x / 2 % 2 * 8, column = x / 4 * 8 + t % 4 * 2 + x % 2;
        sp[place(row, column)] = bf16(d[x]);
    }
    asm volatile("fence.proxy.async;" ::: "memory");  // probabilities
    __syncthreads();  // probabilities
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 0, 1, 1, 0, 0;"
                 : "=f"(o[0]), "=f"(o[1]), "=f"(o[2]), "=f"(o[3]) : "l"(matrix(sp)), "l"(matrix(sc)));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;"  // second
                 : "+f"(o[0]), "+f"(o[1]), "+f"(o[2]), "+f"(o[3]) :: "memory");
    for (int x = 0; x < 4; ++x) y[(t / 32 * 16 + t % 32 / 4 + x / 2 * 8) * 8 + t % 4 * 2 + x % 2] = o[x];
    sp[t] = 0;
}
"""


def halves(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def given() -> Given:
    return Given((halves(64, 16), halves(16, 16), halves(8, 16), torch.empty(64, 8)))


def without(statement: str, remark: str) -> str:
    """The kernel without the statement that a remark marks."""
    [line] = [x for x in TWO_PRODUCTS.split("\n") if x.endswith(f"// {remark}") and statement in x]
    return TWO_PRODUCTS.replace(line, line.replace(statement, ""))


def test_probabilities_in_shared_memory() -> None:
    launch = given()
    a, b, c = (t.float() for t in launch.tensors[:3])
    torch.testing.assert_close(run(TWO_PRODUCTS, launch), (a @ b.T).bfloat16().float() @ c.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("statement", "remark", "said"),
    [
        ("fence.proxy.async;", "inputs", "without fence.proxy.async"),
        ("__syncthreads();", "inputs", "without a wait that orders it after the write"),
        ("fence.proxy.async;", "probabilities", "without fence.proxy.async"),
        ("__syncthreads();", "probabilities", "without a wait that orders it after the write"),
        ("wgmma.commit_group.sync.aligned;", "first", "an accumulator of an unfinished wgmma is read"),
        ("wgmma.wait_group.sync.aligned 0;", "first", "an accumulator of an unfinished wgmma is read"),
        ("wgmma.wait_group.sync.aligned 0;", "second", "an accumulator of an unfinished wgmma is read"),
    ],
)
def test_products_without_an_order(statement: str, remark: str, said: str) -> None:
    found = fault(without(statement, remark), given())
    assert found.code == "CU833" and said in found.message


PAIR = """
__device__ u32 other(u32 address, u32 rank) {
    u32 mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}
__device__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) kernel(const float* x, float* y) {
    __shared__ float s[32];
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int t = threadIdx.x;
    s[t] = x[rank * 32 + t];
    meet();  // before
    float mine;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(mine) : "r"(other(at(&s[t]), rank ^ 1)) : "memory");
    y[rank * 32 + t] = mine;
    meet();  // after
    s[t] = 0;
}
"""


def pair() -> Given:
    return Given((torch.arange(64.0), torch.empty(64)), threads=32, blocks=2, cluster=2)


def test_blocks_of_a_cluster_read_each_other() -> None:
    assert torch.equal(run(PAIR, pair()), torch.arange(64.0).roll(32))


@pytest.mark.parametrize("which", ["before", "after"])
def test_blocks_of_a_cluster_that_do_not_meet(which: str) -> None:
    assert fault(PAIR.replace(f"meet();  // {which}", ""), pair()).code == "CU833"


def test_a_warp_that_leaves_its_cluster_alone() -> None:
    found = fault(PAIR.replace("meet();  // after", "if (rank == 0) { meet(); }"), pair())
    assert found.code in ("CU832", "CU833")
