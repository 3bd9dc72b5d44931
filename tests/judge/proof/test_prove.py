"""What the rules make is proved, other right spellings are too, and nothing wrong is."""

from __future__ import annotations

import re

import pytest

from cubridge.driver.transfer import transfer_unverified
from cubridge.ir.algebra.interval import Interval
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Capture
from cubridge.judge.proof.part import PARTS, Part
from cubridge.judge.proof.prove import prove, prove_part
from cubridge.passes import constant_reference
from cubridge.passes.constant_reference import ConstantReference
from cubridge.passes.normalize import RewriteNormalize
from cubridge.passes.pipeline import Pipeline
from cubridge.passes.propose import propose
from cubridge.passes.runner import run_pipeline
from tests.judge.proof.targets import changed, source, spec, target
from tests.judge.proof.wrong import WRONG, Wrong
from tests.passes.specs import CASES, softmax
from tests.support.readings import reading
from tests.support.specs import softmax_spec
from tests.support.variants import VARIANTS

QUICK = ("global window", "alibi softcap documents", "scaled by largest", "bool keys", "softpick of a maximum")


def unproved(parts: tuple[Part, ...]) -> list[Part]:
    return [p for p in parts if not p.proved]


@pytest.mark.parametrize("name", QUICK)
def test_targets_of_the_rules_are_proved(name: str) -> None:
    parts = prove(target(name, "sm90a" if name == "global window" else "sm80"), spec(name))
    assert unproved(parts) == []
    assert [p.name for p in parts] == [p for p in PARTS if p != "LSE" or spec(name).lse is not None]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_spec_is_proved(name: str) -> None:
    assert unproved(prove(target(name), spec(name))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_every_example_is_proved(name: str) -> None:
    found = reading(name).attention.spec
    for kernel in ("sm80", "sm90a"):
        assert unproved(prove(transfer_unverified(source(kernel), found), found)) == []


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: f"{w.part}: {w.new[:60]}")
def test_nothing_wrong_is_proved(wrong: Wrong) -> None:
    part = prove_part(changed(wrong.case, (wrong.old, wrong.new)), spec(wrong.case), wrong.part)
    assert not part.proved
    assert wrong.at in part.counterexample


_SERIES = """w = exp2(s * p.exponent_scale - p.weight_bias)
    large = rowmax(w) > 0.022
    s = w - w * w
    if any_lane(large):
        s = where(large, where(w > 1000000000.0, 1.0, w * rcp(1.0 + w)), s)"""

