"""Reductions and what is built from them: sums, extrema, softmax, matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

from cubridge.frontend.reference.algebra import functions, integers, reals
from cubridge.frontend.reference.algebra.comparisons import cast, to_bool
from cubridge.frontend.reference.algebra.numbers import to_int, to_real
from cubridge.frontend.reference.algebra.reduce import reduce
from cubridge.frontend.reference.algebra.terms import Index, Sort, Term, is_const
from cubridge.frontend.reference.lift import Handler, Lifted, Lifter, NoElementForm, sort_of_output
from cubridge.frontend.reference.ops.elementwise import elementwise
from cubridge.frontend.reference.ops.views import axis_of
from cubridge.frontend.reference.record import Call
from cubridge.frontend.reference.values import Value

Element = Callable[..., Term]


def _axes(dims: Any, rank: int) -> list[int]:
    if dims is None or dims == []:
        return list(range(rank))
    return [axis_of(d, rank) for d in ([dims] if isinstance(dims, int) else dims)]


def _reduced(
    lifter: Lifter,
    value: Value,
    axes: Sequence[int],
    keep: bool,
    kind: str,
    before: Callable[[Term], Term] = lambda t: t,
    after: Callable[[Term], Term] = lambda t: t,
) -> Element:
    def element(*ix: Term) -> Term:
        rest = iter(ix)
        full: list[Term] = []
        bound: list[Index] = []
        for axis, extent in enumerate(value.shape):
            if axis in axes:
                bound.append(lifter.fresh_index(extent))
                full.append(bound[-1])
                if keep:
                    next(rest)
            else:
                full.append(next(rest))
        term = before(value.at(*full))
        for index in bound:
            term = reduce(kind, index, term)
        return after(term)

    return element


def _operand(lifter: Lifter, call: Call) -> tuple[Value, list[int], bool]:
    bound = call.arguments()
    value = lifter.value(call.args[0])
    return value, _axes(bound.get("dim"), value.rank), bool(bound.get("keepdim", False))


def _sum(lifter: Lifter, call: Call) -> Lifted:
    value, axes, keep = _operand(lifter, call)
    sort = sort_of_output(call)
    return _reduced(lifter, value, axes, keep, "sum", to_real, (lambda t: t) if sort is Sort.REAL else to_int)


def _mean(lifter: Lifter, call: Call) -> Lifted:
    value, axes, keep = _operand(lifter, call)

    def divided(term: Term) -> Term:
        for axis in axes:
            term = reals.mul(term, reals.reciprocal(to_real(value.shape[axis])))
        return term

    return _reduced(lifter, value, axes, keep, "sum", to_real, divided)


def _count_nonzero(lifter: Lifter, call: Call) -> Lifted:
    value, axes, keep = _operand(lifter, call)
    return _reduced(lifter, value, axes, keep, "sum", lambda t: to_real(to_bool(t)), to_int)


def _extremum(kind: str) -> Handler:
    def handler(lifter: Lifter, call: Call) -> Lifted:
        bound = call.arguments()
        if "other" in bound:
            return elementwise(functions.maximum if kind == "max" else functions.minimum)(lifter, call)
        value, axes, keep = _operand(lifter, call)
        values = _reduced(lifter, value, axes, keep, kind, _number)
        if len(call.outputs()) == 1:
            return values
        return [values, _no_positions]

    return handler


def _number(term: Term) -> Term:
    return to_int(term) if term.sort is Sort.BOOL else term


def _no_positions(*_: Term) -> Term:
    """Where the extremum stands: no term says that."""
    raise NoElementForm


def _quantifier(kind: str) -> Handler:
    def handler(lifter: Lifter, call: Call) -> Lifted:
        value, axes, keep = _operand(lifter, call)
        return _reduced(lifter, value, axes, keep, kind, to_bool)

    return handler


def _norm(lifter: Lifter, call: Call) -> Lifted:
    value, axes, keep = _operand(lifter, call)
    bound = call.arguments()
    order = bound.get("ord", bound.get("p", 2))
    match order:
        case None | 2 | 2.0:
            square = lambda t: reals.mul(to_real(t), to_real(t))  # noqa: E731
            return _reduced(lifter, value, axes, keep, "sum", square, lambda t: reals.power(t, Fraction(1, 2)))
        case 1 | 1.0:
            return _reduced(lifter, value, axes, keep, "sum", lambda t: functions.unary("abs", t))
        case float() if order == float("inf"):
            return _reduced(lifter, value, axes, keep, "max", lambda t: functions.unary("abs", t))
        case _:
            raise NoElementForm


# ---- softmax ---------------------------------------------------------------------------------------------------------


class _Row:
    """One row of a tensor along an axis: its elements, maximum and shifted sum of exponentials."""

    def __init__(self, lifter: Lifter, value: Value, axis: int, indices: tuple[Term, ...]) -> None:
        self.at: Element = lambda i: to_real(value.at(*indices[:axis], i, *indices[axis + 1 :]))
        first = lifter.fresh_index(value.shape[axis])
        self.maximum = reduce("max", first, self.at(first))
        second = lifter.fresh_index(value.shape[axis])
        self.total = reduce("sum", second, reals.exp(reals.sub(self.at(second), self.maximum)))


def _softmax(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    axis = axis_of(call.args[1], value.rank)

    def element(*ix: Term) -> Term:
        row = _Row(lifter, value, axis, ix)
        return reals.mul(reals.exp(reals.sub(row.at(ix[axis]), row.maximum)), reals.reciprocal(row.total))

    return element


def _log_softmax(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    axis = axis_of(call.args[1], value.rank)

    def element(*ix: Term) -> Term:
        row = _Row(lifter, value, axis, ix)
        return reals.sub(reals.sub(row.at(ix[axis]), row.maximum), reals.log(row.total))

    return element


def _logsumexp(lifter: Lifter, call: Call) -> Lifted:
    value, axes, keep = _operand(lifter, call)
    if len(axes) != 1:
        raise NoElementForm
    axis = axes[0]

    def element(*ix: Term) -> Term:
        full = ix if keep else (*ix[:axis], integers.ZERO, *ix[axis:])
        row = _Row(lifter, value, axis, full)
        return reals.add(row.maximum, reals.log(row.total))

    return element


# ---- matrix products -------------------------------------------------------------------------------------------------


def _product(lifter: Lifter, call: Call) -> Lifted:
    """Products of matrices in batches, bmm, mm, mv, dot; addmm and baddbmm with their scaled addend."""
    bound = call.arguments()
    addend = lifter.value(call.args[0]) if call.name in ("addmm", "baddbmm", "addmv", "addbmm") else None
    left, right = (lifter.value(a) for a in (call.args[1:3] if addend is not None else call.args[:2]))
    shape = lifter.shape(call.out)
    alpha, beta = to_real(lifter.term(bound.get("alpha", 1))), to_real(lifter.term(bound.get("beta", 1)))
    vector = right.rank == 1

    def element(*ix: Term) -> Term:
        along = lifter.fresh_index(left.shape[-1])
        if vector:
            term = reals.mul(left.at(*ix, along), right.at(along))
        else:
            row, column = (*ix[:-1], along), (*ix[:-2], along, ix[-1])
            term = reals.mul(left.broadcast(row, shape), right.broadcast(column, shape))
        total = reals.mul(reduce("sum", along, term), alpha)
        if addend is None or is_const(beta, 0):
            return total
        return reals.add(total, reals.mul(addend.broadcast(ix, shape), beta))

    return element


def _cumsum(lifter: Lifter, call: Call) -> Lifted:
    """Only of a value that does not vary along the axis: a count."""
    value = lifter.value(call.args[0])
    axis = axis_of(call.args[1], value.rank)
    sort = sort_of_output(call)
    probes = [lifter.fresh_index(n) for n in value.shape]
    if value.reads or probes[axis].name in value.at(*probes).free:
        raise NoElementForm

    def element(*ix: Term) -> Term:
        one = value.at(*ix)
        count = integers.add(ix[axis], integers.ONE)
        if one.sort is Sort.REAL:
            return cast(reals.mul(one, count), sort)
        return cast(integers.mul(to_int(one), count), sort)

    return element


REDUCTIONS: Final[dict[str, Handler]] = {
    "sum": _sum,
    "mean": _mean,
    "count_nonzero": _count_nonzero,
    "amax": _extremum("max"),
    "amin": _extremum("min"),
    "max": _extremum("max"),
    "min": _extremum("min"),
    "any": _quantifier("any"),
    "all": _quantifier("all"),
    "linalg_vector_norm": _norm,
    "norm": _norm,
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax"), _softmax),
    **dict.fromkeys(("_log_softmax", "log_softmax"), _log_softmax),
    "logsumexp": _logsumexp,
    **dict.fromkeys(("product", "bmm", "mm", "mv", "dot", "vdot", "addmm", "baddbmm", "addmv"), _product),
    "cumsum": _cumsum,
}
