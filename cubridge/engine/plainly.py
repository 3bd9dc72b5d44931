"""Checks are asked for wherever a reference may be called first: under autocast, in inference mode, with another default device."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Final


@contextmanager
def plainly() -> Generator[None]:
    """Inside, torch rounds only where it is told to, can record gradients, and makes tensors on the CPU."""
    import torch

    autocast = {kind: torch.is_autocast_enabled(kind) for kind in _KINDS}
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        try:
            for kind in _KINDS:
                torch.set_autocast_enabled(kind, False)
            yield
        finally:
            for kind, enabled in autocast.items():
                torch.set_autocast_enabled(kind, enabled)


_KINDS: Final = ("cpu", "cuda")
