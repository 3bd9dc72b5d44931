from __future__ import annotations

import itertools
import math

import pytest

from cubridge.ir.evaluate import evaluate
from cubridge.ir.nodes import Expr, Name
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr, print_stmts
from cubridge.passes.base import PassContext
from cubridge.passes.mask import RewriteMask
from cubridge.passes.rules import RULES, Step, simplified
from cubridge.passes.simplify import Simplify
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel

VALUES = {"bool": (True, False), "int": (-3, 0, 1, 5), "float": (-math.inf, -1.5, 0.0, 2.0, math.inf, math.nan)}


def _value(expr: Expr, given: dict[str, object]) -> object:
    def lookup(node: Expr) -> object:
        assert isinstance(node, Name)
        return given[node.id]

    return evaluate(expr, lookup)  # pyright: ignore


def _same(a: object, b: object) -> bool:
    return a == b or (a != a and b != b)


@pytest.mark.parametrize(("pattern", "replacement"), RULES, ids=[p for p, _ in RULES])
def test_a_rule_keeps_every_value(pattern: str, replacement: str) -> None:
    """Over truths where the rule is of logic, over numbers elsewhere; the condition of a choice is a truth."""
    before, after = parse_expr(pattern), parse_expr(replacement)
    logic = any(w in pattern for w in "&|~") or "True" in replacement
    kinds = ("bool",) if logic and "where" not in pattern else ("int", "float") if "f32" not in pattern else ("int",)
    names = sorted({w for w in "abcd" if w in pattern.replace("abs", "").replace("False", "")})
    for kind in kinds:
        choices = [
            VALUES["bool"] if w == "a" and pattern.startswith(("where(a", "where(~")) else VALUES[kind] for w in names
        ]
        for values in itertools.product(*choices):
            given = dict(zip(names, values, strict=True))
            if any(v != v for v in values if isinstance(v, float)) and "mum" in pattern:
                continue  # Python's min and max depend on the order of NaN
            assert _same(_value(before, given), _value(after, given)), given


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(j < Lk) & True", "j < Lk"),
        ("where(~(~(i < 3)), s + 0.0, s * 1)", "s"),
        ("minimum(Lk, minimum(Lk, i + 1))", "minimum(Lk, i + 1)"),
        ("where(i < 3, where(i < 3, 1, 2), 4)", "where(i < 3, 1, 4)"),
        ("i - j", "i - j"),
    ],
)
def test_to_a_fixed_point(text: str, expected: str) -> None:
    steps: list[Step] = []
    assert print_expr(simplified(parse_expr(text), steps.append)) == expected
    assert bool(steps) is (text != expected)


@pytest.mark.parametrize("arch", GOLDEN_NAMES)
def test_the_source_is_simple(arch: str) -> None:
    assert Simplify().run(golden_kernel(arch), PassContext()) is golden_kernel(arch)


def test_regions_are_simplified_with_a_trace() -> None:
    told: list[str] = []
    kernel = RewriteMask(parse_expr("(j <= i) & (i >= 0 + i)")).run(golden_kernel("sm80"), PassContext())
    simple = Simplify().run(kernel, PassContext(told.append))
    assert print_stmts(simple.region("mask").body) == "s = where((j < Lk) & ((j <= i) & (i >= i)), s, -inf)"
    assert told == ["simplify: 0 + a -> a: `0 + i` is `i`"]
