"""CUDA graphs while they are captured: nothing may wait for the device, and nothing that is cached may be used."""

from __future__ import annotations

import torch

from cubridge.ir.diagnostics import Diagnostic, Refused


def is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def refuse_capturing(device: torch.device, what: str) -> None:
    """Errors: CU829 while a CUDA graph is captured, for what cannot be recorded."""
    if is_capturing(device):
        help_ = "call it once with such arguments before the graph is captured"
        raise Refused(Diagnostic("CU829", f"{what} while a CUDA graph is captured", help=help_))
