"""Sums in normal form, signs of integers, and flat indices of captured tensors."""

from __future__ import annotations

import itertools

import pytest

from cubridge.frontend.cuda.affine import cancel_anchors, plus_one
from cubridge.frontend.cuda.captured import captured_indices
from cubridge.frontend.cuda.signs import Signs
from cubridge.frontend.cuda.values import Scalar
from cubridge.ir.contract import CapturedAddress
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Binary, Name
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from cubridge.ir.source import NOWHERE
from cubridge.ir.types import DType

SUMS = (
    ("tile.q_start + (i - tile.q_start)", "i"),
    ("(i - tile.q_start) + Lk - Lq + tile.q_start", "i + Lk - Lq"),
    ("4 + kv_start + (j - kv_start)", "j + 4"),
    ("2 * (i - tile.q_start) + 2 * tile.q_start", "2 * i"),
    ("kv_start - (j - kv_start)", "kv_start - (j - kv_start)"),
    ("tile.q_start + 64", "tile.q_start + 64"),
    ("(j - kv_start) - (i - tile.q_start)", "j - kv_start - (i - tile.q_start)"),
)


@pytest.mark.parametrize(("text", "expected"), SUMS)
def test_anchors_cancel(text: str, expected: str) -> None:
    assert print_expr(cancel_anchors(parse_expr(text))) == expected


def test_plus_one() -> None:
    assert [print_expr(plus_one(parse_expr(x), Name("x"))) for x in ("n - 1", "n", "n - 2")] == [
        "n",
        "n + 1",
        "n - 2 + 1",
    ]


SIGNS = Signs(
    {"BLOCK_Q": 128, "BIAS": -1}.get,
    frozenset(("work",)),
    {
        parse_expr("p.q_blocks"): parse_expr("ceil_div(Lq, BLOCK_Q)"),
        parse_expr("p.group"): parse_expr("minimum(B * Hq, maximum(1, 9 // Lk) * (Hq // Hk))"),
        parse_expr("p.shift"): parse_expr("Lk - Lq"),
        parse_expr("first"): parse_expr("work // (p.group * p.q_blocks) * p.group"),
        parse_expr("rest"): parse_expr("work - first * p.q_blocks"),
    },
    {parse_expr("work"): parse_expr("B * Hq * ceil_div(Lq, BLOCK_Q)")},
)

NATURAL = (
    "Lk", "i", "tile.q_start + BLOCK_Q", "p.q_blocks", "p.group", "rest", "minimum(p.group, B * Hq - first)", "rest % p.q_blocks",
    "maximum(Lk - Lq, 0)", "where(i < j, 3, Lk)", "Lk + Lq - minimum(Lk, Lq)", "first + 3 * rest", "abs(i - j)",
    "i - i // 4 * 4", "2 * i - i", "work - first * p.q_blocks + 1", "BLOCK_Q - 1", "i + BLOCK_Q - 128",
    "work - first", "p.q_blocks - 1",
)  # fmt: skip
UNKNOWN = (
    "Lk - Lq", "i - j", "-1", "BIAS", "x", "p.shift", "minimum(Lk - Lq, 3)", "tile.slope", "i - 1", "p.q_blocks - 2",
    "where(i < j, i - j, 1)", "work - first - 1", "i // (Lk - Lq)", "i - i // 4 * 5", "0 - i", "rest - 1", "p.unknown * i",
    "i - BLOCK_Q", "BLOCK_Q - 129",
)  # fmt: skip


@pytest.mark.parametrize("text", NATURAL)
def test_proved_natural(text: str) -> None:
    assert SIGNS.natural_by(parse_expr(text)) is not None


@pytest.mark.parametrize("text", UNKNOWN)
def test_not_proved(text: str) -> None:
    assert SIGNS.natural_by(parse_expr(text)) is None


def test_what_is_proved_holds_for_numbers() -> None:
    """Every proved sum of a family, at every small value of its names."""
    proved = 0
    parts = ("a", "a // 2", "a // b * b", "b", "a % b", "minimum(a, b)", "maximum(a - b, 0)")
    signs = Signs(lambda _: None, frozenset(("a", "b")))
    for x, y in itertools.product(parts, repeat=2):
        for text in (f"{x} - {y}", f"{x} + {y} - 1", f"2 * ({x}) - {y}"):
            if signs.natural_by(parse_expr(text)) is not None:
                proved += 1
                values = [evaluate_number(parse_expr(text), {"a": a, "b": b}) for a in range(6) for b in range(1, 6)]
                assert min(values) >= 0, text  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert proved > 15


TENSORS = {
    "head": CapturedAddress("head", (parse_expr("Hq"),)),
    "doc": CapturedAddress("doc", (parse_expr("B"), parse_expr("Lk")), 128),
    "table": CapturedAddress("table", (parse_expr("Hq"), parse_expr("Lq"), parse_expr("Lk"))),
    "one": CapturedAddress("one", ()),
}
INDICES = (
    ("head", "tile.h", ("tile.h",)),
    ("one", "0", ("0",)),
    ("doc", "tile.b * (ceil_div(Lk, 128) * 128) + j", ("tile.b", "j")),
    ("doc", "j + ceil_div(Lk, 128) * 128 * tile.b", ("tile.b", "j")),
    ("doc", "tile.b * ceil_div(Lk, 128) * 128 + j - 1", ("tile.b", "j - 1")),
    ("table", "(tile.h * Lq + minimum(i, Lq - 1)) * Lk + j", ("tile.h", "minimum(i, Lq - 1)", "j")),
    ("table", "tile.h * Lq * Lk + i * Lk + j", ("tile.h", "i", "j")),
)


@pytest.mark.parametrize(("name", "text", "expected"), INDICES)
def test_flat_index_by_axes(name: str, text: str, expected: tuple[str, ...]) -> None:
    found = captured_indices(TENSORS[name], Scalar(parse_expr(text), DType.I64), NOWHERE)
    assert tuple(print_expr(x) for x in found) == expected


@pytest.mark.parametrize(
    ("name", "text", "dtype"),
    [
        ("doc", "tile.b * Lk + j", DType.I64),
        ("doc", "j", DType.I64),
        ("doc", "tile.b * (ceil_div(Lk, 128) * 128) + j", DType.I32),
        ("one", "1", DType.I32),
    ],
)
def test_flat_index_refused(name: str, text: str, dtype: DType) -> None:
    with pytest.raises(CuError):
        captured_indices(TENSORS[name], Scalar(parse_expr(text), dtype), NOWHERE)


def test_terms_keep_their_place() -> None:
    expr = cancel_anchors(parse_expr("tile.q_start + (i - tile.q_start) + 1"))
    assert isinstance(expr, Binary)
    assert expr.left.span.text == "i"
