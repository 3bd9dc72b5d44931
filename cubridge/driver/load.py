"""From the folder that `cuirc adapt` wrote to an operator."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge.driver.backward_folder import open_backward
from cubridge.driver.compiled import BATCHED, compile_for, in_layout
from cubridge.driver.folder import open_folder
from cubridge.frontend.reference.load import Reference
from cubridge.ir.diagnostics import CuError, Diagnostic

if TYPE_CHECKING:
    from cubridge.backend.launch.operator import AttentionOperator
    from cubridge.backend.launch.varlen import VarlenOperator


def load(
    folder: Path | str | os.PathLike[str],
    device: str = "cuda",
    *,
    reference: Callable[..., object] | None = None,
    extra_inputs: Callable[..., object] | None = None,
    layout: str = BATCHED,
) -> AttentionOperator | VarlenOperator:
    """The operator that `Adaptation.compile` gave, of the kernel text in `folder`, which must say what the CuIR beside it says and
    is judged on the device before its first result; it trains where `folder` has a backward pass. `reference`, with its
    `extra_inputs`: the live callable, where it was one; a file is read from its copy in the folder. Errors: CU842, CU843; those of
    reading the reference and of `compile`."""
    live = None if reference is None else Reference.of(reference, extra_inputs)  # pyright: ignore[reportArgumentType]
    try:
        adapted = open_folder(Path(folder), live)
        backward = open_backward(Path(folder), adapted)
    except OSError as error:
        raise CuError(Diagnostic("CU842", f"cannot read {error.filename}: {error.strerror}")) from error
    return in_layout(compile_for(adapted, device, backward), layout)
