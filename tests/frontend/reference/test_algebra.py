"""The normal forms against brute force, and what they must simplify."""

from __future__ import annotations

import math
import random

import pytest

from cubridge.frontend.reference.algebra.terms import new_arena
from tests.frontend.reference.term_fuzz import Maker, Pair, environments, evaluate

DRAWS = 40
ENVIRONMENTS = list(environments())


def check(pair: Pair) -> None:
    term, meaning = pair
    for values in ENVIRONMENTS:
        want, got = float(meaning(values)), float(evaluate(term, values))
        assert math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-9), f"{term!r} at {values}: {got}, not {want}"


@pytest.mark.parametrize("kind", ["integer", "predicate", "real", "reduction"])
def test_normal_forms_keep_the_value(kind: str) -> None:
    maker = Maker(random.Random(7))
    make = {
        "integer": lambda: maker.integer(3),
        "predicate": lambda: maker.predicate(2),
        "real": lambda: maker.real(3),
        "reduction": maker.reduction,
    }[kind]
    for _ in range(DRAWS):
        with new_arena():
            check(make())
