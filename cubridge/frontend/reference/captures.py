"""Captures of a spec: what each is, and its tensor for one launch."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal

import torch
from torch import Tensor

from cubridge.frontend.reference.algebra.polynomials import ZERO
from cubridge.frontend.reference.algebra.terms import Load, Size, Sort, Term, is_const, walk
from cubridge.frontend.reference.evaluate import TensorEvaluator, evaluate_number, free_indices
from cubridge.frontend.reference.lift import Computed, Lifter
from cubridge.frontend.reference.printing import ExprWriter
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.replay import Replay
from cubridge.frontend.reference.values import sort_of
from cubridge.ir.capture_names import is_macro_name
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import NAMED_CONSTANTS, SIZES, Expr, IntLit
from cubridge.ir.source import Span
from cubridge.ir.spec import Capture, CaptureKind

_RESERVED: Final = frozenset(
    (*SIZES, *NAMED_CONSTANTS, *FUNCTIONS, "s", "x", "m", "acc", "b", "h", "i", "j", "e", "row", "tile", "smem", "p")
)
_ROW: Final = re.compile(r"R\d+")
"""How row reductions are called."""
_DTYPES: Final[dict[Sort, Literal["f32", "i32", "bool"]]] = {Sort.REAL: "f32", Sort.INT: "i32", Sort.BOOL: "bool"}


def follows_sizes(extent: Term) -> bool:
    """Is it a formula of the sizes of q, k, v?"""
    return all(x.name in (*SIZES, "G") for x in walk(extent) if isinstance(x, Size))


CHECKED_AT_ONCE: Final = 1 << 24
"""Values of a subscript that are in memory while it is checked."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a capture's values come from. `kept`: the axes that stay, those of extent 1 being dropped. `is_number`: it is known
    before the launch; a tensor of one element is not, for it is read on the device."""

    tensor: str
    name: str
    kept: tuple[int, ...]
    shape: tuple[Term, ...]
    sort: Sort
    kind: CaptureKind
    span: Span
    is_number: bool
    path: str = ""

    @property
    def is_single(self) -> bool:
        """A tensor of one element, which a kernel reads as an array of one."""
        return not self.kept and not self.is_number


class CaptureTable:
    """Names, axes and sources of all tensors that a spec reads."""

    def __init__(self, lifter: Lifter, computed: tuple[Computed, ...], default: Span) -> None:
        self.lifter = lifter
        self.computed = {c.name: c for c in (*computed, *lifter.tables)}
        self.default = default
        self.sources: dict[str, Source] = {}

    def subscript(self, load: Load) -> tuple[str, tuple[Term, ...]]:
        source = self.source(load.tensor)
        return source.name, (ZERO,) if source.is_single else tuple(load.indices[axis] for axis in source.kept)

    def source(self, tensor: str) -> Source:
        if tensor not in self.sources:
            self.sources[tensor] = self._make(tensor)
        return self.sources[tensor]

    def _make(self, tensor: str) -> Source:
        shape, sort, kind, span = self._describe(tensor)
        state = self.lifter.state.get(tensor)
        kept = tuple(axis for axis, extent in enumerate(shape) if not is_const(extent, 1))
        for axis in kept:
            if not follows_sizes(shape[axis]):
                refuse("CU488", f"extent {axis} of `{tensor}` follows no size of the problem", span, _EXTENT_HELP)
        is_number = not kept and self._is_number(tensor)
        name = self._free_name(tensor, is_number)
        return Source(tensor, name, kept, shape, sort, kind, span, is_number, "" if state is None else state.path)

    def _is_number(self, tensor: str) -> bool:
        """Does it follow from sizes and Python numbers alone?"""
        scalars = self.lifter.recording.scalars
        if tensor in self.computed:
            return all(x.tensor in scalars for x in walk(self.computed[tensor].term) if isinstance(x, Load))
        return tensor in scalars

    def _free_name(self, tensor: str, is_number: bool) -> str:
        """A word that CuIR can read and that nothing else has; host formulas read numbers beside macros."""
        name = re.sub(r"\W", "_", tensor, flags=re.ASCII)
        taken = {*_RESERVED, *keyword.kwlist, *(s.name for s in self.sources.values())}
        if name in taken or (is_number and is_macro_name(name)) or _ROW.fullmatch(name) or not name.isidentifier():
            name = "_".join(("captured", *filter(None, name.split("_"))))
        return name if name not in taken else next(f"{name}{n}" for n in count(2) if f"{name}{n}" not in taken)

    def _describe(self, tensor: str) -> tuple[tuple[Term, ...], Sort, CaptureKind, Span]:
        lifter = self.lifter
        if tensor in self.computed:
            found = self.computed[tensor]
            return tuple(x.extent for x in found.indices), found.term.sort, "computed", found.span
        if tensor in lifter.replayed:
            made = lifter.replayed[tensor]
            return lifter.shape(made.tensor), sort_of(made.tensor.dtype), "computed", made.call.span
        if tensor in lifter.state:
            state = lifter.state[tensor]
            return tuple(lifter.term(n) for n in state.shape), sort_of(state.dtype), "state", self.default
        if tensor in lifter.constants:
            written = lifter.constants[tensor]
            return tuple(lifter.term(n) for n in written.shape), sort_of(written.dtype), "constant", self.default
        if tensor in lifter.recording.scalars:
            sort = Sort.REAL if isinstance(lifter.recording.scalars[tensor], float) else Sort.INT
            return (), sort, "argument", self.default
        given = lifter.recording.inputs[tensor]
        return lifter.shape(given), sort_of(given.dtype), "argument", self.default

    def captures(self, writer: ExprWriter) -> tuple[Capture, ...]:
        """In order of their names."""
        return tuple(
            Capture(s.name, s.kind, self._extents(s, writer), _DTYPES[s.sort], s.span, s.path)
            for s in sorted(self.sources.values(), key=lambda s: s.name)
        )

    def _extents(self, source: Source, writer: ExprWriter) -> tuple[Expr, ...]:
        return (IntLit(1),) if source.is_single else tuple(writer.expr(source.shape[a]) for a in source.kept)


_EXTENT_HELP: Final = "give it an extent of B, Hq, Hk, Lq, Lk, D, a multiple of one, or a number"


_NARROW_HELP: Final = "kernels read 32-bit integers: number documents and positions from 0"
_MAY_PASS_32_BITS: Final = {torch.int64: -(1 << 31), torch.uint32: 0, torch.uint64: 0}
"""With the least value that is read right; as int64, a uint64 that is too large is negative."""


def _fits_32_bits(value: Tensor) -> bool:
    if value.dtype not in _MAY_PASS_32_BITS or not value.numel():
        return True
    low, high = value.long().aminmax()
    return bool(low >= _MAY_PASS_32_BITS[value.dtype]) and bool(high < 1 << 31)


@dataclass(frozen=True, slots=True)
class CaptureValues:
    """Computes the tensors of a spec's captures for one launch."""

    lifter: Lifter
    table: CaptureTable

    def at(
        self, sizes: Mapping[str, int], inputs: Mapping[str, Tensor | int | float | bool], wide: bool = False
    ) -> dict[str, Tensor]:
        """`inputs`: q, k, v where a computed capture reads them, and the extra inputs. `wide`: floats stay fp64."""
        replay = Replay.start(self.lifter.recording, self.lifter.sizes, sizes, inputs, wide)
        tensors = self._lookup(replay, inputs, sizes)
        found: dict[str, Tensor] = {}
        for source in self.table.sources.values():
            value = tensors(source.tensor)
            kept = [1] if source.is_single else [value.shape[a] for a in source.kept]
            found[source.name] = _converted(value, source, wide).reshape(kept)
        return found

    def _lookup(
        self, replay: Replay, inputs: Mapping[str, Tensor | int | float | bool], sizes: Mapping[str, int]
    ) -> Callable[[str], Tensor]:
        def tensor(name: str) -> Tensor:
            if name in self.table.computed:
                made = self.table.computed[name]
                return TensorEvaluator(sizes, tensor).over(made.term, made.indices)
            if name in self.lifter.replayed:
                return replay.tensor(self.lifter.replayed[name].tensor)
            if name in self.lifter.state:
                return self.lifter.state[name].tensor().detach()
            if name in self.lifter.constants:
                return self.lifter.constants[name].detach()
            return torch.as_tensor(inputs[name])

        return tensor

    def check(
        self,
        subscripts: Mapping[tuple[Term, Term], Span],
        flags: Mapping[str, Span],
        sizes: Mapping[str, int],
        inputs: Mapping[str, Tensor | int | float | bool],
    ) -> None:
        """What was declared of captured values: subscripts are in range, flags are 0 or 1. Errors: CU490."""
        if not subscripts and not flags:
            return
        replay = Replay.start(self.lifter.recording, self.lifter.sizes, sizes, inputs, wide=False)
        tensors = self._lookup(replay, inputs, sizes)
        for name, span in flags.items():
            value = tensors(name)
            if not bool(((value == 0) | (value == 1)).all()):
                message = f"`{name}` is used as a flag, 0 or 1, and holds other values"
                refuse("CU490", message, span, "pass a boolean tensor, or an additive mask")
        known = {**sizes, **self._own_extents(inputs), **{n: v for n, v in inputs.items() if not isinstance(v, Tensor)}}
        evaluator = TensorEvaluator(known, tensors)
        for (term, extent), span in subscripts.items():
            self._check_subscript(evaluator, term, int(evaluate_number(extent, known)), span)

    def _check_subscript(self, evaluator: TensorEvaluator, term: Term, extent: int, span: Span) -> None:
        """Errors: CU490 for a value outside range(extent)."""
        indices = free_indices(term)
        counts = [int(evaluate_number(x.extent, evaluator.sizes)) for x in indices]
        if 0 in counts:
            return
        step = max(1, CHECKED_AT_ONCE // max(1, math.prod(counts[1:])))
        for start in range(0, counts[0], step) if counts else (None,):
            rows = None if start is None else range(start, min(start + step, counts[0]))
            low, high = evaluator.over(term, indices, rows).aminmax()
            if low < 0:
                message = f"a captured subscript is negative: {int(low)}"
                refuse("CU490", message, span, "count from the start: add the extent")
            if high >= extent:
                message = f"a captured subscript is {int(high)}, and there are {extent} elements"
                refuse("CU490", message, span, "the reference fails there too")

    def _own_extents(self, inputs: Mapping[str, Tensor | int | float | bool]) -> dict[str, int]:
        """Extents of arguments that follow no size, by their names."""
        return {
            extent.own: value.shape[axis]
            for name, extents in self.lifter.recording.extents.items()
            for axis, extent in enumerate(extents)
            if extent.own and isinstance(value := inputs.get(name), Tensor)
        }


def _converted(value: Tensor, source: Source, wide: bool) -> Tensor:
    """As a kernel reads it. Errors: CU490 for a float where an integer was, or an integer of more than 32 bits."""
    match source.sort:
        case Sort.REAL:
            return value.double() if wide else value.float()
        case Sort.INT:
            if value.is_floating_point():
                refuse(
                    "CU490",
                    f"`{source.name}` is {value.dtype}, and was an integer when the reference was read",
                    source.span,
                )
            if wide:
                return value.long()
            if not _fits_32_bits(value):
                refuse("CU490", f"`{source.name}` holds integers that 32 bits do not hold", source.span, _NARROW_HELP)
            return value.int()
        case Sort.BOOL:
            return value
