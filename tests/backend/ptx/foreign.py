"""Kernels that use none of our helpers, compiled by NVRTC and run on the PTX machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from cubridge.backend.compile.nvrtc import run_nvrtc
from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch, Schedule, TensorFlags, TensorMap, TensorMemory
from cubridge.backend.ptx.parser import parse_program
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile

HEAD = """
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned short u16;
#define G extern "C" __global__ void kernel
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
"""


@cache
def machine(text: str) -> Machine:
    source = SourceFile.from_text("kernel.cu", HEAD + text)
    output = run_nvrtc(
        "kernel.cu", source, {}, ("--gpu-architecture=compute_90a", "--std=c++17", "-lineinfo", "--no-cache")
    )
    assert output.ptx.strip("\0 \n"), output.log
    ptx = SourceFile.from_text("kernel.ptx", output.ptx.rstrip("\0"))
    return Machine(parse_program(ptx, "kernel"), {"kernel.cu": source})


@dataclass(frozen=True, slots=True)
class Given:
    """A launch: tensors in the order of the kernel's pointers, the last of them the output. `maps`: TMA boxes (tensor, its rows and
    columns, swizzle), which come first among the parameters, 128 bytes each. `zeros`: tensors that start and end as 0."""

    tensors: tuple[Tensor, ...]
    threads: int = 128
    blocks: int = 1
    shared: int = 0
    cluster: int = 1
    maps: tuple[tuple[int, tuple[int, int], int], ...] = ()
    zeros: tuple[int, ...] = ()


def bytes_of(t: Tensor) -> bytes:
    return bytes(t.contiguous().view(torch.uint8).flatten().tolist())


def launch_of(text: str, given: Given) -> PtxLaunch:
    last = len(given.tensors) - 1
    tensors = tuple(
        TensorMemory(f"t{n}", bytes_of(t) if n < last else b"\xff" * len(bytes_of(t)), _flags(n, last, given), 16)
        for n, t in enumerate(given.tensors)
    )
    maps = tuple(_map(n, t, given) for n, t in enumerate(given.maps))
    start = 128 * len(maps)
    pointers = tuple((start + 8 * n, n) for n in range(len(tensors)))
    grid = Grid((given.blocks, 1, 1), (given.threads, 1, 1), given.shared, given.cluster)
    params = bytes(max(start + 8 * len(tensors), 1))
    return PtxLaunch(grid, params.ljust(machine(text).program.param_bytes, b"\0"), tensors, pointers, maps)


def run(text: str, given: Given, schedules: tuple[Schedule, ...] = tuple(Schedule), seconds: float = 10.0) -> Tensor:
    """The output, which every schedule must agree on."""
    launch = launch_of(text, given)
    outputs = [machine(text).run(launch, schedule, seconds)[0] for schedule in schedules]
    assert all(o == outputs[0] for o in outputs)
    return torch.frombuffer(bytearray(outputs[0]), dtype=given.tensors[-1].dtype).view(given.tensors[-1].shape)


def _flags(number: int, last: int, given: Given) -> TensorFlags:
    if number in given.zeros:
        return TensorFlags.STARTS_AND_ENDS_ZERO
    return TensorFlags.OUTPUT if number == last else TensorFlags.INPUT


def _map(number: int, described: tuple[int, tuple[int, int], int], given: Given) -> TensorMap:
    tensor, (rows, columns), swizzle = described
    t = given.tensors[tensor]
    width = t.element_size()
    return TensorMap(
        128 * number, tensor, width, swizzle, (t.shape[1], t.shape[0]), (t.shape[1] * width,), (columns, rows)
    )


def fault(text: str, given: Given) -> Diagnostic:
    """What every schedule has against a kernel; the first one's words."""
    found: list[Diagnostic] = []
    for schedule in Schedule:
        try:
            run(text, given, (schedule,))
        except CuError as error:
            found.append(error.diagnostics[0])
    assert len(found) == len(Schedule), f"{len(found)} of {len(Schedule)} schedules notice"
    return found[0]
