"""What a launch gives a kernel in the value engine: sizes, parameters, captured tensors, the grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.operands import Value, fault
from cubridge.engine.tile_lists import tile_lists
from cubridge.engine.values.tiles import TORCH
from cubridge.ir.capture_names import capture_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Binary,
    Break,
    Captured,
    Counters,
    Field,
    Global,
    If,
    Kernel,
    Name,
    Scalar,
    TensorMap,
    TileList,
)
from cubridge.ir.spec import Shape
from cubridge.ir.walk import walk

_AXES: Final = ("block_x", "block_y", "block_z")


@dataclass(frozen=True, slots=True)
class Launch:
    """`captures`: tensors by name, and numbers, also as tensors without axes. `values`: other names that host expressions
    read, such as SM_COUNT.

    grid: blocks along x, y, z; None: one block for each query tile, head and batch, or, where work is dealt, a grid that gives
    each block several work tiles. counters: the launch has its work dealt by counters."""

    shape: Shape
    captures: Mapping[str, Tensor | float] = field(default_factory=dict)
    values: Mapping[str, int | float] = field(default_factory=dict)
    grid: tuple[int, int, int] | None = None
    want_lse: bool = True
    counters: bool = False


@dataclass(frozen=True, slots=True)
class GlobalTensor:
    """A tensor in global memory; an input has one row of zeros more, which tail rows of a copy read."""

    data: Tensor
    rows: int
    is_input: bool


class Blocks:
    """Coordinates of the blocks of a run, [blocks] each."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> None:
        self.x, self.y, self.z = x, y, z

    def __len__(self) -> int:
        return len(self.x)

    def take(self, which: np.ndarray) -> Blocks:
        return Blocks(self.x[which], self.y[which], self.z[which])


def grid_of_tiles(kernel: Kernel, tiles: int, shape: Shape) -> tuple[int, int, int]:
    """A block for each query tile, head and batch, along the axes by which the schedule tells them."""
    if kernel.schedule.params:
        return tiles * shape.Hq * shape.B, 1, 1
    sizes = {_axis(kernel, "h", 1): shape.Hq, _axis(kernel, "b", 2): shape.B}
    x, y, z = (sizes.get(axis, tiles) for axis in range(3))
    return x, y, z


def _axis(kernel: Kernel, name: str, usual: int) -> int:
    """The axis of the grid that a coordinate of the work tile is."""
    for statement in kernel.schedule.body:
        match statement:
            case Assign(Attr(Name("tile"), target), Name(block)) if target == name and block in _AXES:
                return _AXES.index(block)
            case _:
                pass
    return usual


def all_blocks(grid: tuple[int, int, int]) -> Blocks:
    z, y, x = np.meshgrid(*(np.arange(n, dtype=np.int64) for n in reversed(grid)), indexing="ij")
    return Blocks(x.ravel(), y.ravel(), z.ravel())


def host_names(kernel: Kernel, launch: Launch) -> dict[str, Value]:
    """What host expressions and kernel code read by bare name: sizes, constants, launch values, scalar captures."""
    numbers = {name: _number(v) for name, v in launch.captures.items() if not isinstance(v, Tensor) or v.dim() == 0}
    return numbers | dict(launch.values) | launch.shape.sizes() | kernel.constant_values


def _number(value: Tensor | float) -> float:
    return value.item() if isinstance(value, Tensor) else value


def host_value(declared: Field, kind: Scalar, names: Mapping[str, Value]) -> Value:
    """A scalar parameter, rounded to its type as the launch does."""
    if kind.host is None:
        raise fault("CU301", f"the parameter `{declared.name}` has no host expression", declared)
    value = evaluate_number(kind.host, names)
    return float(np.float32(value)) if kind.dtype.is_float else int(value)  # pyright: ignore[reportArgumentType]


