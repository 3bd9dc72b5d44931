"""What was declared of captured values when the reference was read: subscripts in range, flags 0 or 1, divisors other than 0,
integers of 32 bits."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cubridge.frontend.reference.algebra.terms import Arena, Sort, Term, sizes_only
from cubridge.frontend.reference.captured_numbers import CapturedNumber, number_requirements
from cubridge.frontend.reference.captures import CaptureValues, Source
from cubridge.frontend.reference.evaluate import TensorEvaluator, evaluate_number, free_indices
from cubridge.frontend.reference.printing import text
from cubridge.frontend.reference.state import StateNumber
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.requirement import Requirement
from cubridge.ir.source import Span

CHECKED_AT_ONCE: Final = 1 << 24
"""Values of a term that are in memory while it is checked."""

_NARROW_HELP: Final = "kernels read 32-bit integers: number documents and positions from 0"
_MAY_PASS_32_BITS: Final = {torch.int64: -(1 << 31), torch.uint32: 0, torch.uint64: 0}
"""With the least value that is read right; as int64, a uint64 that is too large is negative."""


@dataclass(frozen=True, slots=True)
class Declared:
    """`subscripts`: (index, extent). `own_conditions`: of extents of arguments that follow no size. `numbers`: captured floats."""

    subscripts: Mapping[tuple[Term, Term], Span]
    own_conditions: Iterable[tuple[Term, Span]]
    numbers: tuple[CapturedNumber, ...]
    flags: Mapping[str, Span]
    finite: Mapping[str, Span]
    absorbed: Mapping[str, Span]
    positive: Mapping[Term, Span]
    divisors: Mapping[Term, Span]
    roots: Mapping[Term, Span]
    bases: Mapping[Term, Span]
    limits: Mapping[tuple[Term, int], Span]

    @staticmethod
    def of(
        arena: Arena,
        conditions: Container[tuple[Term, Term]],
        own_conditions: Iterable[tuple[Term, Span]],
        numbers: tuple[CapturedNumber, ...],
    ) -> Declared:
        """As it is now: what is made in the arena later is none of the reference. `conditions`: subscripts that preconditions keep
        in range."""
        divisors = {t: span for t, span in arena.divisors.items() if not sizes_only(t)}  # those are preconditions
        subscripts = {s: span for s, span in arena.subscripts.items() if s not in conditions}
        return Declared(
            subscripts, own_conditions, numbers, dict(arena.flags), dict(arena.finite), dict(arena.absorbed),
            dict(arena.positive), divisors, dict(arena.roots), dict(arena.bases),
            dict(arena.limits),
        )  # fmt: skip


def requirements(values: CaptureValues, declared: Declared) -> Iterator[Requirement]:
    """What must hold of the values of one launch."""
    tensors = values.tensors()
    yield from (_number(n, values.device) for n in values.lifter.recording.numbers)
    yield from (_flag(name, tensors(name), span) for name, span in declared.flags.items())
    yield from (_finite(name, tensors(name), span) for name, span in declared.finite.items())
    yield from (_absorbed(name, tensors(name), span) for name, span in declared.absorbed.items())
    known = {**values.sizes, **_own_extents(values), **_numbers(values)}
    yield from (_condition(term, known, span, values.device) for term, span in declared.own_conditions)
    evaluator = TensorEvaluator(known, tensors, values.device)
    for (term, extent), span in declared.subscripts.items():
        yield from _subscript(evaluator, term, int(evaluate_number(extent, known)), span)
    for term, span in declared.positive.items():
        yield from (_positive(x, span) for x in _parts(evaluator, term))
    for term, span in declared.divisors.items():
        yield from (_divisor(x, span) for x in _parts(evaluator, term))
    for term, span in declared.roots.items():
        yield from (_root(x, span) for x in _parts(evaluator, term))
    for term, span in declared.bases.items():
        yield from (_base(x, span) for x in _parts(evaluator, term))
    for (term, largest), span in declared.limits.items():
        yield from (_within(x, largest, span) for x in _parts(evaluator, term))
    yield from number_requirements(values, declared.numbers)
    for source in values.table.sources.values():
        if source.sort is Sort.INT:
            yield from _fits_32_bits(source, tensors(source.tensor))


def _number(number: StateNumber, device: torch.device) -> Requirement:
    fault = number.fault()
    what = f"a number read from `{number.source.path}` is another"
    return Requirement(torch.full((), fault is None, device=device), what, lambda: fault or Diagnostic("CU490", what))


def _condition(term: Term, known: Mapping[str, int | float | bool], span: Span, device: torch.device) -> Requirement:
    extents = ", ".join(f"{n} = {x}" for n, x in known.items() if "." in n)
    what = f"`{text(term)}` does not hold: {extents}"
    fault = Diagnostic("CU490", what, span, help="the reference fails there too")
    return Requirement(torch.full((), bool(evaluate_number(term, known)), device=device), what, lambda: fault)


def _flag(name: str, value: Tensor, span: Span) -> Requirement:
    what = f"`{name}` is used as a flag, 0 or 1, and holds other values"
    fault = Diagnostic("CU490", what, span, help="pass a boolean tensor, or an additive mask")
    return Requirement(((value == 0) | (value == 1)).all(), what, lambda: fault)


def _finite(name: str, value: Tensor, span: Span) -> Requirement:
    what = f"`{name}` is multiplied by 0, and is infinite somewhere"
    fault = Diagnostic("CU490", what, span, help="the reference gives NaN there")
    return Requirement(value.isfinite().all(), what, lambda: fault)


def _absorbed(name: str, value: Tensor, span: Span) -> Requirement:
    what = f"`{name}` is added to a fill, and is NaN or inf somewhere"
    fault = Diagnostic("CU490", what, span, help="the reference gives NaN there")
    return Requirement((value < torch.inf).all(), what, lambda: fault)


def _positive(value: Tensor, span: Span) -> Requirement:
    what = "a factor of an infinite fill is not positive"
    return Requirement((value > 0).all(), what, lambda: Diagnostic("CU490", what, span, help="put the fill on last"))


def _divisor(value: Tensor, span: Span) -> Requirement:
    what = "an integer is divided by a captured 0"
    fault = Diagnostic("CU490", what, span, help="the reference fails there too")
    return Requirement((value != 0).all(), what, lambda: fault)


def _root(value: Tensor, span: Span) -> Requirement:
    what = "a logarithm or a root of a captured number below 0"
    fault = Diagnostic("CU490", what, span, help="the reference gives NaN there")
    return Requirement(~(value < 0).any(), what, lambda: fault)


def _base(value: Tensor, span: Span) -> Requirement:
    what = "a power of a captured number that is not positive"
    fault = Diagnostic("CU490", what, span, help="compute the power outside, and pass what it gives")
    return Requirement((value > 0).all(), what, lambda: fault)


def _within(value: Tensor, largest: int, span: Span) -> Requirement:
    what = f"an integer beyond {largest}, which its type does not hold: PyTorch wraps or rounds it"
    fault = Diagnostic("CU490", what, span, help="compute with `.long()`, or `.float()`")
    return Requirement((value.abs() <= largest).all(), what, lambda: fault)


def _parts(evaluator: TensorEvaluator, term: Term) -> Iterator[Tensor]:
    """All values of a term, as many at once as memory should hold."""
    indices = free_indices(term)
    counts = [int(evaluate_number(x.extent, evaluator.sizes)) for x in indices]
    if 0 in counts:
        return
    step = max(1, CHECKED_AT_ONCE // max(1, math.prod(counts[1:])))
    for start in range(0, counts[0], step) if counts else (None,):
        rows = None if start is None else range(start, min(start + step, counts[0]))
        yield evaluator.over(term, indices, rows)


def _subscript(evaluator: TensorEvaluator, term: Term, extent: int, span: Span) -> Iterator[Requirement]:
    """Every value is in range(extent)."""
    for part in _parts(evaluator, term):
        low, high = part.aminmax()
        what = f"a captured subscript is outside its axis of {extent} elements"
        yield Requirement(
            (low >= 0) & (high < extent), what, lambda a=low, b=high: _outside(int(a), int(b), extent, span)
        )


def _outside(low: int, high: int, extent: int, span: Span) -> Diagnostic:
    if low < 0:
        message = f"a captured subscript is negative: {low}"
        return Diagnostic("CU490", message, span, help="count from the start: add the extent")
    message = f"a captured subscript is {high}, and there are {extent} elements"
    return Diagnostic("CU490", message, span, help="the reference fails there too")


def _fits_32_bits(source: Source, value: Tensor) -> Iterator[Requirement]:
    if value.dtype not in _MAY_PASS_32_BITS or not value.numel():
        return
    low, high = value.long().aminmax()
    what = f"`{source.label}` holds integers that 32 bits do not hold"
    fault = Diagnostic("CU490", what, source.span, help=_NARROW_HELP)
    yield Requirement((low >= _MAY_PASS_32_BITS[value.dtype]) & (high < 1 << 31), what, lambda: fault)


def _numbers(values: CaptureValues) -> dict[str, int | float | bool]:
    return {n: v for n, v in values.inputs.items() if not isinstance(v, Tensor)}


def _own_extents(values: CaptureValues) -> dict[str, int]:
    """Extents of arguments that follow no size, by their names."""
    return {
        extent.own: value.shape[axis]
        for name, extents in values.lifter.recording.extents.items()
        for axis, extent in enumerate(extents)
        if extent.own and isinstance(value := values.inputs.get(name), Tensor)
    }
