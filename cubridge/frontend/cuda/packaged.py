"""The headers that come with the package: what they say is known, what lies beside a kernel is not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from cubridge.ir.source import SourceFile

PACKAGED: Final = Path(__file__).parents[2] / "kernels"


def is_packaged(file: SourceFile) -> bool:
    """Is this the text of a packaged header, byte for byte?"""
    return file.data == _packaged(file.name)


@cache
def _packaged(name: str) -> bytes | None:
    path = (PACKAGED / name).resolve()
    return path.read_bytes() if path.is_relative_to(PACKAGED.resolve()) and path.is_file() else None
