"""The part of a kernel that a wrong row begins in."""

from __future__ import annotations

import pytest

from cubridge.engine.values.launch import Launch
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, RowReduction, Shape
from cubridge.judge.blame import blame
from tests.engine.test_values import inputs, variant
from tests.support.golden_texts import GOLDEN_NAMES

SPEC = AttentionSpec(
    score=parse_expr("s * D ** -0.5"),
    mask=parse_expr("j < Lk - 5"),
    weight=parse_expr("exp(x - m)"),
    rows=(RowReduction("l", "sum", parse_expr("j < Lk - 5"), parse_expr("exp(x - m)")),),
    finalize=parse_expr("acc / l"),
    shift=True,
    lse=parse_expr("m + log(l)"),
    kv_head=parse_expr("h // (Hq // Hk)"),
)
SHAPE = Shape(1, 2, 1, 140, 300, 64)
MASK = ("s = where(j < Lk, s, -inf)", "s = where(j < Lk - 5, s, -inf)")
SCORE = "def score(s, kv_start, tile):\n    pass"
RANGE = ("full_hi = Lk // BLOCK_KV", "full_hi = (Lk - 5) // BLOCK_KV")


@pytest.mark.parametrize("name", GOLDEN_NAMES)
@pytest.mark.parametrize(
    "change,part,message",
    [
        (None, "normalizer", "come"),
        (("s = where(j < Lk, s, -inf)", "s = where(j < Lk - 4, s, -inf)"), "mask", "key 295 is visible"),
        (("hi = ceil_div(Lk, BLOCK_KV)", "hi = Lk // BLOCK_KV"), "kv_range", "never visited"),
        (("full_hi = Lk // BLOCK_KV", "full_hi = ceil_div(Lk, BLOCK_KV)"), "kv_range", "walked as full"),
        ((SCORE, SCORE.replace("pass", "s = s * 1.1")), "score", "scores"),
        ((SCORE, SCORE.replace("pass", "s = s + 9.0")), "normalizer", "come"),
        (("row.m = m_new", "row.m = m_new + 1.0"), "normalizer", "come"),
    ],
)  # fmt: skip
def test_the_first_part_that_differs_is_named(
    name: str, change: tuple[str, str] | None, part: str, message: str
) -> None:
    changes = [c for c in (MASK, RANGE) if change is None or c[0] != change[0]]
    kernel = variant(name, *changes, *([change] if change else []))
    found = blame(kernel, SPEC, inputs(SHAPE), Launch(SHAPE, values={"GROUP_HEADS": 2}), (0, 1, 133))
    assert found.part == part
    assert message in found.message
