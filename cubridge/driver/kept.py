"""Adaptations on disk, by the content that made them. What is damaged there is adapted again, and all that is taken from there is
read against its CuIR, and judged on the device before its first result."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.compile.cache import content_key, default_cache_dir
from cubridge.backend.compile.headers import include_closure
from cubridge.driver.adapt import adapt
from cubridge.driver.backward_folder import open_backward
from cubridge.driver.compiled import compile_for
from cubridge.driver.folder import open_folder
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.reference import TracedReference, says, trace_reference
from cubridge.driver.request import as_dtype
from cubridge.ir.diagnostics import CuError

if TYPE_CHECKING:
    from cubridge.backend.launch.operator import AttentionOperator
    from cubridge.driver.adaptation import Adaptation
    from cubridge.driver.adapted import Adapted
    from cubridge.driver.backward import Lowered
    from cubridge.driver.place import Place
    from cubridge.frontend.reference.load import Reference
    from cubridge.ir.spec import Shape

_log: Final = logging.getLogger("cubridge")


def adapted_or_kept(reference: Reference, place: Place, shape: Shape | None, dtype: torch.dtype) -> AttentionOperator:
    """The operator of `reference`, which is read here; adapted only where no process before did.
    Errors: those of `adapt` and of `Adaptation.compile`."""
    traced = trace_reference(reference, shape, as_dtype(dtype))
    folder = default_cache_dir() / "adaptations" / key_of(traced, place.kernel, as_dtype(dtype), place.grad)
    kept = _read(folder, traced)
    if kept is not None:
        return compile_for(kept[0], place.device, kept[1])
    _log.warning("`%s` is adapted to %s, once for this content", traced.name, place.kernel)
    adaptation = adapt(traced, place.kernel, shape, dtype, grad=place.grad)
    operator = adaptation.compile(place.device)
    _write(folder, adaptation)
    return operator


def key_of(traced: TracedReference, kernel: str, dtype: str, grad: bool = False) -> str:
    """Of what is asked, the kernel's text, and everything that turns the one into the other; backward kernels are among that."""
    text = choose_kernel(kernel).text
    headers = [(name, header.digest) for name, header in include_closure(text.source, text.include_dirs).items()]
    asked = says(traced.attention.spec)
    return content_key(_versions(), asked, dtype, text.source.digest, headers, text.contract, grad)


@cache
def _versions() -> str:
    """Of torch, and of every file of this package."""
    package = Path(__file__).parents[1]
    files = sorted(path for path in package.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so"))
    return content_key(torch.__version__, *(path.read_bytes() for path in files))


def _read(folder: Path, traced: TracedReference) -> tuple[Adapted, Lowered | None] | None:
    """None if there is none, or if it is not what was written."""
    try:
        adapted = open_folder(folder, traced)
        return adapted, open_backward(folder, adapted)
    except (OSError, CuError, ValueError, KeyError, TypeError):
        return None


def _write(folder: Path, adaptation: Adaptation) -> None:
    """Whole or not at all. Where the folder cannot be written, or its page not drawn, the next process adapts again."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as made:
            adaptation.write(Path(made))
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(made, folder)
    except (OSError, CuError):
        return
