"""CUDA text to CuIR, by the rules."""

from __future__ import annotations

from pathlib import Path

from cubridge.driver.kernels import ChosenKernel
from cubridge.frontend.cuda.lemmas import Lemmas, load_lemmas
from cubridge.frontend.cuda.lift import Lifted, lift
from cubridge.frontend.cuda.text import folder_headers
from cubridge.ir.contract import Instantiation
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile


def lift_kernel(
    kernel: ChosenKernel,
    dtype: str,
    head_dim: int,
    source: SourceFile | None = None,
    instance: Instantiation | None = None,
) -> Lifted:
    """The CuIR of one instantiation, the first of its element type and head dim if none is given, with the source map. `source`:
    another text under the kernel's contract.
    Errors: CU42x, every statement outside the vocabulary; CU809."""
    text = kernel.text if source is None else kernel.with_text(source)
    instance = instance or kernel.instantiation(dtype, head_dim)
    headers = folder_headers(*text.include_dirs)
    return lift(text.source, text.contract, instance, headers, own_lemmas(Path(kernel.text.source.name)))


def own_lemmas(kernel: Path) -> Lemmas:
    """The tested helpers: the shipped table, and that of the kernel beside it, `FILE.lemmas.toml` for `FILE.cu`."""
    table = kernel.with_suffix(".lemmas.toml")
    return load_lemmas(table) if table.is_file() else load_lemmas()


def is_readable(kernel: ChosenKernel, dtype: str, head_dim: int) -> bool:
    """Can the rules lift the text as it is?"""
    try:
        lift_kernel(kernel, dtype, head_dim)
    except CuError:
        return False
    return True
