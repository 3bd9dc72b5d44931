"""Is a kernel text safe to build and run here? The emulator's device asks before it builds anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cubridge.backend.compile.headers import KERNELS_DIR, include_closure
from cubridge.frontend.cuda.checks import check_emulated
from cubridge.frontend.cuda.packaged import EMULATOR, is_packaged
from cubridge.frontend.cuda.text import folder_headers
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import Span

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText
    from cubridge.ir.contract import Instantiation
    from cubridge.ir.source import SourceFile


def check_readable(text: KernelText, form: Instantiation) -> None:
    """What is read is what the compiler will see: the headers that it finds are those that lifting finds.
    Errors: CU804 for headers that the two find in different places; CU420, CU421, CU423 as check_emulated."""
    compiled = include_closure(text.source, (_beside(text.source), *text.include_dirs, KERNELS_DIR))
    lifted = folder_headers(*text.include_dirs)
    for name, header in compiled.items():
        other = header if name.startswith(EMULATOR) else lifted(name)
        if (other is not None and other.data != header.data) or (name.startswith(EMULATOR) and not is_packaged(header)):
            message = f"compilers find another `{name}` than the header root has"
            raise CuError(Diagnostic("CU804", message, Span(header, 0, 0), help="give one of them another name"))
    check_emulated(text.source, text.contract, form, lambda name: lifted(name) if name in compiled else None)


def _beside(source: SourceFile) -> Path:
    return Path(source.name).parent
