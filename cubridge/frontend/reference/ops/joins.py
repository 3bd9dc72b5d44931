"""Joining tensors: cat, stack, padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.comparisons import cast, compare
from cubridge.frontend.reference.algebra.integers import ZERO
from cubridge.frontend.reference.algebra.predicates import conjunction
from cubridge.frontend.reference.algebra.selection import where
from cubridge.frontend.reference.algebra.terms import Const, Term, const, is_const
from cubridge.frontend.reference.lift import Handler, Lifted, Lifter, sort_of_output
from cubridge.frontend.reference.ops.reroll import rerolled
from cubridge.frontend.reference.ops.views import axis_of, replaced
from cubridge.frontend.reference.record import Call
from cubridge.frontend.reference.values import Value

Element = Callable[[], Term]


def _cat(lifter: Lifter, call: Call) -> Lifted:
    tensors = [t for t in call.args[0] if not (t.dim() == 1 and isinstance(t.shape[0], int) and t.shape[0] == 0)]
    values = [lifter.value(t) for t in tensors]
    axis = axis_of(call.arguments()["dim"], values[0].rank)
    sort = sort_of_output(call)
    ends: list[Term] = []
    for value in values:
        ends.append(integers.add(ends[-1], value.shape[axis]) if ends else value.shape[axis])

    def element(*ix: Term) -> Term:
        if len(values) > 2 and all(is_const(v.shape[axis], 1) for v in values):
            parts = [cast(v.at(*replaced(ix, axis, ZERO)), sort) for v in values]
            return _chosen(parts, ix[axis])
        return _piece(0, *ix)

    def _piece(at: int, *ix: Term) -> Term:
        start = ends[at - 1] if at else ZERO
        here = lambda: cast(values[at].at(*replaced(ix, axis, integers.sub(ix[axis], start))), sort)  # noqa: E731
        if at == len(values) - 1:
            return here()
        return _select(compare("<", ix[axis], ends[at]), here, lambda: _piece(at + 1, *ix))

    return element


def _select(condition: Term, then: Element, otherwise: Element) -> Term:
    """A branch that is never taken is never built: its indices are out of range."""
    if isinstance(condition, Const):
        return then() if condition.value else otherwise()
    return where(condition, then(), otherwise())


def _chosen(parts: list[Term], position: Term) -> Term:
    """parts[position]: one expression of the position where they differ in it alone, else a chain of choices."""
    one = rerolled(parts, position)
    if one is not None:
        return one
    result = parts[-1]
    for at in reversed(range(len(parts) - 1)):
        result = where(compare("<=", position, const(at)), parts[at], result)
    return result


def _stack(lifter: Lifter, call: Call) -> Lifted:
    values = [lifter.value(t) for t in call.args[0]]
    axis = axis_of(call.arguments()["dim"], values[0].rank + 1)
    sort = sort_of_output(call)

    def element(*ix: Term) -> Term:
        rest = (*ix[:axis], *ix[axis + 1 :])
        return _chosen([cast(v.at(*rest), sort) for v in values], ix[axis])

    return element


def _pad(lifter: Lifter, call: Call) -> Lifted:
    value, bound = lifter.value(call.args[0]), call.arguments()
    before = {value.rank - 1 - n: lifter.term(bound["pad"][2 * n]) for n in range(len(bound["pad"]) // 2)}
    fill = cast(lifter.term(bound["value"] or 0), value.sort)

    def element(*ix: Term) -> Term:
        source = [integers.sub(i, before[axis]) if axis in before else i for axis, i in enumerate(ix)]
        inside = conjunction(*(_within(source[axis], value, axis) for axis in before))
        return _select(inside, lambda: value.at(*source), lambda: fill)

    return element


def _within(index: Term, value: Value, axis: int) -> Term:
    return conjunction(compare("<=", ZERO, index), compare("<", index, value.shape[axis]))


JOINS: Final[dict[str, Handler]] = {
    "cat": _cat,
    "concat": _cat,
    "stack": _stack,
    "constant_pad_nd": _pad,
}
