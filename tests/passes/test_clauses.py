from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import to_expr
from cubridge.ir.nodes import Assign, Call, Expr, Kernel, Name
from cubridge.ir.parser import parse_expr
from cubridge.ir.walk import substitute
from cubridge.passes.base import PassContext
from cubridge.passes.clauses import Clause, clauses
from cubridge.passes.mask import RewriteMask
from cubridge.passes.regions import mask_predicate
from cubridge.passes.row_bounds import RowBounds
from tests.ir.algebra.test_normal import FACTS
from tests.passes.strategies import masks, predicates, value
from tests.support.golden_texts import golden_kernel

_lengths = st.sampled_from([(40, 50), (50, 40), (1, 33), (33, 1)])


def _holds(clause: Clause, point: dict[str, int]) -> bool:
    j = point["j"]
    bounds = [j >= value(to_expr(b), point) for b in clause.lowers] + [
        j <= value(to_expr(b), point) for b in clause.uppers
    ]
    return all(bounds) and all(value(c, point) for c in (*clause.rows, *clause.rest))


@given(st.one_of(predicates, masks), st.integers(0, 49), st.integers(0, 49), _lengths)
@settings(max_examples=150, deadline=None)
def test_clauses_are_the_predicate(mask: Expr, i: int, j: int, lengths: tuple[int, int]) -> None:
    point = {"i": i, "j": j, "Lq": lengths[0], "Lk": lengths[1]}
    found = clauses(mask, FACTS)
    assert any(_holds(c, point) for c in found) == bool(value(mask, point))


def test_one_of_two_clauses_that_differ_in_order_stays() -> None:
    mask = parse_expr("((i < 4) | (Lq != i)) & ((i < 4) & (Lq != i))")
    (clause,) = clauses(mask, FACTS)
    assert len(clause.rows) == 2


def _predicate(kernel: Kernel) -> Expr:
    """The predicate of the mask region with its locals put in."""
    *locals, last = kernel.region("mask").body
    values: dict[str, Expr] = {}
    for statement in locals:
        assert isinstance(statement, Assign) and isinstance(statement.target, Name)
        values[statement.target.id] = substitute(statement.value, values)
    assert isinstance(last, Assign) and isinstance(last.value, Call)
    return substitute(last.value.args[0], values)


@given(masks, _lengths)
@settings(max_examples=25, deadline=None)
def test_row_bounds_keep_the_mask(mask: Expr, lengths: tuple[int, int]) -> None:
    kernel = RewriteMask(mask).run(golden_kernel("sm80"), PassContext())
    before, after = mask_predicate(kernel), _predicate(RowBounds().run(kernel, PassContext()))
    assert before is not None
    for i in range(0, lengths[0], 3):
        for j in range(0, lengths[1] + 3, 2):
            point = {"i": i, "j": j, "Lq": lengths[0], "Lk": lengths[1]}
            assert bool(value(before, point)) == bool(value(after, point))


@pytest.mark.parametrize(
    ("text", "count", "solved"),
    [
        ("j <= i", 1, True),
        ("(j <= i) & (j <= i + 3)", 1, True),
        ("(j <= i) | (j <= i)", 1, True),
        ("(j <= i) & (j > i)", 0, True),
        ("abs(i - j) < 5", 1, True),
        ("abs(i - j) >= 5", 2, True),
        ("i // 8 == j // 8", 1, True),
        ("2 * j <= i", 1, True),
        ("(j // 4) * 4 <= i", 1, True),
        ("maximum(i, j) < 9", 1, True),
        ("minimum(i, j) < 9", 2, True),
        ("~(j <= i)", 1, True),
        ("where(i < 5, j < 3, j <= i)", 2, True),
        ("j % 2 == 0", 1, False),
        ("doc[j] == 3", 1, False),
        ("j * j < i", 1, False),
    ],
)
def test_solutions(text: str, count: int, solved: bool) -> None:
    found = clauses(parse_expr(text), Facts.of(golden_kernel("sm80")))
    assert len(found) == count
    assert all(not c.rest for c in found) is solved


def test_a_large_predicate_stays_whole() -> None:
    text = " & ".join(f"((j < {n}) | (j > i + {n}) | (j == {2 * n + 50}))" for n in range(5))
    found = clauses(parse_expr(text), FACTS)
    point = {"i": 3, "j": 60, "Lq": 40, "Lk": 90}
    assert any(_holds(c, point) for c in found) == bool(value(parse_expr(text), point))
    assert any(c.rest for c in found)
