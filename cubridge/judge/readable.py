"""Is what lifting reads of a kernel text what compilers see? The emulator's device asks before it compiles anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cubridge.backend.compile.headers import KERNELS_DIR, include_closure
from cubridge.frontend.cuda.text import folder_headers
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import Span

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText
    from cubridge.ir.contract import Instantiation


def check_readable(text: KernelText, _: Instantiation) -> None:
    """Errors: CU804 for a header that compilers find in another place than lifting does."""
    beside = Path(text.source.name).parent
    lifted = folder_headers(*text.include_dirs)
    for name, header in include_closure(text.source, (beside, *text.include_dirs, KERNELS_DIR)).items():
        other = lifted(name)
        if other is not None and other.data != header.data:
            message = f"compilers find another `{name}` than the header root has"
            raise CuError(Diagnostic("CU804", message, Span(header, 0, 0), help="give one of them another name"))
