"""Views: the same elements at other indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cubridge.frontend.reference.algebra import functions, integers
from cubridge.frontend.reference.algebra.bounds import nonneg
from cubridge.frontend.reference.algebra.comparisons import compare
from cubridge.frontend.reference.algebra.integers import MINUS_ONE, ONE, ZERO
from cubridge.frontend.reference.algebra.selection import where
from cubridge.frontend.reference.algebra.terms import Const, Term, is_const
from cubridge.frontend.reference.lift import Handler, Lifted, Lifter, NoElementForm
from cubridge.frontend.reference.printing import text
from cubridge.frontend.reference.record import Call
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.sizes import NO_LIMIT, follows_sizes
from cubridge.frontend.reference.values import Shape

Indices = tuple[Term, ...]


def axis_of(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


def replaced(indices: Indices, axis: int, *new: Term) -> Indices:
    return (*indices[:axis], *new, *indices[axis + 1 :])


def wrapped(index: Term, extent: Term) -> Term:
    """A subscript as Python counts it: negative ones from the end."""
    if nonneg(index):
        return index
    if nonneg(integers.sub(MINUS_ONE, index)):
        return integers.add(index, extent)
    return where(compare("<=", ZERO, index), index, integers.add(index, extent))


def _view(lifter: Lifter, call: Call) -> Lifted:
    """Only merged axes are split: runs of equal products are matched, mixed radix inside a run."""
    value, new = lifter.value(call.args[0]), lifter.shape(call.out)
    if call.out.dtype is not call.args[0].dtype:
        raise NoElementForm  # the bits as another type
    runs = _runs(value.shape, new) or _runs(*(lifter.sizes.in_parts(shape) for shape in (value.shape, new)))
    if runs is None:
        refuse(
            "CU476", f"a view of {_text(value.shape)} as {_text(new)}", call.span, "write it with flatten and unflatten"
        )

    def element(*ix: Term) -> Term:
        source: list[Term] = []
        for old_axes, new_axes in runs:
            linear: Term = ZERO
            for axis in new_axes:
                linear = integers.add(integers.mul(linear, new[axis]), ix[axis])
            source += _digits(linear, [value.shape[a] for a in old_axes])
        return value.at(*source)

    return element


def _digits(linear: Term, extents: list[Term]) -> list[Term]:
    """The index in each extent of a row-major linear index."""
    digits: list[Term] = []
    for position, extent in reversed(list(enumerate(extents))):
        if position == 0:
            digits.append(linear)
        else:
            digits.append(integers.mod(linear, extent))
            linear = integers.floordiv(linear, extent)
    return digits[::-1]


def _runs(old: Shape, new: Shape) -> list[tuple[range, range]] | None:
    """Shortest runs of axes with equal products; None where the products cannot be compared."""
    runs: list[tuple[range, range]] = []
    a = b = 0
    while a < len(old) or b < len(new):
        start_a, start_b = a, b
        left: Term = ONE
        right: Term = ONE
        if a < len(old):
            left, a = old[a], a + 1
        if b < len(new):
            right, b = new[b], b + 1
        while left is not right:
            if a < len(old) and (nonneg(integers.sub(right, left)) or b >= len(new)):
                left, a = integers.mul(left, old[a]), a + 1
            elif b < len(new):
                right, b = integers.mul(right, new[b]), b + 1
            else:
                return None
        runs.append((range(start_a, a), range(start_b, b)))
    return runs


def _text(shape: Shape) -> str:
    return "[" + ", ".join(map(text, shape)) + "]"


def _expand(lifter: Lifter, call: Call) -> Lifted:
    value, shape = lifter.value(call.args[0]), lifter.shape(call.out)
    return lambda *ix: value.broadcast(ix, shape)


def _permute(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    order = [d % value.rank for d in call.args[1]]
    return lambda *ix: value.at(*(ix[order.index(axis)] for axis in range(value.rank)))


def _transpose(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    if value.rank < 2:
        return value.at
    first, second = (axis_of(d, value.rank) for d in call.args[1:3]) if len(call.args) > 1 else (0, 1)

    def element(*ix: Term) -> Term:
        source = list(ix)
        source[first], source[second] = source[second], source[first]
        return value.at(*source)

    return element


def _unsqueeze(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    axis = axis_of(call.args[1], value.rank + 1)
    return lambda *ix: value.at(*replaced(ix, axis))


def _squeeze(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    dims = call.args[1] if len(call.args) > 1 else range(value.rank)
    chosen = {axis_of(d, value.rank) for d in ([dims] if isinstance(dims, int) else dims)}
    dropped = {axis for axis in chosen if is_const(value.shape[axis], 1)}

    def element(*ix: Term) -> Term:
        rest = iter(ix)
        return value.at(*(ZERO if axis in dropped else next(rest) for axis in range(value.rank)))

    return element


def clipped(lifter: Lifter, bound: Any, extent: Term, default: Term) -> Term:
    """A slice bound inside [0, extent]."""
    if bound is None:
        return default
    term = lifter.term(bound)
    if isinstance(term, Const) and int(term.value) >= NO_LIMIT:
        return extent
    if nonneg(integers.sub(MINUS_ONE, term)):
        term = integers.add(term, extent)
    elif not nonneg(term):
        term = wrapped(term, extent)
    return functions.minimum(functions.maximum(term, ZERO), extent)


def _slice(lifter: Lifter, call: Call) -> Lifted:
    value, bound = lifter.value(call.args[0]), call.arguments()
    axis = axis_of(bound["dim"], value.rank)
    _check_own_extent(lifter, call, axis)
    start = clipped(lifter, bound["start"], value.shape[axis], ZERO)
    step = lifter.term(bound["step"])
    return lambda *ix: value.at(*replaced(ix, axis, integers.add(start, integers.mul(ix[axis], step))))


def _check_own_extent(lifter: Lifter, call: Call, axis: int) -> None:
    """A part of an argument whose extent follows no size, as `mask[..., : Lk]` of a longer mask, is taken before the launch where
    the part's own extent does follow one. Errors: NoElementForm."""
    before, after = lifter.shape(call.args[0])[axis], lifter.shape(call.out)[axis]
    if follows_sizes(after) and not follows_sizes(before):
        raise NoElementForm


