"""Pipelines in other styles: templates around cp.async, and a warp that loads tiles by TMA for a warpgroup that multiplies them."""

from __future__ import annotations

import pytest
import torch

from tests.backend.ptx.foreign import Given, fault, run

COPIES = """
template <int BYTES> __device__ void copy(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(at(to)), "l"(from), "n"(BYTES) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ void arrived() {
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
    __syncthreads();  // arrived
}
G(const float4* x, float* y) {
    __shared__ float4 s[2][128];
    const int t = threadIdx.x;
    float sum = 0;
    copy<16>(&s[0][t], x + t);
    commit();  // first
    for (int n = 0; n < 4; ++n) {
        if (n < 3) copy<16>(&s[(n + 1) % 2][t], x + (n + 1) * 128 + t);
        commit();
        arrived<1>();
        sum += s[n % 2][127 - t].x;
        __syncthreads();  // read
    }
    y[t] = sum;
}
"""


def copies() -> Given:
    x = torch.randn(4, 128, 4, generator=torch.Generator().manual_seed(0))
    return Given((x, torch.empty(128)))


def test_a_pipeline_of_templates() -> None:
    given = copies()
    torch.testing.assert_close(run(COPIES, given), given.tensors[0][:, :, 0].sum(0).flip(0))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("arrived<1>();", "arrived<2>();"),
        ("__syncthreads();  // arrived", ""),
        ("__syncthreads();  // read", ""),
        ("commit();\n        a", "a"),
    ],
)
def test_a_pipeline_without_an_order(old: str, new: str) -> None:
    assert old in COPIES
    assert fault(COPIES.replace(old, new), copies()).code == "CU833"


ROLES = """
struct alignas(64) Map { u64 opaque[16]; };
constexpr int TILES = 5, SLOTS = 2;
// rows of 32 bytes, swizzled over 8 of them
__device__ u64 matrix(const void* p) { return (u64)((at(p) & 0x3ffff) >> 4) | (u64)(256 >> 4) << 32 | 3ull << 62; }
__device__ void wait(const u64& barrier, int parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra L; }"
                 :: "r"(at(&barrier)), "r"(parity) : "memory");
}
__device__ void load(const Map& map, const u16* to, const u64& barrier, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 :: "r"(at(to)), "l"(&map), "r"(at(&barrier)), "r"(0), "r"(row) : "memory");
}
G(const __grid_constant__ Map x, const __grid_constant__ Map w, const u16*, const u16*, float* y) {
    __shared__ alignas(1024) u16 sx[SLOTS][64 * 16], sw[SLOTS][8 * 16];
    __shared__ u64 full[SLOTS], empty[SLOTS];
    const int t = threadIdx.x;
    if (t == 0) {
        for (int s = 0; s < SLOTS; ++s) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&full[s])) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(at(&empty[s])) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (t >= 128) {
        for (int n = 0; t == 128 && n < TILES; ++n) {
            wait(empty[n % SLOTS], n / SLOTS % 2 ^ 1);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2304;" :: "r"(at(&full[n % SLOTS])) : "memory");
            load(x, sx[n % SLOTS], full[n % SLOTS], n * 64);
            load(w, sw[n % SLOTS], full[n % SLOTS], n * 8);
        }
        return;
    }
    float d[4] = {};
    for (int n = 0; n < TILES; ++n) {
        wait(full[n % SLOTS], n / SLOTS % 2);
        for (int k = 0; k < 4; ++k) d[k] *= 0.5f;
        asm volatile("wgmma.fence.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) :: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(matrix(sx[n % SLOTS])), "l"(matrix(sw[n % SLOTS])));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) :: "memory");
        if (t % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(&empty[n % SLOTS])) : "memory");
    }
    for (int k = 0; k < 4; ++k) y[(t / 32 * 16 + t % 32 / 4 + k / 2 * 8) * 8 + t % 4 * 2 + k % 2] = d[k];
}
"""


def roles() -> Given:
    x, w = (torch.randn(5 * n, 16, generator=torch.Generator().manual_seed(n)).bfloat16() for n in (64, 8))
    return Given((x, w, torch.empty(64, 8)), threads=160, maps=((0, (64, 16), 32), (1, (8, 16), 32)))


def test_a_warp_that_loads_and_a_warpgroup_that_multiplies() -> None:
    given = roles()
    x, w = (t.float().view(5, -1, 16) for t in given.tensors[:2])
    weights = torch.tensor([0.5 ** (4 - n) for n in range(5)])
    right = ((x @ w.mT) * weights[:, None, None]).sum(0)
    torch.testing.assert_close(run(ROLES, given), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("wait(empty[n % SLOTS], n / SLOTS % 2 ^ 1);", "", "CU83[34]"),
        ("wait(full[n % SLOTS], n / SLOTS % 2);", "", "CU833"),
        ("wait(full[n % SLOTS], n / SLOTS % 2);", "wait(full[n % SLOTS], 0);", "CU83[34]"),
        ('"wgmma.wait_group.sync.aligned 0;"', '""', "CU833"),
        ('"wgmma.fence.sync.aligned;"', '""', "CU833"),
        ("if (t % 32 == 0) asm", "if (t == 0) asm", "CU832"),
        ("2304", "2048", "CU83[23]"),
        ("__syncthreads();", "", "CU833"),
        ("full[n % SLOTS], n * 8", "full[(n + 1) % SLOTS], n * 8", "CU83[23]"),
    ],
)
def test_roles_without_an_order(old: str, new: str, code: str) -> None:
    assert old in ROLES
    found = fault(ROLES.replace(old, new), roles())
    assert found.code[:4] == code[:4] and found.code[4] in code[4:]
