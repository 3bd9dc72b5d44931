"""What one call costs on the host: microseconds from the call to its return, while the device is idle.

On a machine without a GPU the same path is taken up to the driver's launch, with a device that launches nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from bench.table import render
from cubridge.backend.compile.compiler import listed_instantiations
from cubridge.backend.launch.device import Device, KernelText, Launch, TensorMapRequest
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.compiled import compile_adapted
from cubridge.ir.contract import Instantiation
from cubridge.ir.spec import Shape
from cubridge.ir.types import DType

SHAPE: Final = Shape(1, 2, 2, 128, 128, 64)
"""Small: no call waits for the launches before it."""
CALLS: Final = 200
ROUNDS: Final = 15
GOALS: Final = {"q, k, v alone": 30.0, "captures": 40.0}


@dataclass(frozen=True, slots=True)
class HostTime:
    """Microseconds of a call: the median over rounds and the least. `goal`: 30 without captures, 40 with."""

    case: str
    kernel: str
    median: float
    least: float
    goal: float


def host_times(device: Device | None, kernels: tuple[str, ...] = ("sm80", "sm90a")) -> list[HostTime]:
    """`device`: None for the one that launches nothing."""
    return [_time(case, kernel, device or Nowhere()) for kernel in kernels for case in CASES]


def host_table(rows: list[HostTime]) -> str:
    lines = [(f"{r.case}, {r.kernel}", r.median, r.least, r.goal) for r in rows]
    return render(("us a call", "median", "least", "goal"), lines)


def _time(case: str, kernel: str, device: Device) -> HostTime:
    reference, extra = CASES[case]
    if isinstance(reference, torch.nn.Module):
        reference.to("cpu")  # where references are read
    adapted = adapt_unchecked(reference, kernel, extra_inputs=(lambda shape, _: extra(shape)) if extra else None)
    if isinstance(reference, torch.nn.Module):
        reference.to(device.torch_device)
    run = compile_adapted(adapted, lambda _: device, check=False)
    given = {n: v.to(device.torch_device) for n, v in extra(SHAPE).items()} if extra else {}
    sides = ((SHAPE.Hq, SHAPE.Lq), (SHAPE.Hk, SHAPE.Lk), (SHAPE.Hk, SHAPE.Lk))
    q, k, v = (torch.randn(1, h, n, SHAPE.D, device=device.torch_device).bfloat16() for h, n in sides)
    samples = [_sample(lambda: run(q, k, v, **given), device.torch_device) for _ in range(ROUNDS)]
    goal = GOALS["captures" if extra else "q, k, v alone"]
    return HostTime(case, kernel, statistics.median(samples), min(samples), goal)


def _sample(call: Callable[[], object], device: torch.device) -> float:
    call()
    _wait(device)
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    seconds = time.perf_counter() - start
    _wait(device)
    return seconds / CALLS * 1e6


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# ---- references ------------------------------------------------------------------------------------------------------


def _softmax(s: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(s, -1).to(v.dtype) @ v.repeat_interleave(s.shape[1] // v.shape[1], 1)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5


def _full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _softmax(_scores(q, k), v)


def _alibi(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    return _softmax(_scores(q, k) + slopes[:, None, None] * (torch.arange(k.shape[2], device=q.device) - i), v)


def _documents(q: Tensor, k: Tensor, v: Tensor, doc: Tensor) -> Tensor:
    same = doc[:, : q.shape[2], None] == doc[:, None, : k.shape[2]]
    return _softmax(_scores(q, k).masked_fill(~same[:, None], -torch.inf), v)


class _Learned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(SHAPE.Lk), requires_grad=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _softmax(_scores(q, k) + self.bias[torch.arange(k.shape[2], device=q.device) % SHAPE.Lk], v)


CASES: Final[Mapping[str, tuple[Callable[..., Tensor], Callable[[Shape], dict[str, Tensor]] | None]]] = (
    MappingProxyType(
        {
            "full": (_full, None),
            "slopes, as they are": (_alibi, lambda s: {"slopes": torch.linspace(0.1, 0.5, s.Hq)}),
            "a parameter": (_Learned(), lambda _: {}),
            "document ids, int64": (_documents, lambda s: {"doc": torch.arange(max(s.Lq, s.Lk)).expand(s.B, -1) // 9}),
        }
    )
)


# ---- a device that launches nothing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nothing:
    """A kernel that is not launched."""

    instantiation: Instantiation
    key: str = ""
    shared_bytes: int = 0

    def launch(self, launch: Launch, keep: Any) -> None:
        del launch, keep


@dataclass(frozen=True, slots=True)
class Nowhere:
    torch_device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    constants: Mapping[str, int] = field(default_factory=lambda: {"SM_COUNT": 132, "L2_BYTES": 50 << 20})
    maps_can_be_kept: bool = True
    makes_lists: bool = True

    def load(self, text: KernelText, dtype: DType, head_dim: int) -> Nothing:
        return Nothing(listed_instantiations(text.contract, dtype, head_dim)[0])

    def tensor_map(self, request: TensorMapRequest) -> bytes:
        del request
        return bytes(128)

    def counters(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32)
