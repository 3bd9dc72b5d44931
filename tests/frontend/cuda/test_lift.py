"""Shipped kernels lift to verified CuIR that shows what their text says."""

from __future__ import annotations

import time

import pytest

from cubridge.ir.nodes import For, Gemm, Kernel, Op, RegionCall, Stmt
from cubridge.ir.parser import parse
from cubridge.ir.printer import print_function, print_stmts, to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.source_map import SOURCE_REGIONS
from cubridge.ir.types import DType
from cubridge.ir.walk import walk
from cubridge.verify.verifier import verify
from tests.frontend.cuda.kernels import ARCHITECTURES, kernel_text, lift_text, shipped

INSTANCES = [(d, h) for d in (DType.BF16, DType.F16) for h in (64, 128)]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "head_dim"), INSTANCES)
def test_lifts_to_cuir_that_parses_back_and_verifies(arch: str, dtype: DType, head_dim: int) -> None:
    kernel = shipped(arch, dtype, head_dim).kernel
    assert parse(SourceFile.from_text("kernel.cuir", to_text(kernel))) == kernel
    assert verify(kernel) == ()
    assert kernel.constant("HEAD_DIM") == head_dim


def test_both_kernels_have_the_same_regions() -> None:
    assert shipped("sm80").kernel.regions == shipped("sm90a").kernel.regions


def test_main_loop_of_sm80() -> None:
    loop = next(s for s in shipped("sm80").kernel.body if isinstance(s, For))
    assert print_stmts((loop,)).splitlines() == [
        "for t in range(0, count):",
        "    n = key_tile(keys, t)",
        "    s = register(f32, BLOCK_Q, BLOCK_KV)",
        "    probs = register(bf16, BLOCK_Q, BLOCK_KV)",
        "    wait_group(1)",
        "    block_sync()",
        "    if t + 1 < count:",
        "        copy_async(smem.k[slot ^ 1], p.k[tile.b, tile.hk], row=key_tile(keys, t + 1) * BLOCK_KV)",
        "    commit()",
        "    s = gemm(smem.q, smem.k[slot].T)",
        "    score(s, n * BLOCK_KV, tile)",
        "    if key_masked(keys, t):",
        "        mask(s, n * BLOCK_KV, tile)",
        "    row_update(s, row, n * BLOCK_KV, tile)",
        "    for r in range(0, ROWS):",
        "        row_probs(s, row, r, n * BLOCK_KV, tile)",
        "    cast(probs, s)",
        "    row_rescale(o, row, tile)",
        "    wait_group(1)",
        "    block_sync()",
        "    if t + 1 < count:",
        "        copy_async(smem.v[slot ^ 1], p.v[tile.b, tile.hk], row=key_tile(keys, t + 1) * BLOCK_KV)",
        "    commit()",
        "    o += gemm(probs, smem.v[slot])",
        "    slot = slot ^ 1",
    ]


def test_regions_are_tile_expressions() -> None:
    kernel = shipped("sm90a").kernel
    assert print_function(kernel.region("mask")).splitlines()[-1] == "    s = where(j < Lk, s, -inf)"
    assert print_function(kernel.region("row_probs")).splitlines()[2:] == [
        "    s = exp2(s * p.exponent_scale - row.m_exponent)",
        "    row.l = row.l * row.o_scale + partial_rowsum(s)",
    ]
    assert [f.name for f in kernel.row_state if type(f.type).__name__ == "Partial"] == ["l"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_statement_has_its_bytes(arch: str) -> None:
    kernel, text = shipped(arch).kernel, kernel_text(arch)
    for stmt in _statements(kernel):
        assert stmt.span.file.name == "kernel.cu"
        assert stmt.span.text in text
        if isinstance(stmt, RegionCall):
            assert stmt.span.text.startswith(f"{stmt.region}(")
        if isinstance(stmt, Gemm):
            assert stmt.span.text.startswith("gemm_")
        if isinstance(stmt, Op):
            assert stmt.span.text.endswith(")")


def _statements(kernel: Kernel) -> list[Stmt]:
    return [n for n in walk(kernel) if isinstance(n, Stmt)]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_source_map_has_every_region(arch: str) -> None:
    regions = shipped(arch).source_map.regions
    assert tuple(r.name for r in regions) == SOURCE_REGIONS
    for region in regions:
        before = kernel_text(arch).encode()[: region.span.start].decode().splitlines()[-1]
        assert before.strip() == f"// @region {region.name}"
        assert region.span.text == "" or region.span.text.endswith("\n")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_lifting_is_fast(arch: str) -> None:
    def seconds() -> float:
        start = time.process_time()
        lift_text(arch, kernel_text(arch))
        return time.process_time() - start

    assert min(seconds() for _ in range(4)) < 0.3