def captured_tensor(declared: Field, kind: Captured, launch: Launch, names: Mapping[str, Value]) -> Tensor:
    """A captured tensor as the launch copies it. Pads hold what does harm if it is used: NaN, or the last integer again."""
    name = capture_of(declared)
    given = None if name is None else launch.captures.get(name)
    if not isinstance(given, Tensor):
        raise fault("CU312", f"the captured tensor `{name}` is not given", declared)
    extents = tuple(int(evaluate_number(e, names)) for e in kind.extents)  # pyright: ignore[reportArgumentType]
    if tuple(given.shape) != extents:
        message = f"the captured tensor `{name}` has shape {tuple(given.shape)}, and the kernel declares {extents}"
        raise fault("CU312", message, declared)
    tensor = given.to(TORCH[kind.dtype])
    missing = -extents[-1] % kind.pad if extents else 0
    if not missing:
        return tensor
    if kind.dtype.is_float:
        return torch.nn.functional.pad(tensor, (0, missing), value=math.nan)
    last = tensor[..., -1:] if extents[-1] else torch.zeros(*extents[:-1], 1, dtype=tensor.dtype)
    return torch.cat((tensor, last.expand(*extents[:-1], missing)), dim=-1)


def work_count(kernel: Kernel, params: Mapping[str, Value]) -> int | None:
    """The number of work tiles of a launch: the parameter at which the loop over work ends; None where there is no such loop."""
    for node in walk(kernel):
        match node:
            case If(Binary(">=", _, Attr(Name("p"), name)), (Break(),)) if isinstance(params.get(name), int):
                return params[name]
            case _:
                pass
    return None


def parameters(
    kernel: Kernel, inputs: Mapping[str, Tensor], launch: Launch, sums: Mapping[str, Tensor] | None = None
) -> dict[str, Value]:
    """The value of every parameter; `sums` are what the kernel adds to. Errors: CU312 for an input that is missing or not as
    declared."""
    names = host_names(kernel, launch)
    result: dict[str, Value] = {}
    for declared in kernel.params:
        match declared.type:
            case Scalar() as kind:
                result[declared.name] = host_value(declared, kind, names)
            case Captured() as kind:
                result[declared.name] = captured_tensor(declared, kind, launch, names)
            case TileList():
                continue
            case Counters():
                result[declared.name] = True if launch.counters else None
            case (Global(dtype, shape) | TensorMap(dtype, shape)) as kind if declared.name not in inputs:
                optional = isinstance(kind, Global) and kind.optional
                extents = tuple(int(evaluate_number(e, names)) for e in shape)  # pyright: ignore[reportArgumentType]
                given = (sums or {}).get(declared.name)
                empty = torch.full(extents, math.nan, dtype=TORCH[dtype]) if given is None else given.clone()
                result[declared.name] = (
                    None if optional and not launch.want_lse else GlobalTensor(empty, 0, is_input=False)
                )
            case Global(dtype, shape) | TensorMap(dtype, shape):
                extents = tuple(int(evaluate_number(e, names)) for e in shape)  # pyright: ignore[reportArgumentType]
                result[declared.name] = _input(declared, inputs, TORCH[dtype], extents)
            case _:
                raise fault("CU301", f"a parameter cannot be `{type(declared.type).__name__}`", declared)
    return result | _tile_lists(kernel, names, result)


def _tile_lists(kernel: Kernel, names: Mapping[str, Value], params: Mapping[str, Value]) -> dict[str, Value]:
    """The lists of key tiles, which the launch makes from the other parameters."""
    lists = ((f.name, f.type) for f in kernel.params if isinstance(f.type, TileList))
    return {name: tile_lists(kind, names, params, torch.device("cpu")).int() for name, kind in lists}


def _input(declared: Field, inputs: Mapping[str, Tensor], dtype: torch.dtype, extents: tuple[int, ...]) -> GlobalTensor:
    tensor = inputs.get(declared.name)
    if tensor is None or tensor.dtype != dtype or tuple(tensor.shape) != extents:
        got = "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
        raise CuError(Diagnostic("CU312", f"`{declared.name}` must be {dtype} {extents}, and is {got}", declared.span))
    if tensor.dim() == 3:
        return GlobalTensor(torch.nn.functional.pad(tensor, (0, 1)), extents[-1], is_input=True)
    return GlobalTensor(torch.nn.functional.pad(tensor, (0, 0, 0, 1)), extents[-2], is_input=True)
