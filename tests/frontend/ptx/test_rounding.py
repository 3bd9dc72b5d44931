"""Divisions that round towards zero, and comparisons with minima: what they are read as is the same wherever it counts."""

from __future__ import annotations

from itertools import product

import pytest

from cubridge.frontend.ptx.formula import Formulas, filled
from cubridge.frontend.ptx.integers import integer_rule
from cubridge.frontend.ptx.rounding import rounded_down
from cubridge.frontend.ptx.values import Node
from cubridge.ir.algebra.normal import compared, extremum, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Name
from cubridge.ir.printer import print_expr
from cubridge.ir.source import NOWHERE

BLOCK, LK, LQ = (Poly.atom(Name(n)) for n in ("block_x", "Lk", "Lq"))


def by_instructions(value: Poly, shift: int) -> Poly:
    """`value / 2**shift` of signed numbers as compilers write it."""

    def made(name: str, *args: Poly) -> Poly:
        rule = integer_rule(name)
        assert rule is not None
        found = rule(*args)
        assert found is not None
        return found

    sign = made("shr.s32", value, Poly.constant(31))
    bias = made("shr.u32", sign, Poly.constant(32 - shift))
    return made("shr.s32", made("add.s32", value, bias), Poly.constant(shift))


def number(value: Poly, **sizes: int) -> int:
    return int(evaluate_number(to_expr(value), sizes))  # pyright: ignore[reportArgumentType]


SEEN = BLOCK * 32 + LK - LQ + 47


def test_a_division_towards_zero() -> None:
    found = by_instructions(SEEN, 4)
    for block, lq in product(range(2), range(0, 200, 11)):
        said = number(found, block_x=block, Lk=20, Lq=lq)
        assert said == int((block * 32 + 20 - lq + 47) / 16)


def test_a_number_of_tiles_is_the_same_where_it_is_positive() -> None:
    tiles = by_instructions(LK + 15, 4)
    count = extremum("minimum", tiles, by_instructions(SEEN, 4))
    down, rounding = rounded_down(count, NOWHERE)
    assert "2147483648" not in print_expr(to_expr(down))
    for block, lk, lq in product(range(2), range(0, 60, 15), range(0, 200, 29)):
        sizes = {"block_x": block, "Lk": lk, "Lq": lq}
        had, said, first = (number(x, **sizes) for x in (count, down, rounding.down(count * 16 - 16)))
        assert max(had, 0) == max(said, 0)
        assert had <= 0 or first == 16 * had - 16


def test_a_sum_of_such_divisions_is_not_read() -> None:
    """Its sign is another one when both round down."""
    with pytest.raises(CuError) as caught:
        rounded_down(by_instructions(SEEN, 4) + by_instructions(LK - LQ, 4), NOWHERE)
    assert caught.value.diagnostics[0].code == "CU853"


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("fn", ["minimum", "maximum"])
@pytest.mark.parametrize("factor", [1, -1])
def test_a_comparison_with_the_least_of_two(op: str, fn: str, factor: int) -> None:
    a, b, c = (Poly.atom(Name(n)) for n in "abc")
    node = Node("compare", (c, extremum(fn, a, b) * factor), op, span=NOWHERE)
    formulas = Formulas(lambda _: None)
    formula = formulas.of(node)
    holes = {f"#{n}": compared(hole.op, hole.difference) for n, hole in enumerate(formula.holes)}
    assert len(holes) == 2
    said = filled(formula, holes)
    for x, y, z in product(range(-2, 3), repeat=3):
        least = factor * (min(x, y) if fn == "minimum" else max(x, y))
        right = {"<": z < least, "<=": z <= least, ">": z > least, ">=": z >= least}[op]
        assert bool(evaluate_number(said, {"a": x, "b": y, "c": z})) == right
