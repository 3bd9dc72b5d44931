"""The kernels of a backward pass lift; what a text must not say of them is refused."""

from __future__ import annotations

from typing import Final

import pytest

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.ir.diagnostics import CuError
from cubridge.ir.families import FAMILIES
from cubridge.ir.nodes import Gemm, Kernel, Op, RegionCall
from cubridge.ir.source import SourceFile
from cubridge.ir.walk import walk
from tests.support.backward import BACKWARD, LAST, PAIRS, ROWS, lifted_backward


@pytest.mark.parametrize("name", BACKWARD)
def test_every_statement_has_its_bytes(name: str) -> None:
    text = choose_kernel(name).text.source.text
    for node in walk(lifted_backward(name)):
        if isinstance(node, RegionCall | Gemm | Op):
            assert node.span.text in text
            assert node.span.text.endswith(")")


def test_each_is_of_its_family() -> None:
    kernels = [lifted_backward(name) for name in BACKWARD]
    assert [k.family for k in kernels] == ["backward_rows", "backward", "backward_dq"]
    for kernel in kernels:
        assert [r.name for r in kernel.regions] == [*FAMILIES[kernel.family].regions]


def lifted(name: str, old: str, new: str) -> Kernel:
    """A text with a change, lifted."""
    chosen = choose_kernel(name)
    assert old in chosen.text.source.text
    changed = chosen.text.source.text.replace(old, new, 1)
    return lift_kernel(chosen, "bf16", 128, SourceFile.from_text("kernel.cu", changed)).kernel


KEPT: Final = """    // @region score_state
    float slope[ROWS][S_COLS];
"""


def test_what_is_kept_of_a_score() -> None:
    kernel = lifted(PAIRS, "    // @region score_state\n", KEPT)
    assert [str(f.type.dtype) for f in kernel.score_state] == ["f32"]  # pyright: ignore
    assert "score_state(\n    slope=Element(f32),\n)\n" in str(kernel)


@pytest.mark.parametrize(
    ("name", "code", "old", "new"),
    [
        (PAIRS, "CU422", "// @region probs_grad\n", "// @region row_probs\n"),
        (PAIRS, "CU427", "if (leader) barrier_arrive(smem.ds_empty);", "if (leader) async_proxy_fence();"),
        (PAIRS, "CU428", "p.delta, p.heads_q, tile.b, tile.h, p.q_blocks * BLOCK_Q", "p.delta, p.heads_q, tile.b, tile.h, p.len_q"),
        (PAIRS, "CU423", "float dp[ROWS][S_COLS], dq[ROWS][DQ_COLS]", "float dp[ROWS][S_COLS], dq[ROWS][DQ_COLS][1]"),
        (PAIRS, "CU425", "const int j = tile.kv_start + frag_row(r);", "const int j = tile.kv_start + frag_col(r);"),
        (ROWS, "CU425", "lse[r] = lse[r] == -INFINITY", "lse[0] = lse[r] == -INFINITY"),
        (LAST, "CU428", "head_view(p.dq, p.dq_batch", "head_view(p.dq, p.dq_head"),
    ],
)  # fmt: skip
def test_texts_that_are_refused(name: str, code: str, old: str, new: str) -> None:
    with pytest.raises(CuError) as error:
        lifted(name, old, new)
    assert code in {d.code for d in error.value.diagnostics}, [d.message for d in error.value.diagnostics]
