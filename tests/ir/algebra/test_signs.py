"""What is proved of integers holds at every point of a grid, and a rule that is wrong shows there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from time import perf_counter

import pytest

from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.signs import is_natural
from cubridge.ir.nodes import Expr, Name
from cubridge.ir.parser import parse_expr
from tests.ir.algebra.answers import Algebra, faults, host_faults, image_faults
from tests.ir.algebra.corpus import DEFINITIONS, LEAST, MOST, corpus
from tests.ir.algebra.planted import Plant, algebra, plants

CHECKS = {"interval": image_faults, "facts": host_faults}
"""What shows a fault of a module, where it is not the signs and forms of expressions."""


@pytest.mark.parametrize("check", [faults, *CHECKS.values()])
def test_every_answer_holds(check: Callable[[Algebra], Iterator[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(check(algebra(monkeypatch))) == []


def test_most_of_what_holds_is_proved() -> None:
    """So that what is never answered is not taken for right."""
    facts = Facts(LEAST.get, MOST.get, DEFINITIONS.get)
    holds = [e for e in corpus() if e.low >= 0]
    assert sum(is_natural(e.expr, facts) for e in holds) > 0.7 * len(holds)


@pytest.mark.parametrize("plant", plants(), ids=lambda p: f"{p.where}: {p.right}")
def test_a_wrong_rule_shows(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = algebra(monkeypatch, plant)
    nearest = CHECKS.get(plant.where, faults)
    assert next(chain(nearest(planted), faults(planted)), None) is not None


@pytest.mark.parametrize("step", ["x{0} + 1", "x{0} * x{0} + x{0}", "x{0} + y{0}", "maximum(x{0}, x{0} - y{0})"])
def test_definitions_without_end_are_not_followed_for_long(step: str) -> None:
    definitions: dict[Expr, Expr] = {Name(f"x{n + 1}"): parse_expr(step.format(n)) for n in range(3000)}
    start = perf_counter()
    assert not is_natural(parse_expr("x3000 - x2999 - 5"), Facts(definition=definitions.get))
    assert perf_counter() - start < 5
