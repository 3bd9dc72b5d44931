"""The prover says nothing that numbers contradict. Rules that are not sound are planted, and these tests notice each."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

import pytest

from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Call, Name
from cubridge.ir.parser import parse_expr
from cubridge.judge.proof import compare, evaluator, formulas, integers, prove, schedule, smt
from cubridge.judge.proof.cases import Cases
from cubridge.judge.proof.compare import Comparison
from cubridge.judge.proof.formulas import Formulas
from cubridge.judge.proof.induction import _Induction  # pyright: ignore[reportPrivateUsage]
from cubridge.judge.proof.intervals import Interval
from cubridge.judge.proof.keys import KeyProof
from cubridge.judge.proof.lists import ListProof
from cubridge.judge.proof.prove import prove_part
from cubridge.judge.proof.rewrites import REWRITES, Rewrite
from tests.judge.proof.fuzz import DIFFERENT, SAME, differ, false_proofs, proved
from tests.judge.proof.targets import changed, spec

Patch = pytest.MonkeyPatch


def test_nothing_false_is_proved() -> None:
    assert false_proofs() == []


@pytest.mark.parametrize("pair", SAME, ids=lambda p: " == ".join(p))
def test_what_is_the_same_is_proved(pair: tuple[str, str]) -> None:
    left, right = map(parse_expr, pair)
    assert not differ(left, right)
    assert proved(left, right)


def test_numbers_tell_what_is_different() -> None:
    """A pair that no point tells apart would show nothing."""
    assert [p for p in DIFFERENT if not differ(*map(parse_expr, p))] == []


@pytest.mark.parametrize("fn", REWRITES)
def test_rewrites_are_identities(fn: str) -> None:
    assert _is_identity(fn, REWRITES[fn])


TWINS: Final = {
    "exp2": "exp(u)",
    "log2": "log(u)",
    "rcp": "1 - u",
    "tanh_approx": "erf(u)",
    "sqrt": "u ** 2",
    "rsqrt": "u ** 0.5",
    "erfc": "1 + erf(u)",
    "log1p": "log(u)",
    "log1p_unit": "log(1 - u)",
    "expm1": "exp(u)",
}


def test_each_rewrite_has_a_twin() -> None:
    assert TWINS.keys() == REWRITES.keys()


@pytest.mark.parametrize("fn", TWINS)
def test_a_wrong_rewrite_is_noticed(fn: str) -> None:
    assert not _is_identity(fn, Rewrite(parse_expr(TWINS[fn])))


def _is_identity(fn: str, rewrite: Rewrite) -> bool:
    call = Call(fn, (Name("u"),))
    points = ({"u": u} for u in (0.03, 0.4, 0.99))
    values = ((evaluate_number(call, p), evaluate_number(rewrite.by, p)) for p in points)
    return all(abs(a - b) <= 1e-12 * (1 + abs(a)) for a, b in values)  # pyright: ignore


# ---- planted rules ---------------------------------------------------------------------------------------------------


def _odd_cosine(patch: Patch) -> None:
    patch.setattr(formulas, "ODD", (*formulas.ODD, "cos"))


def _every_sign_is_plus(patch: Patch) -> None:
    patch.setattr(Formulas, "sign", lambda self, value: 1)  # pyright: ignore


def _roots_of_squares(patch: Patch) -> None:
    patch.setattr(Formulas, "sign_of", lambda self, value: 1)  # pyright: ignore


def _numbers_are_rough(patch: Patch) -> None:
    exact = evaluator.constant
    patch.setattr(evaluator, "constant", lambda x: exact(Fraction(x).limit_denominator(100)))  # pyright: ignore


def _exp_of_a_sum(patch: Patch) -> None:
    patch.setattr(Formulas, "exp", lambda self, value: value)  # pyright: ignore


def _any_sums_are_alike(patch: Patch) -> None:
    patch.setattr(Formulas, "is_zero", lambda self, value: len(value.terms) < 2)  # pyright: ignore


def _a_wrong_rewrite(patch: Patch) -> None:
    patch.setitem(REWRITES, "erfc", Rewrite(parse_expr("1 + erf(u)")))  # pyright: ignore


def _contradictions_everywhere(patch: Patch) -> None:
    patch.setattr(Formulas, "is_impossible", lambda self: True)  # pyright: ignore


def _narrow_intervals(patch: Patch) -> None:
    patch.setattr(formulas, "interval_of", lambda _: Interval(Fraction(-1, 2), Fraction(1, 2)))  # pyright: ignore


def _first_case_alone(patch: Patch) -> None:
    every = Cases.runs
    patch.setattr(Cases, "runs", lambda self, run: [next(every(self, run))])  # pyright: ignore


ALGEBRA: Final[dict[str, Callable[[Patch], None]]] = {
    f.__name__: f
    for f in (
        _odd_cosine, _every_sign_is_plus, _roots_of_squares, _numbers_are_rough, _exp_of_a_sum, _any_sums_are_alike,
        _a_wrong_rewrite, _contradictions_everywhere, _narrow_intervals, _first_case_alone,
    )
}  # fmt: skip


@pytest.mark.parametrize("plant", ALGEBRA)
def test_an_unsound_rule_of_the_algebra_is_noticed(plant: str, monkeypatch: Patch) -> None:
    ALGEBRA[plant](monkeypatch)
    assert false_proofs(count=0) != []


def _always(patch: Patch) -> None:
    patch.setattr(smt, "ask", lambda *_: (smt.Answer.ALWAYS, {}))  # pyright: ignore


def _few_batches(patch: Patch) -> None:
    patch.setattr(integers, "LIMITS", {**integers.LIMITS, "B": 8})


def _no_bound_of_weights(patch: Patch) -> None:
    patch.setattr(_Induction, "_near", lambda *_: None)  # pyright: ignore


def _no_rescaling(patch: Patch) -> None:
    patch.setattr(_Induction, "_follows", lambda *_: None)  # pyright: ignore


def _nothing(module: object, name: str, answer: object = None) -> Callable[[Patch], None]:
    """A check that asks nothing."""
    return lambda patch: patch.setattr(module, name, lambda *_, **__: answer)  # pyright: ignore


def _floats_hold_more(patch: Patch) -> None:
    for module in (integers, evaluator):
        patch.setattr(module, "EXACT_IN_FP32", 2**40)


def _all_follows(patch: Patch) -> None:
    """Nothing that a planted rule says is remembered."""
    patch.setattr(schedule.PROOFS, "remembered", lambda _, answer: answer())  # pyright: ignore
    patch.setattr(schedule._Schedule, "_follows_at", lambda *_: True)  # pyright: ignore


_PROBS: Final = "s = exp2(s * p.exponent_scale - row.m_exponent)"
_COUNT: Final = "maximum(keys.hi - keys.lo, 0)"
PROOFS: Final[dict[str, tuple[Callable[[Patch], None], str, tuple[str, str], str]]] = {
    "a solver that always agrees": (_always, "prefix", ("j <= last", "(j <= last) & (j != 7001)"), "mask"),
    "sizes that are not all": (_few_batches, "prefix", ("j <= last", "(j <= last) & ((tile.b < 12) | (j < i))"), "mask"),
    "weights without bounds": (_no_bound_of_weights, "prefix", ("<= 8.0", "<= 1000.0"), "rows"),
    "a factor that is not looked at": (
        _no_rescaling, "prefix", ("exp2((row.m - m_safe) * p.exponent_scale)", "exp2((row.m - m_safe) * LOG2E)"), "rows",
    ),
    "integers of a mask past 2^24": (_floats_hold_more, "full", ("where(j < Lk,", "where(f32(j * 64) < f32(Lk * 64),"), "mask"),
    "integers of a score past 2^24": (_floats_hold_more, "relative", ("f32(i - j)", "f32((i - j) * 1000) * 0.001"), "score"),
    "a start that is not looked at": (_nothing(_Induction, "_start"), "prefix", ("row.l = 0.0", "row.l = 0.0001"), "rows"),
    "a divisor of 0": (_nothing(Comparison, "_has_value", True), "full", (_PROBS, f"{_PROBS} * (s / s)"), "weight"),
    "ends that are alike": (_nothing(compare, "_same", True), "prefix", ("* LN2)", "* 0.693)"), "LSE"),
    "tiles that are all visited": (
        _nothing(KeyProof, "_is_visited", smt.constant(True)), "prefix", (_COUNT, f"minimum({_COUNT}, 500)"), "keys",
    ),
    "roles that are alike": (
        _nothing(prove, "check_roles"), "full",
        ("if t + 1 < count:\n            copy_async(smem.k", "if t + 1 < 50:\n            copy_async(smem.k"), "keys",
    ),
    "lists that are walked anyhow": (
        _nothing(ListProof, "check"), "documents causal",
        ("count = p.tiles[list, 0]", "count = minimum(p.tiles[list, 0], 500)"), "keys",
    ),
    "captured values of any extent": (
        _nothing(prove, "check_captures"), "alibi", ("slope=Captured(f32, Hq)", "slope=Captured(f32, Hq + 1)"), "captures",
    ),
    "indices that are not looked at": (
        _nothing(prove, "check_indices", False), "alibi", ("p.slope[tile.h]", "p.slope[tile.h + 1]"), "captures",
    ),
    "a schedule of which all follows": (
        _all_follows, "full", ("head % Hq", "minimum(head % Hq, 129)"), "schedule",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROOFS)
def test_an_unsound_rule_of_a_proof_is_noticed(name: str, monkeypatch: Patch) -> None:
    """Each of these kernels is refused, and would not be with the rule planted."""
    plant, case, change, part = PROOFS[name]
    wrong = changed(case, change)
    assert not prove_part(wrong, spec(case), part).proved
    plant(monkeypatch)
    assert prove_part(wrong, spec(case), part).proved
