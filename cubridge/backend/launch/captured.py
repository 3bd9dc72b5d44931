"""Captured values: what the reference reads besides q, k, v, made into the arrays and numbers that a kernel reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cubridge.backend.launch.arguments import formula
from cubridge.ir.contract import CapturedAddress, CType, ParamField
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.evaluate import evaluate_number

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Scalar = bool | int | float
    CaptureValue = Tensor | Scalar


def scalar_captures(values: Mapping[str, CaptureValue]) -> dict[str, Scalar]:
    """The captured values that are single numbers: Python's, and tensors without axes."""
    scalars: dict[str, Scalar] = {}
    for name, value in values.items():
        if isinstance(value, (bool, int, float)):
            scalars[name] = value
        elif value.dim() == 0:
            scalars[name] = value.item()
    return scalars


def captured_tensor(
    field: ParamField, values: Mapping[str, CaptureValue], names: Mapping[str, Scalar], device: torch.device
) -> Tensor:
    """The captured tensor of a field as the kernel reads it: contiguous on `device`, in the field's element type, the last
    axis padded with zeros. Errors: CU824 for a missing value, another shape, or integers past 32 bits."""
    import torch

    assert isinstance(field.value, CapturedAddress)
    capture = field.value
    value = values.get(capture.name)
    if value is None:
        raise _bad_capture(field, f"the captured value `{capture.name}` is missing")
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    wanted = tuple(int(evaluate_number(e, names)) for e in capture.extents)
    if tuple(tensor.shape) != wanted:
        sizes = f"{formula(capture.extents)} = {list(wanted)}"
        raise _bad_capture(field, f"`{capture.name}` has shape {list(tensor.shape)}; these sizes need {sizes}")
    if field.c_type is CType.FLOAT_POINTER:
        tensor = tensor.to(device, torch.float32)
    else:
        tensor = _to_int32(field, capture.name, tensor.to(device))
    length = wanted[-1] if wanted else 1
    missing = -length % capture.pad
    return torch.nn.functional.pad(tensor, (0, missing)).contiguous() if missing else tensor.contiguous()


def _to_int32(field: ParamField, name: str, tensor: Tensor) -> Tensor:
    import torch

    if tensor.is_floating_point():
        raise _bad_capture(field, f"`{name}` is {tensor.dtype}; the kernel reads integers")
    narrow = tensor.to(torch.int32)
    if tensor.dtype is torch.int64 and not torch.equal(narrow.to(torch.int64), tensor):
        raise _bad_capture(field, f"`{name}` holds integers that do not fit 32 bits")
    return narrow


def _bad_capture(field: ParamField, message: str) -> CuError:
    note = Note(f"the kernel reads it as `p.{field.name}`", field.span)
    return CuError(Diagnostic("CU824", message, notes=(note,)))
