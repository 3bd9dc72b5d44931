"""CUDA text to CuIR, verified."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from cubridge.driver.kernels import ChosenKernel
from cubridge.frontend.cuda.lemmas import Lemmas, load_lemmas
from cubridge.frontend.cuda.lift import Lifted, lift
from cubridge.frontend.cuda.text import Headers, folder_headers
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.judge.well_formed import verify_kernel

OUTSIDE: Final = frozenset(f"CU42{n}" for n in range(3, 10))
"""Codes of texts that read as CUDA and are outside the vocabulary of lifting."""


def lift_kernel(kernel: ChosenKernel, dtype: str, head_dim: int, source: SourceFile | None = None) -> Lifted:
    """The CuIR of one instantiation, with the source map. `source`: another text under the kernel's contract.
    Errors: CU42x, every statement outside the vocabulary; CU809."""
    text = kernel.text if source is None else kernel.with_text(source)
    instance = kernel.instantiation(dtype, head_dim)
    headers = _headers(text.include_dirs)
    return lift(text.source, text.contract, instance, headers, own_lemmas(Path(kernel.text.source.name)))


def own_lemmas(kernel: Path) -> Lemmas:
    """The proved helpers: the shipped table, and that of the kernel beside it, `FILE.lemmas.toml` for `FILE.cu`."""
    table = kernel.with_suffix(".lemmas.toml")
    return load_lemmas(table) if table.is_file() else load_lemmas()


def lift_verified(kernel: ChosenKernel, dtype: str, head_dim: int) -> Lifted:
    """As `lift_kernel`; of a text that the rules cannot read, what a model lifted from it before and what lies beside it, judged
    again as far as that needs no run. Errors: besides, all that static rules and the order engine find."""
    try:
        lifted = lift_kernel(kernel, dtype, head_dim)
    except CuError as error:
        recorded = _recorded(kernel, dtype, head_dim)
        if recorded is None:
            raise CuError(*error.diagnostics, exit_code=error.exit_code) from None
        return recorded
    verify_kernel(lifted.kernel)
    return lifted


def is_readable(kernel: ChosenKernel, dtype: str, head_dim: int) -> bool:
    """Can the rules lift the text as it is?"""
    try:
        lift_kernel(kernel, dtype, head_dim)
    except CuError:
        return False
    return True


def _recorded(kernel: ChosenKernel, dtype: str, head_dim: int) -> Lifted | None:
    """Errors: CU719; what CuIR that is not anchored in the text is refused for."""
    from cubridge.driver.model.lift_judge import LiftJudge
    from cubridge.driver.model.sidecar import read_sidecar
    from cubridge.driver.sandbox.process import InProcess

    cuir = read_sidecar(kernel, dtype, head_dim)
    return None if cuir is None else LiftJudge(kernel, dtype, head_dim, InProcess()).read(cuir)[0]


@cache
def _headers(folders: tuple[Path, ...]) -> Headers:
    return folder_headers(*folders)
