"""Comparisons of a score's mask, from what they compare at many scores: a formula of i, j and sizes that fits all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from cubridge.frontend.ptx.formula import Formula, Hole, filled
from cubridge.ir.algebra.exprs import MIRRORED, negated
from cubridge.ir.algebra.normal import compared, poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Binary, Call, Expr, Name, Unary
from cubridge.ir.walk import free_names

_FACTORS: Final = (0, 1, -1)
"""Of i and j in a comparison."""
_KEY: Final = Name("j")
_ORDERS: Final = ("<", "<=", ">", ">=")
_MINUS_INF: Final = Unary("-", Name("inf"))


@dataclass(frozen=True, slots=True)
class Placed:
    """A score's formula, with row and key of the score as the run's own integers say them."""

    formula: Formula
    i: Poly
    j: Poly


@dataclass(frozen=True, slots=True)
class Masked:
    """`score` over `s`; `mask`, None where there is none. `steps`: how many of the first key tiles it is asked in; None: in all."""

    score: Expr
    mask: Expr | None
    steps: int | None


def score_and_mask(samples: Sequence[tuple[int, Placed]]) -> Masked:
    """Of scores with the step of their key tile. Errors: CU854 where they differ otherwise than that later tiles have no mask."""
    forms = {placed.formula.expr: placed for _, placed in samples}
    masked = [placed for _, placed in samples if placed.formula.holes]
    steps = {t for t, placed in samples if placed.formula.holes}
    if len(forms) == 1:
        return Masked(*_read([placed for _, placed in samples]), None)
    others = [placed for _, placed in samples if not placed.formula.holes]
    if len(forms) != 2 or len({p.formula.expr for p in others}) != 1:
        raise _several(samples)
    score, mask = _read(masked)
    if mask is None or others[0].formula.expr != score:
        raise _several(samples)
    if any(t < max(steps) for t, placed in samples if not placed.formula.holes):
        message = "scores are hidden in some key tiles alone, and not in the first ones"
        raise CuError(Diagnostic("CU854", message, mask.span))
    return Masked(score, mask, max(steps) + 1)


def _several(samples: Sequence[tuple[int, Placed]]) -> CuError:
    return CuError(Diagnostic("CU854", "scores of one kernel have several formulas", samples[0][1].formula.expr.span))


def _read(samples: Sequence[Placed]) -> tuple[Expr, Expr | None]:
    first = samples[0].formula
    holes = {f"#{n}": _fitted([(s.formula.holes[n], s) for s in samples]) for n in range(len(first.holes))}
    match filled(first, holes):
        case Call("where", (condition, score, otherwise)) if otherwise == _MINUS_INF:
            return score, _plain(condition)
        case Call("where", (condition, otherwise, score)) if otherwise == _MINUS_INF:
            return score, _plain(Unary("~", condition, span=condition.span))
        case score:
            return score, None


def _plain(condition: Expr) -> Expr:
    """Without a negation around comparisons of integers, and with the key on their left."""
    match condition:
        case Unary("~", inner) if "s" not in free_names(inner):
            return replace(_plain(negated(inner)), span=condition.span)
        case Binary("&" | "|" as op, left, right):
            return Binary(op, _plain(left), _plain(right), span=condition.span)
        case Binary(op, left, right) if op in _ORDERS and "s" not in free_names(condition):
            difference = poly(left) - poly(right)
            if difference.coefficient((_KEY,)) < 0:
                op, difference = MIRRORED[op], -difference
            return replace(compared(op, difference), span=condition.span)
        case _:
            return condition


def _fitted(holes: list[tuple[Hole, Placed]]) -> Expr:
    strict = [(_strict(hole), placed) for hole, placed in holes]
    span = holes[0][0].span
    fits: list[Expr] = []
    for a, b in product(_FACTORS, repeat=2):
        rests = [h.difference - p.i * a - p.j * b for h, p in strict]
        if all(r.equals(rests[0]) for r in rests[1:]) and not any(map(_is_of_block, rests[0].atoms())):
            whole = rests[0] + Poly.atom(Name("i")) * a + Poly.atom(Name("j")) * b
            fits.append(_comparison(strict[0][0].op, whole))
    if len(fits) != 1 or len({h.op for h, _ in strict}) != 1:
        why = "is no formula of i, j and sizes" if not fits else "is shown by too few scores"
        raise CuError(Diagnostic("CU854", f"a condition of a score {why}", span))
    return replace(fits[0], span=span)


def _strict(hole: Hole) -> Hole:
    """As `difference < 0`, or `==`, `!=`."""
    match hole.op:
        case "<=":
            return Hole("<", hole.difference - 1, hole.span)
        case ">":
            return Hole("<", -hole.difference, hole.span)
        case ">=":
            return Hole("<", -hole.difference - 1, hole.span)
        case _:
            return hole


def _comparison(op: str, difference: Poly) -> Expr:
    if op == "<":
        return compared("<", difference)
    positive = Poly(tuple((m, c) for m, c in difference.terms if c > 0))
    return Binary(op, to_expr(positive), to_expr(positive - difference))


def _is_of_block(atom: Expr) -> bool:
    return isinstance(atom, Name) and atom.id.startswith("block_")
