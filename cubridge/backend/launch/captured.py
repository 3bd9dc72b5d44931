"""Captured values: what the reference reads besides q, k, v, made into the arrays and numbers that a kernel reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch

from cubridge.backend.launch.arguments import formula
from cubridge.ir.contract import CapturedAddress, CType, ParamField
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.evaluate import evaluate_number

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.requirement import Requirement

    Scalar = bool | int | float
    CaptureValue = Tensor | Scalar


class CaptureSource(Protocol):
    """What a reference reads besides q, k, v. Values of a call are `given` by name: arguments by their names, and what the
    reference keeps by its paths."""

    @property
    def handed(self) -> Mapping[str, str]:
        """Captures that are given values themselves: the name in `given` of each."""
        ...

    @property
    def computed(self) -> tuple[str, ...]:
        """Captures that are computed from what a call gives."""
        ...

    @property
    def of_sizes(self) -> tuple[str, ...]:
        """Captures that follow from sizes and numbers alone."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """What follows from sizes alone and computed captures are made of, without being one."""
        ...

    def state(self) -> Mapping[str, Tensor]:
        """What the reference keeps between calls, as it is now. Errors: CU490 for what is of another kind than it was."""
        ...

    def compute(
        self,
        names: tuple[str, ...],
        inputs: Mapping[str, Tensor],
        given: Mapping[str, object],
        made: Mapping[str, Tensor] = ...,
    ) -> Mapping[str, CaptureValue]:
        """These captures and tables, on the device of q and without waiting for it. `made`: tables at these sizes."""
        ...

    def requirements(self, inputs: Mapping[str, Tensor], given: Mapping[str, object]) -> tuple[Requirement, ...]:
        """What must hold of the values, told on the device of q."""
        ...


@dataclass(frozen=True, slots=True)
class NoCaptures:
    """A reference that reads q, k, v alone."""

    handed: Mapping[str, str] = field(default_factory=dict[str, str])
    computed: tuple[str, ...] = ()
    of_sizes: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    def state(self) -> Mapping[str, Tensor]:
        return {}

    def compute(
        self,
        names: tuple[str, ...],
        inputs: Mapping[str, Tensor],
        given: Mapping[str, object],
        made: Mapping[str, Tensor] | None = None,
    ) -> Mapping[str, CaptureValue]:
        del names, inputs, given, made
        return {}

    def requirements(self, inputs: Mapping[str, Tensor], given: Mapping[str, object]) -> tuple[Requirement, ...]:
        del inputs, given
        return ()


def on_device(values: Mapping[str, CaptureValue], device: torch.device) -> dict[str, CaptureValue]:
    """Captures as a launch on `device` reads them without a copy: numbers, which host formulas read, stay on the host."""
    return {n: v.to(device) if isinstance(v, torch.Tensor) and v.dim() else v for n, v in values.items()}


def numbers_read(values: Mapping[str, CaptureValue]) -> dict[str, CaptureValue]:
    """With tensors without axes as the numbers that host formulas read. Errors: CU824 for one that only the device can read,
    and for integers that a kernel of 32 bits may not hold."""
    return {name: _number(name, v) if isinstance(v, torch.Tensor) else v for name, v in values.items()}


def _number(name: str, value: Tensor) -> CaptureValue:
    if value.dtype in _WIDE and value.dim():
        raise CuError(Diagnostic("CU824", f"`{name}` is {value.dtype}; a kernel reads integers of 32 bits"))
    if value.dim():
        return value
    if value.device.type != "cpu":
        raise CuError(Diagnostic("CU824", f"`{name}` is a number on {value.device}; host formulas read it on the CPU"))
    return value.item()


_WIDE = (torch.int64, torch.uint32, torch.uint64)


@dataclass(frozen=True, slots=True)
class Conversion:
    """From a captured tensor to what the kernel reads: another element type, axes of one element dropped, the last axis
    `missing` elements longer. It is made in the stream of every call, for nothing tells when a tensor changes."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[int, ...]
    missing: int

    def __call__(self, tensor: Tensor) -> Tensor:
        converted = tensor.to(self.device, self.dtype)
        if tensor.shape != self.shape:
            converted = converted.reshape(self.shape)
        if self.missing:
            return torch.constant_pad_nd(converted, (0, self.missing))
        return converted.contiguous()


def conversion_of(
    field: ParamField, values: Mapping[str, CaptureValue], names: Mapping[str, Scalar], device: torch.device
) -> Conversion | None:
    """How the captured tensor of a field becomes what the kernel reads; None where it is that as it lies.
    Errors: CU824 for a missing value, another shape, or a float where the kernel reads integers."""
    assert isinstance(field.value, CapturedAddress)
    capture = field.value
    tensor = values.get(capture.name)
    if not isinstance(tensor, torch.Tensor):
        raise _bad_capture(field, f"the captured tensor `{capture.name}` is missing")
    wanted = tuple(int(evaluate_number(e, names)) for e in capture.extents)
    if _proper(tensor.shape) != _proper(wanted):
        sizes = f"{formula(capture.extents)} = {list(wanted)}"
        raise _bad_capture(field, f"`{capture.name}` has shape {list(tensor.shape)}; these sizes need {sizes}")
    dtype = torch.float32 if field.c_type is CType.FLOAT_POINTER else torch.int32
    if dtype is torch.int32 and tensor.is_floating_point():
        raise _bad_capture(field, f"`{capture.name}` is {tensor.dtype}; the kernel reads integers")
    missing = -(wanted[-1] if wanted else 1) % capture.pad
    if tensor.dtype is dtype and tensor.device == device and tensor.is_contiguous() and not missing:
        return None
    return Conversion(dtype, device, wanted, missing)


def _proper(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without axes of one element, which have no place in memory."""
    return tuple(n for n in shape if n != 1)


def _bad_capture(field: ParamField, message: str) -> CuError:
    note = Note(f"the kernel reads it as `p.{field.name}`", field.span)
    return CuError(Diagnostic("CU824", message, notes=(note,)))
