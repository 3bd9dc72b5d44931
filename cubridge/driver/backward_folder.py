"""The backward pass in the folder that `cuirc adapt --grad` wrote, read back: each text must say the CuIR beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge.backend.text.lower import Patched
from cubridge.driver.backward import NAMES, PATCH, Lowered
from cubridge.driver.kernels import BACKWARD, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.ir.canonical import canonical
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile
from cubridge.judge.gradient_runs import Pass

if TYPE_CHECKING:
    from cubridge.driver.adapted import Adapted
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.ir.nodes import Kernel


def open_backward(folder: Path, adapted: Adapted) -> Lowered | None:
    """None where the report of the folder has no backward pass. Errors: OSError; CU843 where a text and the CuIR beside it
    disagree; CU4xx; those of the gradient."""
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if report.get("backward") is None:
        return None
    chosen = tuple(choose_kernel(name) for name in BACKWARD)
    dtype, dim = adapted.dtype, adapted.shape.D
    targets = (_said(folder, n, c, dtype, dim) for n, c in zip(NAMES, chosen, strict=True))
    patches = _patches((folder / PATCH).read_bytes())
    changed = report["backward"]["changed"]
    return Lowered(
        gradient=adapted.reference.gradient(),
        dtype=dtype,
        head_dim=dim,
        chosen=chosen,
        lifted=tuple(lift_kernel(kernel, dtype, dim) for kernel in chosen),
        targets=Pass(*targets),
        patched=tuple(_patched(folder, name, patches[name], changed[name]) for name in NAMES),
    )


def _said(folder: Path, name: str, kernel: ChosenKernel, dtype: str, head_dim: int) -> Kernel:
    """The CuIR of a text, which must be the one beside it. Errors: CU843."""
    source = SourceFile.read(folder / f"{name}.cu")
    target = lift_kernel(kernel, dtype, head_dim, source).kernel
    if canonical(parse(SourceFile.read(folder / f"{name}.cuir"))) != canonical(target):
        message = f"{source.name} does not say what {name}.cuir says"
        raise CuError(Diagnostic("CU843", message, help="one of them was changed; run cuirc adapt again"))
    return target


def _patches(whole: bytes) -> dict[str, bytes]:
    """Of each text; empty where it is as it was."""
    starts = {name: whole.find(f"--- a/{name}.cu\n".encode()) for name in NAMES}
    ends = sorted((*(at for at in starts.values() if at >= 0), len(whole)))
    return {name: whole[at : ends[ends.index(at) + 1]] if at >= 0 else b"" for name, at in starts.items()}


def _patched(folder: Path, name: str, patch: bytes, changed: dict[str, Any]) -> Patched:
    text = (folder / f"{name}.cu").read_bytes()
    return Patched(text, patch, tuple(changed["regions"]), changed["lines_added"], changed["lines_removed"])
