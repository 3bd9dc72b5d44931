"""Conditions that nothing wrote: they may choose between values that are not used, and nothing else."""

from __future__ import annotations

import pytest

from cubridge.backend.ptx.machine import TensorFlags
from cubridge.ir.diagnostics import CuError
from tests.backend.ptx.test_hostile import TEXT, launched, said

ASKS = "ld.param.u64 %q1, [x];\nmov.u32 %r5, %tid.x;\nmul.wide.u32 %q2, %r5, 4;\nadd.s64 %q1, %q1, %q2;\n"
ASKS += "mov.u32 %r3, 1;\nmov.u32 %r4, 2;\nsetp.eq.s32 %p1, %r2, 0;\n"
DIAMOND = "@%p1 bra A;\nmov.u32 %r3, 5;\n@%p1 bra B;\nadd.s32 %r3, %r3, 1;\nB: bra C;\nA: mov.u32 %r3, 6;\nC:\n"


@pytest.mark.parametrize(
    "body",
    ["@%p1 mov.u32 %r3, 5;\nst.global.u32 [%q1], %r4;", f"{DIAMOND}add.s32 %r3, %r3, 1;\nst.global.u32 [%q1], %r4;"],
)
def test_values_that_are_not_used(body: str) -> None:
    [x] = launched(TEXT.format(ASKS + body))
    assert x[:4] == b"\2\0\0\0"


@pytest.mark.parametrize(
    "body",
    [
        "@%p1 mov.u32 %r3, 5;\nst.global.u32 [%q1], %r3;",
        f"{DIAMOND}st.global.u32 [%q1], %r3;",
        f"{DIAMOND}setp.eq.s32 %p2, %r3, 0;\n@%p2 ret;",
        "@%p1 bra L;\nst.shared.u32 [0], %r4;\nL:",
        "@%p1 bra L;\nld.global.u32 %r3, [%q1];\nL:",
        "@%p1 bra L;\nbar.sync 0;\nL:",
        "L: add.s32 %r3, %r3, 1;\n@%p1 bra L;",
        "@%p1 bra L;\nret;\nL:",
        "@%p1 trap;",
    ],
)
def test_decisions(body: str) -> None:
    found = said(ASKS + body)
    assert found.code == "CU833" and "nothing has written" in found.message


def test_memory_that_may_hold_anything() -> None:
    body = TEXT.format(f"{ASKS}st.global.u32 [%q1], %r2;\nst.global.u32 [%q1+1024], %r4;")
    [x] = launched(body, flags=TensorFlags.OUTPUT | TensorFlags.MAY_BE_UNKNOWN)
    assert x[1024:1028] == b"\2\0\0\0"
    with pytest.raises(CuError, match="a result in global memory"):
        launched(body)
