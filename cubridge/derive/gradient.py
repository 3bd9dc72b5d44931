"""The gradient of an attention, by symbolic differentiation.

    A  = (d out / d acc) dout             dR = sum_e (d out / d R) dout + (d lse / d R) dlse
    dx = (d w / d x) dp + sum over R of dR (d body / d x)          ds = dx (d x / d s)

The shift m is held fixed: what the outputs are is the same at every m, so that its own gradient is 0, and it is chosen such that
the backward pass needs least (`row_values`). A result that a derivative reads is put there by its name: the output itself, the
weight."""

from __future__ import annotations

from itertools import count
from typing import Final

from cubridge.derive.row_values import RowValues, row_values
from cubridge.derive.slopes import slopes
from cubridge.ir.algebra.arithmetic import ONE, ZERO, folded, minus, negative, plus, times
from cubridge.ir.algebra.derivative import derivative
from cubridge.ir.algebra.exprs import is_number
from cubridge.ir.diagnostics import Diagnostic, Refused
from cubridge.ir.gradient import Coefficient, GradientSpec, Part, Words
from cubridge.ir.nodes import Binary, Call, Expr, Name, Node
from cubridge.ir.spec import AttentionSpec, RowReduction
from cubridge.ir.stable import stable
from cubridge.ir.walk import free_names, rewrite, walk

_ACC: Final = "acc"


def derive(spec: AttentionSpec) -> GradientSpec:
    """The gradient of `spec` by q, k and v.

    Errors: CU514 where weights read a row reduction, CU530 for a function without a derivative, CU531 for a row maximum or minimum
    that the outputs depend on, CU532 where PyTorch's gradients at bounds differ among the operations of the reference."""
    tie = _tie(spec)
    rows = _differentiable_rows(spec)
    captures = {c.name for c in spec.captures}
    words = Words.beside({*captures, *(name for r in spec.rows for name in (r.name, _gradient_name(r, captures)))})
    values = row_values(spec, words)
    coefficients = tuple(_coefficient(spec, row, words, values, tie) for row in rows)
    coefficients = tuple(c for c in coefficients if c.each != ZERO or c.alone != ZERO)
    parts = _parts(spec, rows, coefficients, words, values, tie)
    found = slopes(spec, words, values.saves_lse, any("x" in free_names(p.value) for p in parts), tie)
    acc_grad = values.at_saved(times(derivative(spec.finalize, _ACC, tie), Name(words.dout)))
    weight = values.at_saved(spec.weight)
    read = free_names(acc_grad).union(free_names(weight), *(free_names(p.value) for p in parts))
    read = read.union(*(free_names(c.each) | free_names(c.alone) for c in coefficients), free_names(found.score_grad))
    return GradientSpec(
        forward=spec,
        words=words,
        saved=tuple(n for n in (words.out, _ACC, words.lse, "m", *(r.name for r in spec.rows)) if n in read),
        total=values.total,
        acc_grad=acc_grad,
        coefficients=coefficients,
        weight=weight,
        mask=spec.mask,
        parts=parts,
        slope=found.slope,
        slope_from=found.source,
        score_grad=found.score_grad,
        dq_scale=found.scale,
        dk_scale=found.scale,
        key_head=spec.kv_head,
        tie=tie,
        still=tuple(c.name for c in spec.captures if c.dtype == "f32"),
    )


def _tie(spec: AttentionSpec) -> float:
    extrema = [
        n for e in _element_exprs(spec) for n in walk(e) if isinstance(n, Call) and n.fn in ("maximum", "minimum")
    ]
    if spec.tie is None and extrema:
        message = "a ReLU, a maximum and a clamp pass on different gradients at their bounds, and this reference has two of them"
        raise Refused(Diagnostic("CU532", message, extrema[0].span, help="write them alike"))
    return 0.5 if spec.tie is None else spec.tie


def _element_exprs(spec: AttentionSpec) -> tuple[Expr, ...]:
    return spec.score, spec.weight, *(r.body for r in spec.rows)


