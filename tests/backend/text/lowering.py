"""What tests of lowering share: a small kernel text with its CuIR, and targets written as the definitions that differ."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.backend.text.lower import Patched, lower
from cubridge.backend.text.names import Names
from cubridge.frontend.cuda.definitions import with_definitions
from cubridge.frontend.cuda.markers import read_source_map
from cubridge.frontend.cuda.structure import read_program
from cubridge.frontend.cuda.text import folder_headers, read_unit
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile
from cubridge.ir.source_map import SourceMap
from tests.support.golden_texts import golden_file, golden_kernel

NAMES: Final = Names({"B": "batch", "Hq": "heads_q", "Hk": "heads_kv", "Lq": "len_q", "Lk": "len_kv"})
CASES: Final = Path(__file__).parents[2] / "cases" / "lower"

_DEFINITION: Final = re.compile(r"^@region\ndef (\w+)\(.*?(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
_SECTION: Final = re.compile(
    r"^(variant_params|params|tile_state|row_state)\((?:\)|\n.*?^\))\n", re.DOTALL | re.MULTILINE
)


def regions_of(file: SourceFile) -> SourceMap:
    """Of a text without headers."""
    unit = read_unit(file, {"DEVICE": "__device__"}, folder_headers())
    return with_definitions(read_source_map(file), read_program(unit))


@cache
def small_kernel() -> SourceFile:
    return SourceFile("kernel.cu", (CASES / "kernel.cu").read_bytes())


def source_ir() -> Kernel:
    return golden_kernel("sm80")


def target_ir(changes: str) -> Kernel:
    """The source with the sections and regions in `changes` in place of its own."""
    return with_changes(golden_file("sm80").text, changes)


def with_changes(text: str, changes: str) -> Kernel:
    """The kernel of a CuIR text with the sections and regions in `changes` in place of its own."""
    for match in _SECTION.finditer(changes):
        old = next(m for m in _SECTION.finditer(text) if m.group(1) == match.group(1))
        text = text[: old.start()] + match.group() + text[old.end() :]
    for match in _DEFINITION.finditer(changes):
        old = next(m for m in _DEFINITION.finditer(text) if m.group(1) == match.group(1))
        text = text[: old.start()] + match.group().rstrip() + "\n\n" + text[old.end() :]
    return parse(SourceFile.from_text("target.cuir", text))


def lowered(changes: str, file: SourceFile | None = None, names: Names = NAMES) -> Patched:
    file = file or small_kernel()
    return lower(file, regions_of(file), source_ir(), target_ir(changes), names)
