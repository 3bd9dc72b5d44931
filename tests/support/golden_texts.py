"""Both kernels written out as CuIR by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile

GOLDEN: Final = Path(__file__).with_name("golden")
GOLDEN_NAMES: Final = ("sm80", "sm90a")


def golden_file(name: str) -> SourceFile:
    return SourceFile.from_text(f"{name}.cuir", (GOLDEN / f"{name}.cuir").read_text(encoding="utf-8"))


@cache
def golden_kernel(name: str) -> Kernel:
    return parse(golden_file(name))
