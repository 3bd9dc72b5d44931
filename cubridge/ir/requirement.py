"""What must hold of tensors before a launch, told where the tensors are: whoever asks for the answer waits for their device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cubridge.ir.diagnostics import Diagnostic, Refused

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Requirement:
    """`holds`: one boolean on the tensors' device. `fault`: what is wrong where it does not; it may read the tensors. `what`: the
    same in words that read none."""

    holds: Tensor
    what: str
    fault: Callable[[], Diagnostic]

    def check(self) -> None:
        """Waits for the device. Errors: the fault, as a refusal."""
        if not bool(self.holds):
            raise Refused(self.fault())
