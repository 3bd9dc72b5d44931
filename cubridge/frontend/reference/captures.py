"""Captures of a spec: what each is, and its tensor for one launch."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cubridge.frontend.reference.algebra.polynomials import ZERO
from cubridge.frontend.reference.algebra.terms import Load, Size, Sort, Term, is_const, walk
from cubridge.frontend.reference.evaluate import CPU, TensorEvaluator, evaluate_number
from cubridge.frontend.reference.lift import Computed, Lifter
from cubridge.frontend.reference.printing import ExprWriter
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.replay import Replay
from cubridge.frontend.reference.sizes import follows_sizes
from cubridge.frontend.reference.values import sort_of
from cubridge.ir.capture_names import is_macro_name
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import NAMED_CONSTANTS, SIZES, Expr, IntLit
from cubridge.ir.source import Span
from cubridge.ir.spec import Capture, CaptureKind

Input = Tensor | int | float | bool

_RESERVED: Final = frozenset(
    (
        *SIZES,
        *NAMED_CONSTANTS,
        *FUNCTIONS,
        "s",
        "x",
        "m",
        "acc",
        "b",
        "h",
        "i",
        "j",
        "e",
        "row",
        "tile",
        "keys",
        "smem",
        "p",
    )
)
_ROW: Final = re.compile(r"R\d+")
"""How row reductions are called."""
_DTYPES: Final[dict[Sort, Literal["f32", "i32", "bool"]]] = {Sort.REAL: "f32", Sort.INT: "i32", Sort.BOOL: "bool"}


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
    def label(self) -> str:
        """What the user calls it."""
        return self.path or self.tensor

    @property
    def is_of_pairs(self) -> bool:
        """Is it computed with one element for each pair of row and key?"""
        lengths = [{x.name for x in walk(extent) if isinstance(x, Size)} for extent in self.shape]
        return self.kind == "computed" and {"Lq"} in lengths and {"Lk"} in lengths

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

    def tables_of_sizes(self, capture: str) -> frozenset[str]:
        """The tables of sizes alone that a computed capture reads itself."""
        tensor = next(s.tensor for s in self.sources.values() if s.name == capture)
        return frozenset(name for name in self._made_of(tensor) if self.lifter.is_of_sizes(name))

    def inputs_of(self, capture: str) -> frozenset[str]:
        """Names of arguments, q, k and v among them, and paths of what the reference keeps, that a capture is made of."""
        found: set[str] = set()
        queue, seen = [next(s.tensor for s in self.sources.values() if s.name == capture)], set[str]()
        while queue:
            tensor = queue.pop()
            if tensor not in seen:
                seen.add(tensor)
                made_of = self._made_of(tensor)
                queue += made_of
                if not made_of and tensor in self.lifter.state:
                    found.add(self.lifter.state[tensor].path)
                elif tensor in self.lifter.recording.inputs or tensor in self.lifter.recording.scalars:
                    found.add(tensor)
        return frozenset(found)

    def _made_of(self, tensor: str) -> frozenset[str]:
        """What a computed tensor reads."""
        if tensor in self.computed:
            return frozenset(x.tensor for x in walk(self.computed[tensor].term) if isinstance(x, Load))
        if tensor in self.lifter.replayed:
            call = self.lifter.replayed[tensor].call
            operands = [a for a in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(a, Tensor)]
            return frozenset[str]().union(*(self.lifter.values[id(t)].reads for t in operands))
        return frozenset()

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


MOST_OF_PAIRS: Final = 1 << 24
"""Elements of a tensor that is computed for each pair of row and key, of 4 bytes each."""
_PAIRS_HELP: Final = "pass it as an argument, or write it as a function of i - j, of rows or of keys"
_EXTENT_HELP: Final = "give it an extent of B, Hq, Hk, Lq, Lk, D, a multiple of one, or a number"


@dataclass(frozen=True, slots=True)
class CaptureValues:
    """Computes the tensors of a spec's captures for one launch, on `device`; nothing waits for it. `inputs`: q, k, v where a
    computed capture reads them, and the extra inputs. `made`: tables that are at hand."""

    lifter: Lifter
    table: CaptureTable
    sizes: Mapping[str, int]
    inputs: Mapping[str, Input]
    device: torch.device = CPU
    made: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    def tables(self, names: Container[str]) -> dict[str, Tensor]:
        """Those of `names` that captures are made of, without being one."""
        tensors, own = self.tensors(), {s.tensor for s in self.table.sources.values()}
        return {t.name: tensors(t.name) for t in self.lifter.tables if t.name in names and t.name not in own}

    def at(self, wide: bool = False, names: Container[str] | None = None) -> dict[str, Tensor]:
        """All, or those of `names`. `wide`: floats stay fp64. Errors: CU490 for a float where an integer was, CU491 for too many
        elements."""
        tensors = self.tensors(wide)
        found: dict[str, Tensor] = {}
        for source in self.table.sources.values():
            if names is None or source.name in names:
                self._check_size(source)
                value = tensors(source.tensor)
                kept = [1] if source.is_single else [value.shape[a] for a in source.kept]
                found[source.name] = _converted(value, source, wide).reshape(kept)
        return found

    def _check_size(self, source: Source) -> None:
        """Errors: CU491 for elements of pairs that are more than `MOST_OF_PAIRS` and than any tensor has that they are made of."""
        if not source.is_of_pairs:
            return
        made = math.prod(int(evaluate_number(n, self.sizes)) for n in source.shape)
        given = (self.inputs.get(name) for name in self.table.inputs_of(source.name))
        if made > max(MOST_OF_PAIRS, *(x.numel() for x in given if isinstance(x, Tensor)), 0):
            what = f"`{source.name}`, of each pair of row and key, would take {4 * made >> 20} MiB for each launch"
            refuse("CU491", f"{what}, and at most {4 * MOST_OF_PAIRS >> 20} are computed", source.span, _PAIRS_HELP)

    def tensors(self, wide: bool = False) -> Callable[[str], Tensor]:
        """From names of tensors in terms to what they hold."""
        lifter = self.lifter
        replay = Replay.start(lifter.recording, lifter.sizes, self.sizes, self.inputs, wide, self.device)
        written = {id(real.tensor): real for real in lifter.recording.reals}

        def tensor(name: str) -> Tensor:
            if name in self.made:
                return self.made[name]
            if name in self.table.computed:
                made = self.table.computed[name]
                return TensorEvaluator(self.sizes, tensor, self.device).over(made.term, made.indices)
            if name in lifter.replayed:
                return replay.tensor(lifter.replayed[name].tensor)
            if name in lifter.state:
                return lifter.state[name].tensor().detach().to(self.device)
            if name in lifter.constants:
                return written[id(lifter.constants[name])].now(self.device)
            given = self.inputs[name]
            return given.to(self.device) if isinstance(given, Tensor) else _of_number(given, self.device)

        return tensor


def _of_number(value: int | float | bool, device: torch.device) -> Tensor:
    """In fp64, which holds every float of Python."""
    return torch.full((), value, device=device, dtype=torch.float64 if isinstance(value, float) else None)


def _converted(value: Tensor, source: Source, wide: bool) -> Tensor:
    """As a kernel reads it; that integers fit 32 bits is a requirement. Errors: CU490 for a float where an integer was."""
    match source.sort:
        case Sort.REAL:
            return value.double() if wide else value.float()
        case Sort.INT:
            if value.is_floating_point():
                refuse(
                    "CU490",
                    f"`{source.label}` is {value.dtype}, and was an integer when the reference was read",
                    source.span,
                )
            return value.long() if wide else value.int()
        case Sort.BOOL:
            return value
