"""The three kernels of a backward pass, one after the other: rows, pairs, and dq as halves. What one makes the next reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from cubridge.backend.launch.call_plan import Plan, call_form
from cubridge.backend.launch.captured import numbers_read
from cubridge.backend.launch.device import Device, KernelText, LoadedKernel
from cubridge.backend.launch.runtime import MAX_PLANS, Launcher
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue

ROW_VALUES = ("lse_rows", "delta", "dq_sum")
"""What the first kernel makes, by the contracts' names."""


class PassInputs(NamedTuple):
    """Shapes: q, o, d_o [B, Hq, Lq, D]; k, v [B, Hk, Lk, D]; lse, natural log, and its gradient d_lse [B, Hq, Lq], fp32."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    lse: Tensor
    d_o: Tensor
    d_lse: Tensor


class InputGradients(NamedTuple):
    dq: Tensor
    dk: Tensor
    dv: Tensor


def like(tensor: Tensor) -> Tensor:
    """A gradient of `tensor` without values: laid out as it is, or dense where a kernel could not write that."""
    made = torch.empty_like(tensor)
    return made if made.stride(-1) == 1 else tensor.new_empty(tensor.shape)


@dataclass(frozen=True, slots=True)
class PreparedPass:
    """How to launch passes of one form."""

    rows: Plan
    pairs: Plan
    last: Plan

    def __call__(self, given: PassInputs, captured: Sequence[Tensor]) -> InputGradients:
        """`captured`: the arrays that the kernel of pairs reads, in the order of its contract."""
        q, k, v, o, lse, d_o, d_lse = given
        made = self.rows.new_outputs(q)
        self.rows.launch((o, d_o, lse, d_lse), made, ())
        lse_rows, delta, dq_sum = self._named(made)
        found = InputGradients(like(q), like(k), like(v))
        self.pairs.launch((q, k, v, d_o, lse_rows, delta), (dq_sum, found.dk, found.dv), captured)
        self.last.launch((q, dq_sum), (found.dq,), ())
        return found

    def _named(self, made: Sequence[Tensor]) -> list[Tensor]:
        by_name = {form.name: tensor for form, tensor in zip(self.rows.made, made, strict=True)}
        return [by_name[name] for name in ROW_VALUES]


@dataclass(frozen=True, slots=True)
class BackwardLauncher:
    """Kernels on one device, for every size and stride that their contracts take."""

    rows: Launcher
    pairs: Launcher
    last: Launcher
    _prepared: dict[object, PreparedPass] = field(default_factory=dict[object, PreparedPass], compare=False, repr=False)

    @staticmethod
    def of(
        device: Device, texts: tuple[KernelText, KernelText, KernelText], say: Callable[[str], None] | None = None
    ) -> BackwardLauncher:
        """`texts` in the order in which they run."""
        rows, pairs, last = (Launcher(device, text, say=say) for text in texts)
        return BackwardLauncher(rows, pairs, last)

    @property
    def launchers(self) -> tuple[Launcher, Launcher, Launcher]:
        return self.rows, self.pairs, self.last

    @property
    def align(self) -> int:
        return max(launcher.align for launcher in self.launchers)

    def load(self, dtype: DType, head_dim: int) -> tuple[LoadedKernel, ...]:
        """Compile and load a form before its first call, if none did; its kernels."""
        return tuple(launcher.prepare(dtype, head_dim) for launcher in self.launchers)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        lse: Tensor,
        d_o: Tensor,
        d_lse: Tensor | None = None,
        captures: Mapping[str, CaptureValue] | None = None,
    ) -> InputGradients:
        """Shapes: as `PassInputs`; no d_lse is one of zeros. Errors: as `Launcher`."""
        values = numbers_read(captures or {})
        given = PassInputs(q, k, v, o, lse, d_o, torch.zeros_like(lse) if d_lse is None else d_lse)
        form = (call_form((*given, *values.values()), self.align), tuple(values))
        if form not in self._prepared:
            if len(self._prepared) >= MAX_PLANS:
                self._prepared.clear()
            self._prepared[form] = self.prepare(given, values)
        arrays = [values[name] for name in self.pairs.arrays]
        return self._prepared[form](given, arrays)  # pyright: ignore[reportArgumentType]

    def prepare(self, given: PassInputs, captures: Mapping[str, CaptureValue]) -> PreparedPass:
        """How to launch passes of this form. Errors: as `Launcher`."""
        q, k, v, o, lse, d_o, d_lse = given
        rows = self.rows.plan({"o": o, "d_o": d_o, "lse": lse, "d_lse": d_lse}, captures, ROW_VALUES)
        made = {form.name: tensor for form, tensor in zip(rows.made, rows.new_outputs(q), strict=True)}
        read = {"q": q, "k": k, "v": v, "d_o": d_o, "lse_rows": made["lse_rows"], "delta": made["delta"]}
        sums = {"dq_sum": made["dq_sum"]}
        pairs = self.pairs.plan_into(read, captures, {**sums, "dk": like(k), "dv": like(v)})
        last = self.last.plan_into({"q": q, **sums}, captures, {"dq": like(q)})
        return PreparedPass(rows, pairs, last)
