"""The rule proposer: from what a reference computes to the pipeline that makes a kernel compute it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Final

from cubridge.ir.algebra.exprs import TRUE, added, addends, either
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.nodes import SIZES, Binary, Call, Expr, FloatLit, IntLit, Kernel, Name
from cubridge.ir.spec import AttentionSpec, Capture, RowReduction, Shape
from cubridge.ir.walk import free_names, substitute, walk
from cubridge.passes.approximate import Approximate
from cubridge.passes.base import Pass, refusal
from cubridge.passes.captures import BindCaptured, PlaceCaptured
from cubridge.passes.constant_reference import ConstantReference
from cubridge.passes.dce import DropDeadCode
from cubridge.passes.hoist import Hoist
from cubridge.passes.kv_range import InferKvRange
from cubridge.passes.list_tiles import ListTiles
from cubridge.passes.mask import RewriteMask
from cubridge.passes.normalize import RewriteNormalize
from cubridge.passes.normalizer import exponentials
from cubridge.passes.options import RowTerm, Word
from cubridge.passes.pipeline import Pipeline
from cubridge.passes.row_bounds import RowBounds
from cubridge.passes.scale import ONE, Scale
from cubridge.passes.score import FoldScale, RewriteScore
from cubridge.passes.score_range import score_range
from cubridge.passes.simplify import Simplify
from cubridge.passes.small_weights import SmallWeights
from cubridge.passes.terms import Algebra, Terms
from cubridge.passes.truths import with_truths


def propose(spec: AttentionSpec, kernel: Kernel) -> Pipeline:
    """The pipeline for `spec` on `kernel`.

    Its order: captured values before the expressions that read them; the scale folded before the normalizer that uses its unit;
    the key range before the mask is regrouped; hoisting when all else stands.
    Errors: CU520 for a mapping of query heads to key heads other than the kernel's."""
    _check_heads(spec)
    spec = _constants_in_weight(_in_exponents(_with_truths(spec), kernel))
    seen, weight, rows = _visibility(spec)
    steps: list[Pass] = [
        *(_bind(c) for c in spec.captures),
        RewriteScore(spec.score),
        FoldScale(),
        RewriteMask(seen),
        RewriteNormalize(weight, spec.finalize, rows, spec.lse),
        *([ConstantReference()] if _is_bounded_softmax(spec) else []),
        Approximate(),
        SmallWeights(),
        InferKvRange(),
        ListTiles(),
        RowBounds(),
        PlaceCaptured(),
        Hoist(),
        Simplify(),
        DropDeadCode(),
    ]
    return Pipeline(tuple(steps))


def _in_exponents(spec: AttentionSpec, kernel: Kernel) -> AttentionSpec:
    """With a score that is the exponent itself, where weights are exponentials of one multiple of it."""
    bodies = (spec.weight, *(r.body for r in spec.rows))
    scales = {scale for e in exponentials(bodies) if (scale := _multiple(Algebra(kernel).terms(e))) is not None}
    if not spec.shift or len(scales) != 1 or scales == {ONE}:
        return spec
    (scale,) = scales
    unit = scale.to_expr()
    inverse = {n: Binary("/", Name(n), unit) for n in ("x", "m")}

    def rescaled(expr: Expr) -> Expr:
        return Algebra(kernel).normal(substitute(expr, inverse))

    return replace(
        spec,
        score=Binary("*", spec.score, unit, span=spec.score.span),
        weight=rescaled(spec.weight),
        rows=tuple(replace(r, body=rescaled(r.body)) for r in spec.rows),
        finalize=rescaled(spec.finalize),
        lse=None if spec.lse is None else rescaled(spec.lse),
    )


def _multiple(terms: Terms) -> Scale | None:
    """The constant that multiplies x in an exponent."""
    return next((t.scale for t in terms if t.over == (Name("x"),) and not t.under), None)


