"""Writes into part of a tensor, as functionalize leaves them: the new tensor as a choice between new and old elements."""

from __future__ import annotations

from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.comparisons import cast, compare
from cubridge.frontend.reference.algebra.integers import ZERO
from cubridge.frontend.reference.algebra.predicates import conjunction
from cubridge.frontend.reference.algebra.selection import where
from cubridge.frontend.reference.algebra.terms import Sort, Term, is_const
from cubridge.frontend.reference.lift import Handler, Lifted, Lifter, NoElementForm
from cubridge.frontend.reference.ops.views import axis_of, clipped, replaced, wrapped
from cubridge.frontend.reference.record import Call


def _slice_scatter(lifter: Lifter, call: Call) -> Lifted:
    value, source, bound = lifter.value(call.args[0]), lifter.value(call.args[1]), call.arguments()
    axis = axis_of(bound["dim"], value.rank)
    start = clipped(lifter, bound["start"], value.shape[axis], ZERO)
    end = clipped(lifter, bound["end"], value.shape[axis], value.shape[axis])
    step = lifter.term(bound["step"])

    def element(*ix: Term) -> Term:
        offset = integers.sub(ix[axis], start)
        inside = conjunction(compare("<=", start, ix[axis]), compare("<", ix[axis], end))
        if not is_const(step, 1):
            inside = conjunction(inside, compare("==", integers.mod(offset, step), ZERO))
            offset = integers.floordiv(offset, step)
        return where(inside, cast(source.at(*replaced(ix, axis, offset)), value.sort), value.at(*ix))

    return element


def _select_scatter(lifter: Lifter, call: Call) -> Lifted:
    value, source = lifter.value(call.args[0]), lifter.value(call.args[1])
    axis = axis_of(call.args[2], value.rank)
    position = wrapped(lifter.term(call.args[3]), value.shape[axis])

    def element(*ix: Term) -> Term:
        new = cast(source.at(*replaced(ix, axis)), value.sort)
        return where(compare("==", ix[axis], position), new, value.at(*ix))

    return element


def _index_put(lifter: Lifter, call: Call) -> Lifted:
    """`x[mask] = number`; other indexed writes depend on the order of their indices."""
    bound = call.arguments()
    value = lifter.value(bound["self"])
    given = [None if t is None else lifter.value(t) for t in bound["indices"]]
    masks = [(axis, g) for axis, g in enumerate(given) if g is not None]
    new = lifter.value(bound["values"])
    scalar = all(is_const(n, 1) for n in new.shape)
    if bound["accumulate"] or len(masks) != 1 or masks[0][1].sort is not Sort.BOOL or not scalar:
        raise NoElementForm
    axis, mask = masks[0]
    number = [ZERO] * new.rank

    def element(*ix: Term) -> Term:
        chosen = mask.at(*ix[axis : axis + mask.rank])
        return where(chosen, cast(new.at(*number), value.sort), value.at(*ix))

    return element


def _diagonal_scatter(lifter: Lifter, call: Call) -> Lifted:
    value, source, bound = lifter.value(call.args[0]), lifter.value(call.args[1]), call.arguments()
    first, second = axis_of(bound["dim1"], value.rank), axis_of(bound["dim2"], value.rank)
    offset = lifter.term(bound["offset"])
    if not is_const(offset, 0):
        raise NoElementForm

    def element(*ix: Term) -> Term:
        rest = (i for axis, i in enumerate(ix) if axis not in (first, second))
        new = cast(source.at(*rest, ix[first]), value.sort)
        return where(compare("==", ix[first], ix[second]), new, value.at(*ix))

    return element


SCATTERS: Final[dict[str, Handler]] = {
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "diagonal_scatter": _diagonal_scatter,
    "index_put": _index_put,
    "_index_put_impl": _index_put,
    "_unsafe_index_put": _index_put,
}