def _narrow(lifter: Lifter, call: Call) -> Lifted:
    value, (_, dim, start, _length) = lifter.value(call.args[0]), call.args
    axis = axis_of(dim, value.rank)
    _check_own_extent(lifter, call, axis)
    first = wrapped(lifter.term(start), value.shape[axis])
    return lambda *ix: value.at(*replaced(ix, axis, integers.add(first, ix[axis])))


def _select(lifter: Lifter, call: Call) -> Lifted:
    value, (_, dim, position) = lifter.value(call.args[0]), call.args
    axis = axis_of(dim, value.rank)
    fixed = wrapped(lifter.term(position), value.shape[axis])
    return lambda *ix: value.at(*ix[:axis], fixed, *ix[axis:])


def _unbind(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    axis = axis_of(call.arguments()["dim"], value.rank)

    def part(position: int) -> Callable[..., Term]:
        fixed = lifter.term(position)
        return lambda *ix: value.at(*ix[:axis], fixed, *ix[axis:])

    return [part(n) for n in range(len(call.out))]


def _split(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    axis = axis_of(call.arguments()["dim"], value.rank)
    parts: list[Callable[..., Term]] = []
    offset: Term = ZERO
    for out in call.out:
        parts.append(lambda *ix, o=offset: value.at(*replaced(ix, axis, integers.add(o, ix[axis]))))
        offset = integers.add(offset, lifter.shape(out)[axis])
    return parts


def _flip(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    axes = {axis_of(d, value.rank) for d in call.args[1]}

    def element(*ix: Term) -> Term:
        last = [integers.sub(extent, ONE) for extent in value.shape]
        return value.at(*(integers.sub(last[a], i) if a in axes else i for a, i in enumerate(ix)))

    return element


def _roll(lifter: Lifter, call: Call) -> Lifted:
    value, bound = lifter.value(call.args[0]), call.arguments()
    if not bound["dims"]:
        raise NoElementForm
    shifts = {axis_of(d, value.rank): lifter.term(s) for d, s in zip(bound["dims"], bound["shifts"], strict=True)}

    def element(*ix: Term) -> Term:
        moved = (
            integers.mod(integers.sub(i, shifts[a]), value.shape[a]) if a in shifts else i for a, i in enumerate(ix)
        )
        return value.at(*moved)

    return element


def _repeat(lifter: Lifter, call: Call) -> Lifted:
    value = lifter.value(call.args[0])
    skip = len(call.args[1]) - value.rank
    return lambda *ix: value.at(
        *(ZERO if is_const(n, 1) else integers.mod(ix[skip + axis], n) for axis, n in enumerate(value.shape))
    )


def _repeat_interleave(lifter: Lifter, call: Call) -> Lifted:
    bound = call.arguments()
    if "self" not in bound or bound["dim"] is None or hasattr(bound["repeats"], "dim"):
        raise NoElementForm
    value = lifter.value(bound["self"])
    axis = axis_of(bound["dim"], value.rank)
    times = lifter.term(bound["repeats"])
    return lambda *ix: value.at(*replaced(ix, axis, integers.floordiv(ix[axis], times)))


def _diagonal(lifter: Lifter, call: Call) -> Lifted:
    value, bound = lifter.value(call.args[0]), call.arguments()
    first, second = axis_of(bound["dim1"], value.rank), axis_of(bound["dim2"], value.rank)
    offset = lifter.term(bound["offset"])
    row = functions.maximum(integers.neg(offset), ZERO)
    column = functions.maximum(offset, ZERO)

    def element(*ix: Term) -> Term:
        rest = iter(ix[:-1])
        along = {first: integers.add(ix[-1], row), second: integers.add(ix[-1], column)}
        return value.at(*(along[axis] if axis in along else next(rest) for axis in range(value.rank)))

    return element


def _unfold(lifter: Lifter, call: Call) -> Lifted:
    value, (_, dim, _size, step) = lifter.value(call.args[0]), call.args
    axis = axis_of(dim, value.rank)
    stride = lifter.term(step)

    def element(*ix: Term) -> Term:
        return value.at(*replaced(ix[:-1], axis, integers.add(integers.mul(ix[axis], stride), ix[-1])))

    return element


def _as_strided(lifter: Lifter, call: Call) -> Lifted:
    """Of a contiguous one-axis tensor; any other depends on the memory of its source."""
    value, bound = lifter.value(call.args[0]), call.arguments()
    if value.rank != 1 or not call.args[0].is_contiguous():
        raise NoElementForm
    strides = [lifter.term(s) for s in bound["stride"]]
    offset = lifter.term(bound["storage_offset"] or 0)
    return lambda *ix: value.at(integers.add(offset, *(integers.mul(i, s) for i, s in zip(ix, strides, strict=True))))


def _triangle(lower: bool) -> Handler:
    def handler(lifter: Lifter, call: Call) -> Lifted:
        value, diagonal = lifter.value(call.args[0]), lifter.term(call.arguments()["diagonal"])

        def element(*ix: Term) -> Term:
            from cubridge.frontend.reference.algebra.comparisons import cast

            lag = integers.sub(ix[-1], ix[-2])
            kept = compare("<=", lag, diagonal) if lower else compare("<=", diagonal, lag)
            return where(kept, value.at(*ix), cast(ZERO, value.sort))

        return element

    return handler


VIEWS: Final[dict[str, Handler]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy", "_reshape_copy"), _view),
    **dict.fromkeys(("expand", "broadcast_to", "expand_copy"), _expand),
    "permute": _permute,
    **dict.fromkeys(("transpose", "t", "swapaxes", "transpose_copy"), _transpose),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "slice": _slice,
    "narrow": _narrow,
    "select": _select,
    "unbind": _unbind,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), _split),
    "flip": _flip,
    "roll": _roll,
    "repeat": _repeat,
    "repeat_interleave": _repeat_interleave,
    "diagonal": _diagonal,
    "unfold": _unfold,
    "as_strided": _as_strided,
    "tril": _triangle(lower=True),
    "triu": _triangle(lower=False),
}