def _constants_in_weight(spec: AttentionSpec) -> AttentionSpec:
    """An elementwise weight takes over the constants that the score adds, where they join constants of its own."""
    if spec.shift:
        return spec
    constants = [part for part in addends(spec.score) if free_names(part[1]) <= {*SIZES}]
    if not constants or len(constants) == len(addends(spec.score)):
        return spec
    rest = added([part for part in addends(spec.score) if part not in constants])
    x = {"x": added([(1, Name("x")), *constants])}
    rows = tuple(replace(r, body=substitute(r.body, x)) for r in spec.rows)
    return replace(spec, score=rest, weight=substitute(spec.weight, x), rows=rows)


def _is_bounded_softmax(spec: AttentionSpec) -> bool:
    """Weights that are exponentials of a score with bounds, and one sum of them: these may do without a maximum."""
    weight = spec.weight
    is_softmax = weight == _SOFTMAX and [(r.kind, r.body, r.over) for r in spec.rows] == [("sum", weight, spec.mask)]
    return spec.shift and is_softmax and score_range(spec.score).is_bounded


_SOFTMAX: Final = Call("exp", (Binary("-", Name("x"), Name("m")),))


# ---- masks -----------------------------------------------------------------------------------------------------------


def _visibility(spec: AttentionSpec) -> tuple[Expr, Expr, tuple[RowTerm, ...]]:
    """The keys that the weight or any row reduction sees, and these restricted to their own where they see fewer."""
    seen = either(spec.mask, *(r.over for r in spec.rows))
    weight = spec.weight if spec.mask == seen else Call("where", (spec.mask, spec.weight, FloatLit(0.0)))
    return seen, weight, tuple(_row(r, seen) for r in spec.rows)


def _row(row: RowReduction, seen: Expr) -> RowTerm:
    return RowTerm(
        row.name, row.kind, row.body, None if row.over in (seen, TRUE) and seen in (row.over, TRUE) else row.over
    )


# ---- captured values -------------------------------------------------------------------------------------------------


def _bind(capture: Capture) -> BindCaptured:
    return BindCaptured(Word(capture.name), Word("f32" if capture.dtype == "f32" else "i32"), capture.extents)


def _with_truths(spec: AttentionSpec) -> AttentionSpec:
    """The spec with captured booleans, which the kernel has as integers, compared with 0."""

    def changed(expr: Expr) -> Expr:
        return with_truths(expr, spec)

    return replace(
        spec,
        score=changed(spec.score),
        mask=changed(spec.mask),
        weight=changed(spec.weight),
        finalize=changed(spec.finalize),
        lse=None if spec.lse is None else changed(spec.lse),
        rows=tuple(replace(r, over=changed(r.over), body=changed(r.body)) for r in spec.rows),
    )


# ---- heads -----------------------------------------------------------------------------------------------------------

_KEY_HEADS: Final = (1, 2, 3, 5)
_GROUPS: Final = (1, 2, 3, 4)


def _check_heads(spec: AttentionSpec) -> None:
    """Query head h reads key head h // (Hq // Hk), at all sizes that the spec admits."""
    wanted = (
        Shape(2, heads * group, heads, *lengths, head_dim)
        for head_dim in _head_dims(spec)
        for heads, group in product(_KEY_HEADS, _GROUPS)
        for lengths in ((257, 321), (320, 320))
    )
    fitting = fitting_shapes(spec, wanted)
    if not fitting:
        raise refusal("CU520", "no sizes that meet the preconditions were found", spec.kv_head.span)
    for shape in fitting:
        if any(_head(spec, shape, h) != h // (shape.Hq // shape.Hk) for h in range(shape.Hq)):
            raise refusal(
                "CU520",
                "query heads read other key heads than h // (Hq // Hk)",
                spec.kv_head.span,
                help="expand the key heads with repeat_interleave, as grouped heads are",
            )


def _head_dims(spec: AttentionSpec) -> set[int]:
    """A usual one, and those that preconditions may fix."""
    numbers = (n for p in spec.preconditions for n in walk(p.condition) if isinstance(n, IntLit))
    return {64, *(n.value for n in numbers if n.value > 0)}


def _head(spec: AttentionSpec, shape: Shape, h: int) -> object:
    return evaluate_number(spec.kv_head, {**shape.sizes(), "h": h})
