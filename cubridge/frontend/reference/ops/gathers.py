"""Reads at computed indices."""

from __future__ import annotations

from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import nonneg
from cubridge.frontend.reference.algebra.integers import ONE
from cubridge.frontend.reference.algebra.terms import Sort, Term, arena
from cubridge.frontend.reference.evaluate import never_negative
from cubridge.frontend.reference.lift import Handler, Lifted, Lifter, NoElementForm
from cubridge.frontend.reference.ops.views import axis_of, replaced, wrapped
from cubridge.frontend.reference.record import Call
from cubridge.frontend.reference.values import Value


def _subscript(lifter: Lifter, index: Term, extent: Term) -> Term:
    """A computed subscript. What is not known of its range is declared, and checked before a launch."""
    if not nonneg(index) or not nonneg(integers.sub(integers.sub(extent, ONE), index)):
        arena().subscripts.setdefault((index, extent), arena().here)
    return lifter.tabulated(index)


def _from_either_end(lifter: Lifter, index: Term, extent: Term) -> Term:
    """One that may be negative counts from the end: where it is made of positions alone, or the example of what it is made of
    does so; else a negative one is refused before a launch."""
    if not nonneg(index) and not (lifter.never_negative(index) if index.reads else never_negative(index)):
        index = wrapped(index, extent)
    return _subscript(lifter, index, extent)


def _index(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    given: list[Value | None] = [None if t is None else lifter.value(t) for t in call.args[1]]
    given += [None] * (value.rank - len(given))
    if any(g is not None and g.sort is Sort.BOOL for g in given):
        raise NoElementForm
    axes = [axis for axis, g in enumerate(given) if g is not None]
    rank = max(g.rank for g in given if g is not None)
    adjacent = axes[-1] - axes[0] + 1 == len(axes)
    first = axes[0] if adjacent else 0
    shape = lifter.shape(call.out)[first : first + rank]

    def element(*ix: Term) -> Term:
        advanced = ix[first : first + rank]
        rest = iter((*ix[:first], *ix[first + rank :]))
        source = (
            next(rest) if g is None else _from_either_end(lifter, g.broadcast(advanced, shape), value.shape[axis])
            for axis, g in enumerate(given)
        )
        return value.at(*source)

    return element


def _gather(lifter: Lifter, call: Call) -> Lifted:
    value, indices = lifter.value(call.args[0]), lifter.value(call.args[2])
    axis = axis_of(call.args[1], value.rank)
    return lambda *ix: value.at(*replaced(ix, axis, _subscript(lifter, indices.at(*ix), value.shape[axis])))


def _index_select(lifter: Lifter, call: Call) -> Lifted:
    value, indices = lifter.value(call.args[0]), lifter.value(call.args[2])
    axis = axis_of(call.args[1], value.rank)
    return lambda *ix: value.at(*replaced(ix, axis, _subscript(lifter, indices.at(ix[axis]), value.shape[axis])))


def _embedding(lifter: Lifter, call: Call) -> Lifted:
    table, indices = lifter.value(call.args[0]), lifter.value(call.args[1])
    return lambda *ix: table.at(_subscript(lifter, indices.at(*ix[:-1]), table.shape[0]), ix[-1])


def _take(lifter: Lifter, call: Call) -> Lifted:
    value, indices = lifter.value(call.args[0]), lifter.value(call.args[1])
    if value.rank != 1:
        raise NoElementForm
    return lambda *ix: value.at(_from_either_end(lifter, indices.at(*ix), value.shape[0]))


GATHERS: Final[dict[str, Handler]] = {
    "index": _index,
    "_unsafe_index": _index,
    "gather": _gather,
    "index_select": _index_select,
    "embedding": _embedding,
    "take": _take,
}
