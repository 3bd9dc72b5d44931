"""Tensors made from numbers: full, ones, arange, eye, linspace."""

from __future__ import annotations

from typing import Any, Final

import torch

from cubridge.frontend.reference.algebra import integers, reals
from cubridge.frontend.reference.algebra.comparisons import cast, compare
from cubridge.frontend.reference.algebra.numbers import to_real
from cubridge.frontend.reference.algebra.terms import Sort, Term
from cubridge.frontend.reference.lift import Handler, Lifted, Lifter, sort_of_output
from cubridge.frontend.reference.record import Call
from cubridge.frontend.reference.values import Value


def _filled(lifter: Lifter, call: Call, fill: Any) -> Lifted:
    """A number everywhere, as the dtype rounds it; depends on no operand, whatever tensor gave the shape."""
    if isinstance(fill, float) and call.out.dtype.is_floating_point:
        fill = float(torch.tensor(fill, dtype=call.out.dtype))
    value, sort = lifter.value(fill), sort_of_output(call)
    return Value(lifter.shape(call.out), sort, lambda *_: cast(value.at(), sort), value.reads)


def _fixed(number: int) -> Handler:
    return lambda lifter, call: _filled(lifter, call, number)


def _given(parameter: str) -> Handler:
    return lambda lifter, call: _filled(lifter, call, call.arguments()[parameter])


def _copy(lifter: Lifter, call: Call) -> Lifted:
    source, shape, sort = lifter.value(call.args[1]), lifter.shape(call.out), sort_of_output(call)
    return lambda *ix: cast(source.broadcast(ix, shape), sort)


def _arange(lifter: Lifter, call: Call) -> Lifted:
    bound, sort = call.arguments(), sort_of_output(call)
    start, step = lifter.term(bound.get("start", 0)), lifter.term(bound.get("step", 1))

    def element(i: Term) -> Term:
        if Sort.REAL in (start.sort, step.sort):
            return cast(reals.add(start, reals.mul(to_real(i), step)), sort)
        return cast(integers.add(start, integers.mul(i, step)), sort)

    return element


def _linspace(lifter: Lifter, call: Call) -> Lifted:
    bound, sort = call.arguments(), sort_of_output(call)
    start, end, steps = (lifter.term(bound[n]) for n in ("start", "end", "steps"))
    gaps = integers.sub(steps, integers.ONE)

    def element(i: Term) -> Term:
        width = reals.mul(reals.sub(to_real(end), to_real(start)), reals.reciprocal(to_real(gaps)))
        return cast(reals.add(start, reals.mul(width, i)), sort)

    return element


def _eye(lifter: Lifter, call: Call) -> Lifted:
    sort = sort_of_output(call)
    return lambda i, j: cast(compare("==", i, j), sort)


_ZERO: Final = _fixed(0)
_ONE: Final = _fixed(1)

CREATION: Final[dict[str, Handler]] = {
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _ONE),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "new_empty"), _ZERO),
    **dict.fromkeys(("empty_strided", "new_empty_strided", "zeros_permuted", "empty_permuted"), _ZERO),
    "full": _given("fill_value"),
    "full_like": _given("fill_value"),
    "new_full": _given("fill_value"),
    "fill": _given("value"),
    "scalar_tensor": _given("s"),
    "copy": _copy,
    "arange": _arange,
    "linspace": _linspace,
    "eye": _eye,
}
