from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.ir.nodes import Expr, Name
from cubridge.ir.parser import parse_expr
from cubridge.passes.tiles import Box, Interval, Truth, truth
from tests.passes.strategies import predicates, value


def _box(i: tuple[int, int], j: tuple[int, int], lq: int = 40, lk: int = 50) -> Box:
    spans = {"i": i, "j": j, "Lq": (lq, lq), "Lk": (lk, lk)}
    return Box({Name(n): Interval(*s) for n, s in spans.items()})


@given(predicates, st.integers(0, 30), st.integers(0, 6), st.integers(0, 30), st.integers(0, 6))
@settings(max_examples=120, deadline=None)
def test_an_answer_holds_at_every_element(mask: Expr, i: int, rows: int, j: int, keys: int) -> None:
    known = truth(mask, _box((i, i + rows), (j, j + keys)))
    names = {"Lq": 40, "Lk": 50}
    values = {
        bool(value(mask, {**names, "i": a, "j": b})) for a in range(i, i + rows + 1) for b in range(j, j + keys + 1)
    }
    if known is not Truth.UNKNOWN:
        assert values == {known is Truth.ALWAYS}


@pytest.mark.parametrize(
    ("text", "i", "j", "expected"),
    [
        ("j <= i", (64, 127), (0, 63), Truth.ALWAYS),
        ("j <= i", (64, 127), (64, 127), Truth.UNKNOWN),
        ("j <= i", (64, 127), (128, 191), Truth.NEVER),
        ("abs(i - j) < 10", (0, 3), (20, 30), Truth.NEVER),
        ("abs(i - j) < 10", (5, 8), (5, 8), Truth.ALWAYS),
        ("i // 16 == j // 16", (16, 31), (16, 31), Truth.ALWAYS),
        ("i // 16 == j // 16", (16, 31), (32, 40), Truth.NEVER),
        ("j % 8 < 3", (0, 0), (8, 10), Truth.ALWAYS),
        ("j % 8 < 3", (0, 0), (11, 15), Truth.NEVER),
        ("j % 8 < 3", (0, 0), (8, 16), Truth.UNKNOWN),
        ("doc[i] == doc[j]", (0, 3), (0, 3), Truth.UNKNOWN),
        ("(doc[i] == doc[j]) & (j > i)", (8, 9), (0, 3), Truth.NEVER),
    ],
)
def test_masks(text: str, i: tuple[int, int], j: tuple[int, int], expected: Truth) -> None:
    assert truth(parse_expr(text), _box(i, j)) is expected


def test_tabulated_gathers() -> None:
    table = torch.tensor([0, 0, 1, 1, 1, 2])
    inside = Box({Name("i"): Interval(0, 1), Name("j"): Interval(2, 4)}, {"doc": table})
    same = Box({Name("i"): Interval(2, 3), Name("j"): Interval(3, 4)}, {"doc": table})
    mask = parse_expr("doc[i] == doc[j]")
    assert truth(mask, inside) is Truth.NEVER
    assert truth(mask, same) is Truth.ALWAYS
