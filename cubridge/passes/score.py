"""The score rewrite, and the folding of its scale into the exponent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

from cubridge.ir.nodes import Assign, Expr, Index, Kernel, Name, Stmt
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.stable import stable
from cubridge.ir.walk import free_names, walk
from cubridge.passes.base import Pass, PassContext, fault
from cubridge.passes.coerce import Coercion
from cubridge.passes.host_params import HostParams, without_unused_hosts
from cubridge.passes.names import resolve
from cubridge.passes.regions import SCORE, assign, with_region
from cubridge.passes.scale import ONE, Scale
from cubridge.passes.softmax import softmax_of, unit, with_scale
from cubridge.passes.terms import Algebra, Terms, rebuilt, scaled
from cubridge.passes.wide import within_32_bits


@dataclass(frozen=True, slots=True)
class RewriteScore(Pass):
    """Replace the score: what the normalizer sees of the raw dot product s.
    rewrite:   region score: pass    -->   s = score
               exponent_scale        -->   LOG2E: a unit of score is one unit of the exponent of e
    requires:  score is a float over s, i, j, h, b, sizes and captured values.
    Errors:    CU505 to CU507 for the expression; CU512 if the normalizer is no running softmax any more; CU515."""

    name: ClassVar[str] = "rewrite-score"
    example: ClassVar[str] = 'rewrite-score{score="tanh(s * 0.02) * 50.0"}'
    score: Expr

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        softmax = softmax_of(kernel)
        score = stable(Coercion(kernel).number(resolve(self.score, kernel, ("s", "i", "j"))))
        return with_score(with_scale(kernel, softmax, ONE), Algebra(kernel).terms(score), self.score.span)


@dataclass(frozen=True, slots=True)
class FoldScale(Pass):
    """Fold the outermost constant factor of the score into the exponent.
    rewrite:   s = s * a + b, unit u   -->   s = s + b / a, unit u * a
    requires:  a is surely positive; otherwise it stays, since the row maximum must be taken after it.
               with captured tensors among b, a is at most ln 2, so that their fills stay what they are.
    ensures:   the same weights and the same LSE."""

    name: ClassVar[str] = "fold-scale"
    example: ClassVar[str] = 'rewrite-score{score="s * 0.125 + abs(f32(j - i))"},fold-scale'

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        softmax = softmax_of(kernel)
        terms = Algebra(kernel).terms(score_of(kernel))
        factor = outer_factor(terms)
        before = unit(kernel, softmax)
        if _adds_captured(terms) and not _is_small(before * factor):
            factor = _EXPONENT_OF_2 / before
        if factor == ONE:
            return kernel
        kernel = with_scale(kernel, softmax, before * factor)
        return with_score(kernel, scaled(terms, factor**-1))


_EXPONENT_OF_2: Final = Scale(powers=((Name("LOG2E"), -1.0),))
"""The unit of score in which the exponent needs no factor."""
_LEAST_HEAD_DIM: Final = 16


def _adds_captured(terms: Terms) -> bool:
    """Is an element of a captured tensor, one for each key, added to the score? It may be a fill near the end of fp32, which a
    factor of the exponent would take past it where the row's reference is the fill too."""
    return any(isinstance(n, Index) and "j" in free_names(n) for t in terms for x in t.over for n in walk(x))


def _is_small(unit: Scale) -> bool:
    """Is the factor of the exponent, `unit` times LOG2E, surely at most 1?"""
    others = [(b, p) for b, p in unit.powers if b != Name("D") or p > 0]
    size = math.prod(_LEAST_HEAD_DIM**p for b, p in unit.powers if b == Name("D"))
    return not others and abs(unit.coefficient) * size <= math.log(2)


def outer_factor(terms: Terms) -> Scale:
    """The positive host factor of the term with the raw score, or of the only term."""
    raw = [t for t in terms if SCORE in t.over]
    with_score = raw or [t for t in terms if any("s" in free_names(x) for x in t.over)]
    return with_score[0].scale.positive_part if with_score else ONE


def score_of(kernel: Kernel) -> Expr:
    """What the score region makes of s. Errors: CU513 if it is more than one assignment to s."""
    match kernel.region("score").body:
        case ():
            return SCORE
        case (Assign(Name("s"), value),):
            return value
        case _:
            raise fault("CU513", "the score region is more than one assignment to `s`", kernel.region("score").span)


def with_score(kernel: Kernel, terms: Terms, span: Span = NOWHERE) -> Kernel:
    """Errors: as `within_32_bits`."""
    params = HostParams(without_unused_hosts(with_region(kernel, "score", ())), "score")
    value = params.lower(rebuilt(terms))
    body: tuple[Stmt, ...] = () if value == SCORE else (assign("s", value),)
    return within_32_bits(with_region(params.kernel, "score", body), span)
