"""The normal forms against brute force, and what they must simplify."""

from __future__ import annotations

import math
import random

import pytest
import torch

from cubridge.frontend.reference.algebra.functions import UNARY
from cubridge.frontend.reference.algebra.polynomials import sub
from cubridge.frontend.reference.algebra.table import bitwise_and
from cubridge.frontend.reference.algebra.terms import const, index, is_op, new_arena, size, walk
from cubridge.frontend.reference.evaluate import TENSORS
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


def test_each_function_has_its_values_before_the_launch() -> None:
    """A reference that computes a capture by it may be the first to ask."""
    x = torch.tensor([-1.5, -0.5, 0.25, 2.0], dtype=torch.float64)
    for name, at_numbers in UNARY.items():
        assert TENSORS[name](x).tolist() == pytest.approx([at_numbers(float(v)) for v in x]), name


@pytest.mark.parametrize("mask", [1, 2, 3, 6, 12, -1, -4, 64])
def test_neighbouring_bits_are_quotients_and_remainders(mask: int) -> None:
    """Of integers below 0 too."""
    with new_arena():
        i, j = index("i", size("Lq")), index("j", size("Lk"))
        number = sub(sub(i, j), j)
        for bits in (bitwise_and(number, const(mask)), bitwise_and(const(mask), number)):
            assert not any(is_op(part, "&") for part in walk(bits))
            check((bits, lambda e: (e["i"] - 2 * e["j"]) & mask))  # pyright: ignore[reportOperatorIssue]


@pytest.mark.parametrize("mask", [5, -7])
def test_bits_with_gaps_stay(mask: int) -> None:
    with new_arena():
        assert is_op(bitwise_and(index("i", size("Lq")), const(mask)), "&")
