"""What is taken for granted of captured floats: NaN is none of those that are compared, or whose extremum is taken; of 64 bits, 32
hold what is compared exactly, and the rest closely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from cubridge.frontend.reference.algebra.selection import MASK_FILL
from cubridge.frontend.reference.algebra.terms import Apply, Load, Sort, Term, walk
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.requirement import Requirement

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.frontend.reference.captures import CaptureTable, CaptureValues, Source
    from cubridge.frontend.reference.normalizer import Normalizer

CLOSE: Final = 1e-3
"""How far rounding to 32 bits may move a captured float of 64."""
_ATTENTION: Final = frozenset(("q", "k", "v"))
_COMPARISONS: Final = ("<", "<=", "==")
_EXTREMA: Final = ("min", "max")


@dataclass(frozen=True, slots=True)
class CapturedNumber:
    """A captured float. `ordered`: NaN would be another answer than PyTorch's. `exact`: it is compared with what no score is part
    of."""

    source: Source
    ordered: bool
    exact: bool


def captured_numbers(table: CaptureTable, found: Normalizer) -> tuple[CapturedNumber, ...]:
    """Those of a spec that no value of q, k or v is part of: these are taken as finite."""
    rows = [t for r in found.rows for t in (r.over, r.body)]
    parts = {x for t in (found.score, found.mask, found.weight, found.finalize, *rows) for x in walk(t)}
    comparisons = [x for x in parts if isinstance(x, Apply) and x.op in _COMPARISONS]
    extrema = [x for x in parts if isinstance(x, Apply) and x.op in _EXTREMA]
    extrema_of_rows = [r.body for r in found.rows if r.kind in _EXTREMA]
    ordered = _floats((*comparisons, *extrema, *extrema_of_rows))
    exact = _floats(c for c in comparisons if not any(r in _ATTENTION or r.startswith("$") for r in c.reads))
    return tuple(
        CapturedNumber(source, source.tensor in ordered, source.tensor in exact)
        for source in table.sources.values()
        if source.sort is Sort.REAL and source.kind != "constant" and not table.inputs_of(source.name) & _ATTENTION
    )


def _floats(terms: Iterable[Term]) -> frozenset[str]:
    return frozenset(x.tensor for t in terms for x in walk(t) if isinstance(x, Load) and x.sort is Sort.REAL)


def number_requirements(values: CaptureValues, numbers: Iterable[CapturedNumber]) -> Iterator[Requirement]:
    """What must hold of them in one launch."""
    tensors = values.tensors()
    for number in numbers:
        value = tensors(number.source.tensor)
        if number.ordered:
            yield _ordered(number, value)
        own = not number.source.is_number and number.source.tensor not in values.table.computed
        if value.dtype is torch.float64 and (own or _is_of_doubles(values, number.source)):
            yield _single(number, value)


def _is_of_doubles(values: CaptureValues, source: Source) -> bool:
    """Elements of tensors, some of 64 bits, that a vector holds."""
    if source.tensor not in {t.name for t in values.lifter.tables}:
        return False
    names = values.table.inputs_of(source.name)
    given = [values.inputs[n] for n in names if n in values.inputs]
    kept = [s.dtype for s in values.lifter.state.values() if s.path in names]
    return torch.float64 in [*kept, *(x.dtype for x in given if isinstance(x, torch.Tensor))]


def _ordered(number: CapturedNumber, value: Tensor) -> Requirement:
    what = f"`{number.source.label}` holds NaN, and is compared"
    help_ = "kernels drop NaN where PyTorch hands it on: replace it before the call"
    return Requirement(~value.isnan().any(), what, lambda: Diagnostic("CU490", what, number.source.span, help=help_))


def _single(number: CapturedNumber, value: Tensor) -> Requirement:
    error = (value - value.float().double()).abs()
    near = (error <= (0.0 if number.exact else CLOSE)) | (value <= MASK_FILL) | value.isinf() | value.isnan()
    what = f"`{number.source.label}` holds floats of 64 bits that 32 bits do not hold"
    fault = Diagnostic("CU490", what, number.source.span, help="subtract what they have in common, or pass integers")
    return Requirement(near.all(), what, lambda: fault)
