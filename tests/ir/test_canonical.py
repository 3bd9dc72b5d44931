"""The two forms of regions: what each takes for the same, and what it must tell apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from cubridge.ir.alpha import numbered_body, numbered_locals
from cubridge.ir.canonical import canonical, value_form
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile
from tests.support.golden_texts import GOLDEN_NAMES, golden_file, golden_kernel

Form = Callable[[Kernel], Kernel]
either = pytest.mark.parametrize("form", [canonical, value_form])

OLD = "    s = exp2(s * p.exponent_scale - row.m_exponent)\n    row.l = row.l * row.o_scale + partial_rowsum(s)\n"


@cache
def with_probs(body: str) -> Kernel:
    text = golden_file("sm80").text
    assert OLD in text
    lines = "".join(f"    {line}\n" for line in body.split("; "))
    return parse(SourceFile.from_text("probs.cuir", text.replace(OLD, lines)))


@either
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x = s * 2.0; s = x + x", "s = s * 2.0 + s * 2.0"),
        ("x = row.m; y = row.l; row.l = x + y", "b = row.l; a = row.m; row.l = a + b"),
        ("row.m = 1.0; row.l = 2.0", "row.l = 2; row.m = 1"),
        ("s = s * 2", "s = s * 2.0"),
        ("s = s * -2.0", "s = s * -(2.0)"),
        ("s = s + f32(floor_div(i, 4) + floor_mod(i, 3))", "s = s + f32(i // 4 + i % 3)"),
        ("s = s * 1.4426950408889634", "s = s * LOG2E"),
        ("s = s * 1.4426950216293335", "s = s * LOG2E"),
        ("x = s; s = s + 1.0; s = s + x", "x = s + 1.0; s = x + s"),
        ("terms = s * s; row.l = row.l + partial_rowsum(terms)", "row.l = row.l + partial_rowsum(s * s)"),
        ("s = s; unused = s * 3.0; row.m = row.m", "pass"),
        ("s = 1.0; s = row.m", "s = row.m"),
    ],
)
def test_the_same(a: str, b: str, form: Form) -> None:
    assert with_probs(a) != with_probs(b)
    assert form(with_probs(a)) == form(with_probs(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("s = s * f32(3)", "s = s * 3.0"),
        ("three = 3; s = s * f32(three)", "s = s * 3.0"),
        ("s = where(~True, s, 1.0)", "s = where(False, s, 1.0)"),
    ],
)
def test_the_value_form_folds_literals(a: str, b: str) -> None:
    assert canonical(with_probs(a)) != canonical(with_probs(b))
    assert value_form(with_probs(a)) == value_form(with_probs(b))


@either
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("s = s * 2.0", "s = s * 3.0"),
        ("s = s + row.m", "s = row.m + s"),
        ("s = (s + row.m) + row.l", "s = s + (row.m + row.l)"),
        ("s = maximum(s, 0.0)", "s = maximum(s, -0.0)"),
        ("x = s; s = s + 1.0; row.m = rowmax(x)", "s = s + 1.0; x = s; row.m = rowmax(x)"),
        ("row.m = 1.0; row.l = row.m", "row.l = row.m; row.m = 1.0"),
        ("s = s * LOG2E", "s = s * LN2"),
        ("s = s + f32(i // 4)", "s = s + f32(i % 4)"),
        ("s = s + f32(i - j)", "s = s + (f32(i) - f32(j))"),
        ("s = s + f32(i // BLOCK_Q)", "s = s + f32(i // 128)"),
        ("s = s + f32(16777217)", "s = s + 16777217.0"),
        ("s = where(~True, s, 1.0)", "s = where(True, s, 1.0)"),
        ("s = s; row.m = 1.0", "s = s"),
    ],
)
def test_not_the_same(a: str, b: str, form: Form) -> None:
    assert form(with_probs(a)) != form(with_probs(b))


def edited(old: str, new: str) -> Kernel:
    text = golden_file("sm80").text
    assert old in text
    return parse(SourceFile.from_text("edited.cuir", text.replace(old, new)))


@either
def test_a_vote_is_part_of_the_meaning(form: Form) -> None:
    golden = form(golden_kernel("sm80"))
    vote = "    if any_lane(row.o_scale != 1.0):\n        o = o * row.o_scale\n"
    named = "    moved = row.o_scale != 1.0\n    if any_lane(moved):\n        x = row.o_scale\n        o = o * x\n"
    assert form(edited(vote, named)) == golden
    assert form(edited(vote, "    o = o * row.o_scale\n")) != golden
    assert form(edited("row.o_scale != 1.0", "row.o_scale != 2.0")) != golden


@either
def test_results_of_functions(form: Form) -> None:
    golden = form(golden_kernel("sm80"))
    assert form(edited("    return keys.hi - 1 - t\n", "    n = keys.hi - 1\n    return n - t\n")) == golden
    assert form(edited("    return keys.hi - 1 - t\n", "    return keys.hi - 2 - t\n")) != golden
    assert form(edited("lo=lo, hi=hi", "lo=hi, hi=lo")) != golden
    assert form(edited("lo=lo, hi=hi", "lo=0, hi=hi")) == golden


@either
def test_a_float_constant_is_its_value(form: Form) -> None:
    literal = edited("STAGES=2", "STAGES=2, LAG=8.0")
    text = golden_file("sm80").text.replace("STAGES=2", "STAGES=2, LAG=8.0")
    assert "<= 8.0" in text
    named = parse(SourceFile.from_text("lag.cuir", text.replace("<= 8.0", "<= LAG")))
    assert form(named) == form(literal)


@either
def test_a_constant_that_has_a_name_in_cuir(form: Form) -> None:
    text = golden_file("sm80").text.replace("STAGES=2", "STAGES=2, RATE=1.4426950408889634")
    named = parse(SourceFile.from_text("rate.cuir", text.replace(OLD, "    s = s * RATE\n")))
    literal = parse(SourceFile.from_text("rate.cuir", text.replace(OLD, "    s = s * 1.4426950408889634\n")))
    assert form(named) == form(literal)


@either
@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_only_regions_and_names_of_locals_change(name: str, form: Form) -> None:
    kernel = golden_kernel(name)
    numbered = {"schedule": numbered_locals(kernel.schedule), "body": numbered_body(kernel.body)}
    assert replace(form(kernel), regions=kernel.regions) == replace(kernel, **numbered)


@either
def test_a_value_used_twice_at_each_step_stays_small(form: Form) -> None:
    doubling = "; ".join(["x0 = s + s", *(f"x{n} = x{n - 1} * x{n - 1}" for n in range(1, 90)), "s = x89"])
    region = form(with_probs(doubling)).region("row_probs")
    assert len(region.body) == 91
