"""Where the kernels of others lie: nothing of theirs is part of this repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

FOREIGN: Final = Path(__file__).resolve().parents[2] / ".foreign"
RELEASE: Final = "2.8.3"
FLASH_ATTENTION_2: Final = FOREIGN / f"flash_attn-{RELEASE}"
CUTLASS: Final = FLASH_ATTENTION_2 / "csrc/cutlass/include"
HEADERS: Final = FOREIGN / "packages"
FLASH_ATTENTION_3: Final = Path(os.environ.get("FLASH_ATTENTION_3", "/nowhere"))
"""A checkout of flash-attention with its submodule of CUTLASS; its folder `hopper` is wanted."""

needs_flash_attention_2 = pytest.mark.skipif(
    not (CUTLASS.is_dir() and HEADERS.is_dir()), reason="`make foreign` has not fetched FlashAttention-2"
)
needs_flash_attention_3 = pytest.mark.skipif(
    not (FLASH_ATTENTION_3 / "hopper").is_dir()
    or not (FLASH_ATTENTION_3 / "csrc/cutlass/include").is_dir()
    or not HEADERS.is_dir(),
    reason="FLASH_ATTENTION_3 names no checkout of flash-attention with its CUTLASS, or `make foreign` has not run",
)
