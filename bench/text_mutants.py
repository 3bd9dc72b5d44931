"""Wrong kernels by a small edit of the text: the faults that a patch could have. A check that accepts one is worth nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from cubridge.ir.source import SourceFile

Edit = Callable[[str], str]


def text_mutants(source: SourceFile) -> Iterator[tuple[str, SourceFile]]:
    """Every mutation that changes `source`, by name."""
    for name, edit in MUTATIONS.items():
        changed = edit(source.text)
        if changed != source.text:
            yield name, SourceFile.from_text(source.name, changed)


def in_region(region: str, edit: Edit) -> Edit:
    """`edit` of the lines between the markers of one region."""
    pattern = re.compile(rf"(// @region {region}\n)(.*?)(?=[^\n]*// @endregion {region}\b)", re.DOTALL)
    return lambda text: pattern.sub(lambda m: m[1] + edit(m[2]), text)


def replaced(old: str, new: str) -> Edit:
    """`old` is a regular expression."""
    return lambda text: re.sub(old, new, text)


def at_start(function: str, statement: str) -> Edit:
    """`statement` comes first in a function that has a body."""
    pattern = re.compile(rf"(DEVICE \w+ {function}\([^{{]*\{{)(?=\s*[^\s}}])")
    return lambda text: pattern.sub(lambda m: f"{m[1]} {statement}", text)


MUTATIONS: Final[dict[str, Edit]] = {
    "mask dropped": in_region("mask", replaced(r"= [^;=]*\? (s\[r\]\[c\]) : -INFINITY", r"= \1")),
    "mask off by one": in_region("mask", replaced(r"kv_start \+ frag_col\(c\)", "kv_start + frag_col(c) + 1")),
    "masked tile walked as full": in_region("kv_range", at_start("key_masked", "return false;")),
    "last key tile lost": in_region(
        "kv_range", replaced(r"(key_count\([^{]*\{ return )(.*); \}", r"\1imax((\2) - 1, 0); }")
    ),
    "score change dropped": in_region("score", at_start("score", "return;")),
    "rescale dropped": in_region("row_rescale", at_start("row_rescale", "return;")),
    "host constant wrong": in_region("params", replaced(r"(// @host )(\S.*)", r"\1(\2) * 1.5")),
    "LSE in base 2": in_region("row_finalize", replaced(r" \* LN2", "")),
    "lanes not added": in_region("row_finalize", replaced(r"add_lanes\((row\.\w+\[r\])\)", r"\1")),
    "heads tiled": replaced(r"tile\.h / \(p\.heads_q / p\.heads_kv\)", "tile.h % p.heads_kv"),
    "zero output": replaced(r"(\n *)(store_tile\(o_gmem|stage_tile\()", r"\1zero(o);\1\2"),
}
