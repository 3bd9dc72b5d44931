"""Code that judges is changed on purpose, and tests notice; `python -m bench.mutation` does so for more of it."""

from __future__ import annotations

import pytest

from bench.mutation import EQUIVALENT, TARGETS, all_mutants, mutants, sample, survivors

SOURCE = """
def all_fine(x: int, y: int) -> bool:
    if x == 3:
        raise ValueError
    return x < 1 and y >= 2
"""


def test_the_changes() -> None:
    assert [(m.function, m.line, m.change) for m in mutants("a", SOURCE)] == [
        ("all_fine", 3, "if x == 3: raise ValueError -> if False: raise ValueError"),
        ("all_fine", 5, "return x < 1 and y >= 2 -> return True"),
        ("all_fine", 3, "x == 3 -> x != 3"),
        ("all_fine", 4, "raise ValueError -> pass"),
        ("all_fine", 5, "x < 1 and y >= 2 -> y >= 2"),
        ("all_fine", 5, "x < 1 and y >= 2 -> x < 1"),
        ("all_fine", 5, "x < 1 -> x <= 1"),
        ("all_fine", 5, "y >= 2 -> y > 2"),
    ]
    assert all(compile(m.text, "a", "exec") for m in mutants("a", SOURCE))


@pytest.mark.slow
def test_every_module_has_changes_and_equivalents_are_some() -> None:
    by_name = {str(m) for m in all_mutants()}
    assert set(EQUIVALENT) <= by_name
    assert {m.module for m in sample(len(TARGETS), 0)} == set(TARGETS)


@pytest.mark.slow
def test_a_sample_is_noticed() -> None:
    assert [str(m) for m in survivors(sample(24, seed=3)) if str(m) not in EQUIVALENT] == []
