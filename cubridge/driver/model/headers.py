"""The headers of a kernel, as prompts show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubridge.backend.compile.headers import include_closure

if TYPE_CHECKING:
    from cubridge.driver.kernels import ChosenKernel


def header_texts(kernel: ChosenKernel) -> dict[str, str]:
    """Every header that the text reaches by `#include "NAME"`, by NAME."""
    headers = include_closure(kernel.text.source, kernel.text.include_dirs)
    return {name: header.text for name, header in headers.items()}
