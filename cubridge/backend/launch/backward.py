"""The three kernels of a backward pass, one after the other: rows, pairs, and dq as halves. What one makes the next reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cubridge.backend.launch.device import Device, KernelText
from cubridge.backend.launch.runtime import Launcher

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.captured import CaptureValue

ROW_VALUES = ("lse_rows", "delta", "dq_sum")
"""What the first kernel makes, by the contracts' names."""


@dataclass(frozen=True, slots=True)
class BackwardLauncher:
    """Kernels on one device, for every size and stride that their contracts take."""

    rows: Launcher
    pairs: Launcher
    last: Launcher

    @staticmethod
    def of(
        device: Device, texts: tuple[KernelText, KernelText, KernelText], say: Callable[[str], None] | None = None
    ) -> BackwardLauncher:
        """`texts` in the order in which they run."""
        rows, pairs, last = (Launcher(device, text, say=say) for text in texts)
        return BackwardLauncher(rows, pairs, last)

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
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(dq, dk, dv). Shapes: q, o, d_o [B, Hq, Lq, D]; k, v [B, Hk, Lk, D]; lse, natural log, and its gradient d_lse [B, Hq,
        Lq], fp32; none is one of zeros. Errors: as `Launcher`."""
        import torch

        given = captures or {}
        d_lse = torch.zeros_like(lse) if d_lse is None else d_lse
        made = self.rows.run({"o": o, "d_o": d_o, "lse": lse, "d_lse": d_lse}, given, ROW_VALUES)
        dk, dv = torch.empty_like(k), torch.empty_like(v)
        read = {"q": q, "k": k, "v": v, "d_o": d_o, "lse_rows": made["lse_rows"], "delta": made["delta"]}
        self.pairs.run_into(read, given, {"dq_sum": made["dq_sum"], "dk": dk, "dv": dv})
        return self.last.run({"q": q, "dq_sum": made["dq_sum"]}, given, ("dq",))["dq"], dk, dv