RIGHT = {
    "a mask by a sum": ("full", "s = where(j < Lk, s, -inf)", "s = s + where(j < Lk, 0.0, -inf)"),
    "a mask by floats that are exact": ("full", "where(j < Lk,", "where(f32(j) < f32(Lk),"),
    "keys from the left": ("causal top left", "keys.hi - 1 - t", "keys.lo + t"),
    "no lag": ("prefix", "where((m_max - row.m) * p.exponent_scale <= 8.0, row.m, m_max)", "m_max"),
    "another lag": ("prefix", "<= 8.0", "<= 40.0"),
    "a clamp by another nesting": ("relative table", "maximum(minimum(i - j, 16), -16)", "minimum(16, maximum(i - j, -16))"),
    "a sum from the right": ("full", "row.l * row.o_scale + partial_rowsum(s)", "partial_rowsum(s) + row.o_scale * row.l"),
    "a difference of exponents": ("full", "exp2((row.m - m_safe) * p.exponent_scale)",
                                  "exp2(row.m * p.exponent_scale - m_safe * p.exponent_scale)"),
    "a natural exponential": ("full", "exp2(s * p.exponent_scale - row.m_exponent)",
                              "exp((s * p.exponent_scale - row.m_exponent) * LN2)"),
    "a negated mask": ("causal top left", "where(j <= last, s, -inf)", "where(j > last, -inf, s)"),
    "a clamp of what is bounded": ("softcap", "tanh_approx(s * p.score_scale)", "minimum(tanh_approx(s * p.score_scale), 1.0)"),
    "relu by a selection": ("relu", "maximum(s, 0.0)", "where(s > 0.0, s, 0.0)"),
    "relu by an absolute value": ("relu", "maximum(s, 0.0)", "where(s == -inf, 0.0, (s + abs(s)) * 0.5)"),
    "a sigmoid by another quotient": ("sigmoid", _SERIES,
                                      "s = exp2(s * p.exponent_scale) / (exp2(p.weight_bias) + exp2(s * p.exponent_scale))"),
    "the LSE in other units": ("full", "(row.m * p.exponent_scale + log2(l)) * LN2",
                               "row.m * p.exponent_scale / LOG2E + log(l)"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_in_other_words(name: str) -> None:
    case, old, new = RIGHT[name]
    assert unproved(prove(changed(case, (old, new)), spec(case))) == []


MIXED = {
    "where((s > 0) & (j < i), s, s * 0.5)": ("where(~(j < i) | ~(s > 0.0), s * 0.5, s)", "where((s > 0.0) & (j <= i), s, s * 0.5)"),
    "where(s > j * 0.25, s, s * 0.5)": ("where(s - f32(j) * 0.25 > 0.0, s, s * 0.5)", "where(s >= f32(j) * 0.25, s, s * 0.5)"),
    "where(s > j, s, s * 0.5)": ("where(s > f32(j + 1) - 1.0, s, s * 0.5)", "where(s > f32(j) + 0.00001, s, s * 0.5)"),
}  # fmt: skip
"""Scores by conditions of scores and indices, the same in other words, and wrong ones: long problems show the first of these."""


@pytest.mark.parametrize("score", MIXED)
def test_a_condition_of_scores_and_indices(score: str) -> None:
    mixed = softmax_spec(score=score)
    text = to_text(transfer_unverified(source(), mixed))
    region = re.compile(r"(?<=def score\(s, kv_start, tile\):\n)    s = .*")
    assert len(region.findall(text)) == 1
    for said, is_proved in zip(MIXED[score], (True, False), strict=True):
        kernel = parse(SourceFile("changed.cuir", region.sub(f"    s = {said}", text).encode()))
        assert (unproved(prove(kernel, mixed)) == []) is is_proved


def test_a_counter_of_tiles_is_refused_by_name() -> None:
    counted = changed(
        "full",
        ("row_state(\n", "row_state(\n    seen=Row(f32),\n"),
        ("    row.m = -inf\n", "    row.m = -inf\n    row.seen = 0.0\n"),
        ("    row.m = m_new\n", "    row.m = m_new\n    row.seen = row.seen + 1.0\n"),
        ("partial_rowsum(s)", "partial_rowsum(where(row.seen < 12.0, s, 0.0))"),
    )
    assert "`row.seen`" in prove_part(counted, spec("full"), "score").because


@pytest.mark.parametrize("name", ["t", "u", "q_start", "kv_start", "top", "added", "largest"])
def test_a_captured_number_has_any_name(name: str) -> None:
    """Of the proof's own names too: it is another number than theirs."""
    mask, captures = f"j <= i + {name}", (Capture(name, "argument", (), "i32"),)
    named = softmax_spec(mask=mask, captures=captures)
    kernel = transfer_unverified(source("sm80"), named)
    assert unproved(prove(kernel, named)) == []
    wrong = softmax_spec(mask=f"({mask}) & (j != i + 593)", captures=captures)
    assert prove_part(kernel, wrong, "mask").refuted


@pytest.mark.parametrize("score", ["s * D ** -0.5", "50 * tanh(s)", "tanh(s) + c[j]", "minimum(s, 1.0)"])
def test_without_a_reference_scores_need_bounds(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_reference, "exponent_range", lambda *_: Interval(-1, 1))
    wanted = softmax(score, captures="c f32 Lk")
    steps = [s for s in propose(wanted, source()).passes if not isinstance(s, ConstantReference)]
    at = next(n for n, s in enumerate(steps) if isinstance(s, RewriteNormalize))
    target = run_pipeline(source(), Pipeline((*steps[: at + 1], ConstantReference(), *steps[at + 1 :])))
    assert "scores have no bounds" in prove_part(target, wanted, "rows").because


def test_growth_ends_early() -> None:
    """Sixty squares of what stands before: too large to write out, and told at once."""
    lines = "".join(f"    x{n} = x{n - 1} * x{n - 1} + x{n - 1}\n" for n in range(1, 61))
    grown = changed("softcap", ("    s = tanh_approx(s * p.score_scale)", f"    x0 = s\n{lines}    s = x60"))
    assert "grow too large" in prove_part(grown, spec("softcap"), "score").because
    assert prove_part(grown, spec("softcap"), "mask").proved


def test_proofs_are_kept_by_content() -> None:
    first = prove(changed("full"), spec("full"))
    assert prove(changed("full"), spec("full")) is first