def _differentiable_rows(spec: AttentionSpec) -> tuple[RowReduction, ...]:
    """Row sums. A maximum is none: its gradient goes to the keys where it is taken, which one pass does not know.
    Errors: CU514, CU531."""
    names = {r.name for r in spec.rows}
    for expr in (spec.weight, *(r.body for r in spec.rows)):
        if free_names(expr) & names:
            raise Refused(
                Diagnostic(
                    "CU514", "this reads a row reduction: its gradient takes a second sweep over the keys", expr.span
                )
            )
    for row in spec.rows:
        if row.kind != "sum":
            kind = {"max": "maximum", "min": "minimum"}[row.kind]
            message = (
                f"the outputs depend on the row {kind} `{row.name}`, whose gradient needs the keys where it is taken"
            )
            raise Refused(
                Diagnostic(
                    "CU531", message, row.body.span, help=f"detach the {kind} if it is there for stability alone"
                )
            )
    return spec.rows


# ---- the row kernel --------------------------------------------------------------------------------------------------


def _coefficient(spec: AttentionSpec, row: RowReduction, words: Words, values: RowValues, tie: float) -> Coefficient:
    each = times(derivative(spec.finalize, row.name, tie), Name(words.dout))
    alone = ZERO if spec.lse is None else times(derivative(spec.lse, row.name, tie), Name(words.dlse))
    name = _gradient_name(row, {c.name for c in spec.captures})
    return Coefficient(name, row.name, values.at_saved(each), values.at_saved(alone))


def _gradient_name(row: RowReduction, captures: set[str]) -> str:
    return next(name for n in count() if (name := f"d{row.name}" + "_" * n) not in captures)


# ---- the main kernel -------------------------------------------------------------------------------------------------


def _parts(
    spec: AttentionSpec,
    rows: tuple[RowReduction, ...],
    coefficients: tuple[Coefficient, ...],
    words: Words,
    values: RowValues,
    tie: float,
) -> tuple[Part, ...]:
    """By the keys that they range over, and with what they are multiplied by in common."""
    names = {c.row: c.name for c in coefficients}
    terms = [(spec.mask, Name(words.dp), derivative(spec.weight, "x", tie))]
    terms += [(r.over, Name(names[r.name]), derivative(r.body, "x", tie)) for r in rows if r.name in names]
    grouped: dict[Expr, dict[Expr, Expr]] = {}
    for keys, factor, slope in terms:
        sums = grouped.setdefault(keys, {})
        in_weight = _in_weight(values.at_saved(slope), values.at_saved(spec.weight), Name(words.weight))
        sums[in_weight] = plus(sums.get(in_weight, ZERO), factor)
    found: list[Part] = []
    for keys, sums in grouped.items():
        value: Expr = ZERO
        for slope, factor in sums.items():
            value = plus(value, times(stable(slope), factor))
        if value != ZERO:
            found.append(Part(keys, value))
    return tuple(found)


def _in_weight(expr: Expr, weight: Expr, name: Name) -> Expr:
    """The expression with the weight's name wherever the weight stands. Of a weight 1 / u, a / u has it for a factor; of a sigmoid
    1 / (1 + exp(u)), 1 / (1 + exp(-u)) is what it lacks of 1."""
    divisor, opposite = _divisor(weight), _opposite(weight)

    def change(node: Node) -> Node:
        if node == weight:
            return name
        match node:
            case Binary("/", top, below) if below == opposite:
                return times(top, minus(ONE, name))
            case Binary("/", top, below) if below == divisor:
                return times(name, top)
            case _:
                return node

    return folded(rewrite(expr, change))


def _divisor(weight: Expr) -> Expr | None:
    match weight:
        case Binary("/", one, total) if is_number(one, 1):
            return total
        case _:
            return None


def _opposite(weight: Expr) -> Expr | None:
    match _divisor(weight):
        case Binary("+", one, Call("exp", (power,))) if is_number(one, 1):
            return plus(ONE, Call("exp", (negative(power),)))
        case _:
            return None
