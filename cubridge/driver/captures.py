"""The captures of a spec as an operator reads them: handed on where they are values of the call, else computed on its device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from torch import Tensor

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.requirement import Requirement
from cubridge.ir.types import DType
from cubridge.verify.ranges import LARGEST

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.frontend.reference.captures import Input
    from cubridge.frontend.reference.traced import Traced
    from cubridge.ir.spec import AttentionSpec, Capture


_NOTHING: Final[Mapping[str, Tensor]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SpecCaptures:
    """A `CaptureSource`. `fixed`: numbers that the adaptation fixes, which a call does not hand over. `numbers`: captures that host
    formulas read. `bound`: how large in size the kernel's arithmetic lets captured integers be."""

    traced: Traced
    fixed: Mapping[str, bool | int | float]
    handed: Mapping[str, str]
    computed: tuple[str, ...]
    of_sizes: tuple[str, ...]
    tables: tuple[str, ...]
    numbers: frozenset[str]
    bound: int = LARGEST

    @staticmethod
    def of(traced: Traced, fixed: Mapping[str, bool | int | float], bound: int = LARGEST) -> SpecCaptures:
        spec = traced.spec
        made_of = {c.name: traced.inputs_of(c.name) - fixed.keys() for c in spec.captures}
        handed = {c.name: _given_name(c, made_of[c.name]) for c in spec.captures if c.kind in ("argument", "state")}
        numbers = frozenset(c.name for c in spec.captures if not c.extents)
        tensors = traced.assembled.lifter.recording.inputs.keys() | traced.state().keys()
        own = tuple(c.name for c in spec.captures if c.name not in handed)
        computed = tuple(name for name in own if made_of[name] & tensors)
        of_sizes = tuple(name for name in own if name not in computed)
        tables = tuple(sorted(frozenset[str]().union(*map(traced.tables_of_sizes, computed)) - {*own}))
        return SpecCaptures(traced, fixed, handed, computed, of_sizes, tables, numbers, bound)

    def state(self) -> Mapping[str, Tensor]:
        return self.traced.state()

    def compute(
        self,
        names: tuple[str, ...],
        inputs: Mapping[str, Tensor],
        given: Mapping[str, object],
        made: Mapping[str, Tensor] = _NOTHING,
    ) -> Mapping[str, CaptureValue]:
        if not names:
            return {}
        device = inputs["q"].device
        found = self.traced.computed(names, sizes_of(inputs), self._inputs(inputs, given), device, made)
        return {name: value.item() if name in self.numbers else value for name, value in found.items()}

    def requirements(self, inputs: Mapping[str, Tensor], given: Mapping[str, object]) -> tuple[Requirement, ...]:
        sizes, values, device = sizes_of(inputs), self._inputs(inputs, given), inputs["q"].device
        declared = self.traced.requirements(sizes, values, device)
        bounded = _bounded_captures(self.traced.spec) if self.bound < LARGEST else ()
        if not bounded:
            return declared
        integers = self.traced.computed({c.name for c in bounded}, sizes, values, device)
        return (*declared, *(self._bounded(c, integers[c.name]) for c in bounded))

    def _bounded(self, capture: Capture, value: Tensor) -> Requirement:
        """CU490 for an integer with which the kernel's arithmetic would leave 32 bits."""
        name = self.handed.get(capture.name, capture.name)
        what = f"`{name}` holds integers beyond {self.bound}, and the kernel computes with them in 32 bits"
        fault = Diagnostic("CU490", what, capture.span, help="compute with them outside, or as floats")
        return Requirement((value.long().abs() <= self.bound).all(), what, lambda: fault)

    def _inputs(self, inputs: Mapping[str, Tensor], given: Mapping[str, object]) -> dict[str, Input]:
        return cast("dict[str, Input]", {**self.fixed, **given, **inputs})

    def constants(self) -> dict[str, CaptureValue]:
        """Those that the reference writes out."""
        table, lifter = self.traced.assembled.table, self.traced.assembled.lifter
        return {s.name: lifter.constants[s.tensor] for s in table.sources.values() if s.kind == "constant"}


def _given_name(capture: Capture, made_of: frozenset[str]) -> str:
    """The argument or the path that a capture is."""
    if capture.kind == "state":
        return capture.path
    (name,) = made_of
    return name


def _bounded_captures(spec: AttentionSpec) -> tuple[Capture, ...]:
    return tuple(c for c in spec.captures if c.dtype == DType.I32)


def sizes_of(inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """B, Hq, Hk, Lq, Lk, D of a call."""
    q, k = inputs["q"], inputs["k"]
    return {"B": q.shape[0], "Hq": q.shape[1], "Hk": k.shape[1], "Lq": q.shape[2], "Lk": k.shape[2], "D": q.shape[3]}
