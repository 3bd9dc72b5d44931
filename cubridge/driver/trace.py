"""A kernel a statement at a time: `for event in cubridge.trace(kernel, (q, k, v))`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge.driver.adaptation import Adaptation
from cubridge.driver.kernels import is_kernel_text
from cubridge.driver.lift_source import lift_source
from cubridge.engine.values.launch import Launch
from cubridge.engine.values.steps import TraceEvent, trace_values
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.families import take_forward
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Shape
from cubridge.judge.runners import LAUNCH_CONSTANTS

if TYPE_CHECKING:
    from torch import Tensor


def trace(
    kernel: Adaptation | Kernel | Path | str,
    inputs: Iterable[Tensor],
    captures: Mapping[str, Tensor | float] | None = None,
    *,
    block: int = 0,
    watch: str | Iterable[str] = (),
) -> Iterator[TraceEvent]:
    """What one block does, statement by statement: a `TraceEvent` each, with its worker and the values that it sees then.

    `kernel`: an adaptation, CuIR, `sm80`, `sm90a`, or a file of either kind. `inputs`: q [B, Hq, Lq, D] and k, v [B, Hk, Lk, D],
    bf16 or fp16, small. `captures`: what else the kernel reads, by the names of `explain`; for an adaptation those of its
    `extra_inputs` where none are given. `watch`: names; only events that change one of them are given. `s` is a name, `row` stands
    for all fields of the row state and `smem.k` for all its slots. Errors: CU3xx, where the statement comes that has no value;
    CU509 for a backward kernel; CU111 for inputs that are none, and for a block that the launch does not have."""
    q, k, v = _three(inputs)
    shape = Shape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])
    if captures is None and isinstance(kernel, Adaptation):
        attention = kernel.adapted.reference.attention
        captures = attention.captures(shape, attention.extra(shape), {"q": q, "k": k, "v": v})
    launch = Launch(shape, captures or {}, LAUNCH_CONSTANTS)
    traced = _kernel(kernel, q)
    take_forward(traced.family, traced.span)
    events = trace_values(traced, (q, k, v), launch, block)
    names = (watch,) if isinstance(watch, str) else tuple(watch)
    return (e for e in events if not names or any(_is_watched(name, names) for name in e.changed))


def _is_watched(name: str, watched: tuple[str, ...]) -> bool:
    return any(name == w or name.startswith((f"{w}.", f"{w}[")) for w in watched)


def _three(inputs: Iterable[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    given = tuple(inputs)
    if len(given) != 3 or any(t.dim() != 4 for t in given):
        sizes = ", ".join(str(tuple(t.shape)) for t in given)
        help = "give q [B, Hq, Lq, D], k and v [B, Hk, Lk, D]"
        raise CuError(Diagnostic("CU111", f"inputs of sizes {sizes or 'none'} are not q, k and v", help=help))
    return given


def _kernel(kernel: Adaptation | Kernel | Path | str, q: Tensor) -> Kernel:
    match kernel:
        case Adaptation():
            return kernel.target_ir
        case Kernel():
            return kernel
        case _ if is_kernel_text(str(kernel)):
            dtype = "fp16" if str(q.dtype) == "torch.float16" else "bf16"
            return lift_source(str(kernel), dtype, q.shape[3], None).kernel
        case _:
            return parse(SourceFile.read(Path(kernel)))
