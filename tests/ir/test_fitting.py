"""Sizes that meet preconditions of every kind, several at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.ir.fitting import fits, fitting_shapes
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, Precondition, Shape
from tests.support.specs import softmax_spec

WANTED = Shape(1, 4, 2, 200, 330, 64)


def requiring(*conditions: str) -> AttentionSpec:
    return replace(softmax_spec(), preconditions=tuple(Precondition(parse_expr(c)) for c in conditions))


@pytest.mark.parametrize(
    ("requires", "fitted"),
    [
        ((), WANTED),
        (("Lk == Lq",), replace(WANTED, Lk=200)),
        (("Hq == Hk",), replace(WANTED, Hq=2)),
        (("Lk == Lq", "Hq == Hk"), replace(WANTED, Lk=200, Hq=2)),
        (("Hq == 3 * Hk",), replace(WANTED, Hq=6)),
        (("Hk == 5", "Hq == 15"), replace(WANTED, Hk=5, Hq=15)),
        (("B == 2", "Lk == Lq"), replace(WANTED, B=2, Lk=200)),
        (("Lq <= 400",), WANTED),
        (("Lk >= 384",), replace(WANTED, Lk=384)),
        (("384 <= Lk",), replace(WANTED, Lk=384)),
        (("Lq >= 500",), replace(WANTED, Lq=500)),
        (("Lq % 64 == 0",), replace(WANTED, Lq=192)),
        (("Lq % 49 == 0", "Lk == Lq"), replace(WANTED, Lq=196, Lk=196)),
        (("Lk == Lq", "Lk % 64 == 0"), replace(WANTED, Lq=256, Lk=256)),
        (("Lq == 64", "Lk == 64", "Hk == 4", "Hq == Hk"), Shape(1, 4, 4, 64, 64, 64)),
        (("Lk == 2 * Lq",), replace(WANTED, Lk=400)),
        (("Lk == Lq + 16", "Lq % 8 == 0"), replace(WANTED, Lk=216)),
        (("Lq <= 128", "Lk <= 128", "Lq <= Lk"), replace(WANTED, Lq=128, Lk=128)),
        (("Lq + Lk <= 300",), replace(WANTED, Lk=100)),
        (("Hq // Hk >= 3",), replace(WANTED, Hq=6)),
        (("B * Hq == 8",), replace(WANTED, Hq=8)),
        (("Hq == 12", "Hq == Hk", "Lq == 197", "Lk == Lq"), Shape(1, 12, 12, 197, 197, 64)),
        (("Hq % 6 == 0", "Lk >= 400", "Lk % 16 == 0"), replace(WANTED, Hq=6, Lk=400)),
        (("B % 4 == 0", "Lq == 49", "Lk == 49"), Shape(4, 4, 2, 49, 49, 64)),
        (("cap >= 1.0",), WANTED),
    ],
)
def test_fits(requires: tuple[str, ...], fitted: Shape) -> None:
    assert fitting_shapes(requiring(*requires), [WANTED]) == [fitted]


@pytest.mark.parametrize("requires", [("Lq >= 500", "Lq <= 400"), ("D == 128",), ("Lq // 0 == 1",), ("Lq < 1",)])
def test_a_shape_that_cannot_fit_is_left_out(requires: tuple[str, ...]) -> None:
    assert fitting_shapes(requiring(*requires), [WANTED]) == []


_SIZES = st.sampled_from(("B", "Hq", "Hk", "Lq", "Lk"))
_CONDITIONS = st.one_of(
    st.builds("{} <= {}".format, _SIZES, st.integers(1, 700)),
    st.builds("{} >= {}".format, _SIZES, st.integers(1, 700)),
    st.builds("{} % {} == 0".format, _SIZES, st.integers(1, 64)),
    st.builds("{} == {}".format, _SIZES, st.integers(1, 300)),
    st.sampled_from(("Lq == Lk", "Hq == Hk", "Lq <= Lk", "Lk == 2 * Lq", "Lk <= 2 * Lq", "Hq // Hk >= 2")),
)


@settings(deadline=None)
@given(st.lists(_CONDITIONS, max_size=4))
def test_what_is_found_fits(requires: list[str]) -> None:
    spec = requiring(*requires)
    found = fitting_shapes(spec, [WANTED])
    assert all(fits(spec, shape) and shape.Hq % shape.Hk == 0 and shape.D == 64 for shape in found)
    if fits(spec, WANTED):
        assert found == [WANTED]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(("<=", ">=", "==")), st.sampled_from(("Lq", "Lk", "B"))), max_size=3, unique=True
    )
)
def test_what_some_shape_meets_is_found(kinds: list[tuple[str, str]]) -> None:
    meets = Shape(3, 4, 2, 87, 460, 64)
    spec = requiring(*(f"{name} {relation} {meets.sizes()[name]}" for relation, name in kinds))
    assert len(fitting_shapes(spec, [WANTED])) == 1
