"""Launches of a foreign kernel, filled as its contract says."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cubridge.backend.ptx.machine import Grid, PtxLaunch, TensorFlags, TensorMemory
from cubridge.backend.ptx.program import Space, Variable
from cubridge.driver.foreign.build import Built
from cubridge.driver.foreign.structs import StructLayout
from cubridge.ir.contract import ElementType, Role
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.foreign import ForeignContract, ForeignParameter, ForeignStruct, ForeignTensor, ParameterKind
from cubridge.ir.spec import Shape
from cubridge.ir.types import DType
from cubridge.judge.inputs import make_inputs

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_ALIGN: Final = 16
_SEED: Final = 7


@dataclass(frozen=True, slots=True)
class ForeignLaunch:
    """A launch with its inputs, and what is given to the kernel by where it lies among the parameters."""

    shape: Shape
    inputs: Mapping[str, Tensor]
    ptx: PtxLaunch
    placed: Mapping[int, ForeignParameter]

    @property
    def blocks(self) -> int:
        x, y, z = self.ptx.grid.blocks
        return x * y * z


def launch_of(
    built: Built, contract: ForeignContract, shape: Shape, given: Mapping[str, Tensor] | None = None
) -> ForeignLaunch:
    """The launch of a shape on `given` inputs, or on random numbers. Errors: CU852 where the entry has other parameters."""
    import torch

    half = torch.bfloat16 if contract.dtype is DType.BF16 else torch.float16
    inputs = given or dict(zip("qkv", make_inputs("random", shape, half, _SEED), strict=True))
    placed = placed_values(built, contract)
    params = bytearray(built.machine.program.param_bytes)
    pointers: list[tuple[int, int]] = []
    names = [t.name for t in contract.tensors]
    for offset, parameter in placed.items():
        if isinstance(parameter.value, str):
            pointers.append((offset, names.index(parameter.value)))
        else:
            params[offset : offset + parameter.kind.bytes] = packed(parameter, shape)
    grid = tuple(int(evaluate_number(e, shape.sizes())) for e in contract.grid)  # pyright: ignore[reportArgumentType]
    memory = tuple(_memory(t, inputs, shape, half) for t in contract.tensors)
    x, y, z = grid
    made = Grid((x, y, z), (contract.threads, 1, 1), contract.shared_bytes)
    return ForeignLaunch(shape, inputs, PtxLaunch(made, bytes(params), memory, tuple(pointers)), placed)


def packed(parameter: ForeignParameter, shape: Shape) -> bytes:
    assert not isinstance(parameter.value, str)
    value = evaluate_number(parameter.value, shape.sizes())
    if parameter.kind is ParameterKind.FLOAT:
        return struct.pack("<f", value)
    return int(value).to_bytes(parameter.kind.bytes, "little", signed=True)  # pyright: ignore[reportArgumentType]


def placed_values(built: Built, contract: ForeignContract) -> Mapping[int, ForeignParameter]:
    """All that has a value, by where it lies, as the compiler says; each must be as wide as the contract says.
    Errors: CU852."""
    program = built.machine.program
    declared = sorted((v for v in program.variables.values() if v.space is Space.PARAM), key=lambda v: v.offset)
    if len(declared) != len(contract.parameters):
        message = f"the entry has {len(declared)} parameters, and its contract {len(contract.parameters)}"
        raise CuError(Diagnostic("CU852", message, contract.place("parameters")))
    found: dict[int, ForeignParameter] = {}
    for variable, parameter in zip(declared, contract.parameters, strict=True):
        if isinstance(parameter, ForeignStruct):
            found |= _placed_fields(variable, parameter, built.layouts[parameter.name])
        elif variable.bytes != parameter.kind.bytes:
            message = f"`{parameter.name}` has {variable.bytes} bytes in the kernel, not those of `{parameter.kind}`"
            raise CuError(Diagnostic("CU852", message, parameter.span))
        else:
            found[variable.offset] = parameter
    return found


def _placed_fields(variable: Variable, parameter: ForeignStruct, layout: StructLayout) -> dict[int, ForeignParameter]:
    if layout.bytes != variable.bytes:
        message = f"`{parameter.type}` has {layout.bytes} bytes, and `{parameter.name}` of the kernel {variable.bytes}"
        raise CuError(Diagnostic("CU852", message, parameter.span))
    return {variable.offset + layout.fields[f.name].offset: f for f in parameter.fields}


def _memory(tensor: ForeignTensor, inputs: Mapping[str, Tensor], shape: Shape, half: torch.dtype) -> TensorMemory:
    if tensor.role is Role.INPUT:
        import torch

        data = inputs[tensor.name].contiguous().view(torch.uint8).numpy().tobytes()
        return TensorMemory(tensor.name, data, TensorFlags.INPUT, _ALIGN)
    width = 4 if tensor.element is ElementType.F32 else half.itemsize
    count = int(np.prod([int(evaluate_number(e, shape.sizes())) for e in tensor.shape]))  # pyright: ignore[reportArgumentType]
    return TensorMemory(tensor.name, b"\xff" * (count * width), TensorFlags.OUTPUT, _ALIGN)


def outputs_of(contract: ForeignContract, shape: Shape, outputs: tuple[bytes, ...]) -> dict[str, Tensor]:
    """The outputs of a run by the names of their tensors."""
    import torch

    half = torch.bfloat16 if contract.dtype is DType.BF16 else torch.float16
    found: dict[str, Tensor] = {}
    for tensor, data in zip((t for t in contract.tensors if t.role is Role.OUTPUT), outputs, strict=True):
        extents = [int(evaluate_number(e, shape.sizes())) for e in tensor.shape]  # pyright: ignore[reportArgumentType]
        dtype = torch.float32 if tensor.element is ElementType.F32 else half
        found[tensor.name] = torch.frombuffer(bytearray(data), dtype=dtype).view(*extents)
    return found
