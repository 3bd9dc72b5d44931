"""`cuirc verify` of kernels that compute something else: refused, at the statement or region where that begins."""

from __future__ import annotations

import pytest

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.verify import examine_ir
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from tests.support.edit_text import edited

WRONG = {
    "tile.hk = tile.h": ("tile.hk = tile.h // (Hq // Hk)", "tile.hk = tile.h % Hk"),
    "exponent_scale=": ("D ** -0.5 * LOG2E", "D ** -0.5"),
    "def key_masked": ("full_hi = Lk // BLOCK_KV", "full_hi = ceil_div(Lk, BLOCK_KV)"),
    "s = where(j": ("s = where(j < Lk, s, -inf)", "s = where(j <= Lk, s, -inf)"),
    "def row_update": ("row.o_scale = exp2", "row.o_scale = 2.0 * exp2"),
    "def row_finalize": ("log2(l)) * LN2", "log2(l))"),
}
"""What the message points at, and the change behind it."""


@pytest.mark.parametrize("at", WRONG)
def test_where_a_wrong_value_begins(at: str) -> None:
    (fault,) = examine_ir(edited("sm80", WRONG[at]))
    assert fault.code == "CU844" and at in fault.span.file.line(fault.span.location[0])


def test_a_reference_of_exponents_that_stays_behind() -> None:
    """Weights pass the range of fp32 where scores rise far enough."""
    (fault,) = examine_ir(edited("sm80", ("<= 8.0", "<= 150.0")))
    assert "where sums hold 2^64" in fault.notes[0].message
    assert "def row_update" in fault.span.file.line(fault.span.location[0])


def test_a_host_formula_without_a_value_at_long_lengths() -> None:
    text = to_text(lift_kernel(choose_kernel("sm80"), "bf16", 64).kernel)
    old, new = "maximum(1, 2 ** 25 // (4 * maximum(Lk, 1) * D))", "(2 ** 25 // (4 * Lk * D))"
    assert old in text
    with pytest.raises(CuError, match=r"`p.group_heads \* p.q_blocks` is 0"):
        raise CuError(*examine_ir(parse(SourceFile.from_text("kernel.cuir", text.replace(old, new)))))
