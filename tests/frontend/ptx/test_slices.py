"""Slices of small kernels: what a stored value is made of, through lanes, shared memory and branches."""

from __future__ import annotations

import pytest
import torch

from cubridge.backend.ptx.tracing import trace
from cubridge.frontend.ptx.formula import Formulas
from cubridge.frontend.ptx.given import Given, Param
from cubridge.frontend.ptx.reach import Reach
from cubridge.frontend.ptx.slices import Slices
from cubridge.frontend.ptx.values import Element, Node, Value
from cubridge.ir.algebra.normal import to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Expr, Name
from cubridge.ir.printer import print_expr
from tests.backend.ptx.foreign import Given as Launch
from tests.backend.ptx.foreign import launch_of, machine

TEXT = """
G(const float* x, float* y) {
    __shared__ float s[32];
    const int t = threadIdx.x, row = blockIdx.x * 8 + t / 4;
    const float a = x[t];
    y += blockIdx.x * 160;
    s[t] = a + 1.f;
    __syncwarp();
    y[t] = s[31 - t] * __shfl_xor_sync(~0u, a, 1);
    float b = 0.f;
    if (a > 2.f) b = 1.f / a;
    y[32 + t] = b;
    y[64 + t] = row < 5 ? a : -1.f;
    y[128 + t] = (blockIdx.x > 3 ? 7 : (int)blockIdx.x * 7) < row ? a : -1.f;
    y[96 + t] = __int_as_float((int)((blockIdx.x + 3) * 0x60000000u) >> 8);
}
"""


def slices(values: torch.Tensor) -> Slices:
    launch = launch_of(TEXT, Launch((values, torch.empty(320)), threads=32, blocks=2))
    found, _ = trace(machine(TEXT), launch, 1, 5.0)
    return Slices(
        Reach(found), Given({0: Param(Poly.atom(Name("@t0")), 8), 8: Param(Poly.atom(Name("@t1")), 8)}, {}, 16)
    )


def stored(found: Slices, at: int, lane: int) -> Value:
    """What a lane puts into element `at` + its own of the output."""
    base = found.reach.trace.windows[1].base
    for index, step in enumerate(found.reach.trace.steps):
        is_store = found.reach.trace.code[step.at].name.startswith("st.global")
        if is_store and int(step.addresses[0][lane]) == base + 4 * (160 + at + lane):
            return found.source(index, 1, lane)
    raise AssertionError(at)


def shown(value: Value) -> str:
    holes: list[str] = []

    def leaf(node: Node) -> Expr | None:
        if node.op == "pack":
            low = node.args[0]
            assert isinstance(low, Node) and isinstance(low.data, Element)
            return Name(f"x{low.data.offset // 4}")
        if node.op == "compare" and all(isinstance(a, Poly) for a in node.args):
            holes.append(" ".join(print_expr(to_expr(a)) for a in node.args if isinstance(a, Poly)))
        return None

    return print_expr(Formulas(leaf).of(value).expr) + "".join(f" [{h}]" for h in holes)


LARGE, SMALL = torch.full((32,), 3.0), torch.full((32,), 1.0)


def test_through_shared_memory_and_lanes() -> None:
    assert shown(stored(slices(LARGE), 0, 3)) == "(x28 + 1.0) * x2"


def test_both_ways_of_a_branch_that_was_not_taken() -> None:
    assert shown(stored(slices(LARGE), 32, 3)) in (
        "where(x3 <= 2.0, 0.0, 1.0 / x3)",
        "where(~(x3 > 2.0), 0.0, 1.0 / x3)",
    )


def test_what_a_branch_left_out_has_no_formula() -> None:
    with pytest.raises(CuError) as caught:
        shown(stored(slices(SMALL), 32, 3))
    assert "left out" in caught.value.diagnostics[0].message and "if (a > 2.f)" in caught.value.diagnostics[0].span.text


def test_integers_over_the_block() -> None:
    """Lane 9 has row 2 of its block."""
    assert shown(stored(slices(LARGE), 64, 9)) == "where(#0, x9, -1.0) [8 * block_x + 2 5]"


def test_a_choice_between_integers_is_the_one_that_was_made() -> None:
    """In this block both are 7."""
    assert "7 * block_x" in shown(stored(slices(LARGE), 128, 9))


def test_an_integer_that_wraps_is_noticed() -> None:
    """The sum is 0x180000000, which 32 bits do not hold: its formula, shifted, is another number."""
    with pytest.raises(CuError) as caught:
        stored(slices(LARGE), 96, 0)
    found = caught.value.diagnostics[0]
    assert found.code == "CU850" and "0x60000000u" in found.span.text
