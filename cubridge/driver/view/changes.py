"""What a patch changes, region by region: the CuIR and the CUDA that says it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from cubridge.ir.nodes import Kernel
from cubridge.ir.printer import print_function, to_text
from cubridge.ir.source_map import SourceRegion
from cubridge.show.view import Change

if TYPE_CHECKING:
    from cubridge.driver.adapted import Adapted

_CONTEXT: Final = 2
_HUNK: Final = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")
_KEYS: Final = ("key_sequence", "key_count", "key_tile", "key_masked")


def changes(adapted: Adapted) -> tuple[Change, ...]:
    """In the order of the text."""
    source, target = adapted.lifted.kernel, adapted.target
    hunks = list(_hunks(adapted.patched.patch.decode("utf-8", errors="replace")))
    found = [
        Change(region.name, tuple(_cuir(source, target, region)), tuple(_of_region(hunks, region)))
        for region in adapted.lifted.source_map.regions
        if region.name in adapted.patched.regions_changed
    ]
    return tuple(found)


def whole_cuir(adapted: Adapted) -> tuple[str, ...]:
    """All lines of source and target."""
    return tuple(_difference(to_text(adapted.lifted.kernel).splitlines(), to_text(adapted.target).splitlines()))


def _cuir(source: Kernel, target: Kernel, region: SourceRegion) -> Iterator[str]:
    """The difference of its functions, or of the declarations of that name."""
    names = _KEYS if region.name == "kv_range" else (region.name,)
    functions = [n for n in names if any(f.name == n for f in (*source.regions, *target.regions))]
    if not functions:
        yield from _difference(_declared(source, region.name), _declared(target, region.name))
    for name in functions:
        old, new = (print_function(k.region(name)).splitlines() for k in (source, target))
        if old != new:
            yield from _difference(old, new)


def _declared(kernel: Kernel, section: str) -> list[str]:
    """The lines of a section of declarations; those of `params` that a region may change are `variant_params`."""
    name = "variant_params" if section == "params" else section
    found = re.search(rf"^{name}\((?:\)|\n.*?^\))", to_text(kernel), re.DOTALL | re.MULTILINE)
    return [] if found is None else found[0].splitlines()


def _difference(old: list[str], new: list[str]) -> Iterator[str]:
    for op, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if op == "equal":
            yield from (f" {line}" for line in old[a:b])
        else:
            yield from (f"-{line}" for line in old[a:b])
            yield from (f"+{line}" for line in new[c:d])


def _hunks(patch: str) -> Iterator[tuple[int, str]]:
    """Lines of a unified diff with the number of the old line that each is, or stands before."""
    at = 0
    for line in patch.splitlines():
        found = _HUNK.match(line)
        if found is not None:
            at = int(found[1])
        elif at and line[:1] in (" ", "-", "+"):
            yield at, line
            at += line[0] != "+"


def _of_region(lines: list[tuple[int, str]], region: SourceRegion) -> Iterator[str]:
    """Those between the two marks of a region, with what surrounds the changes."""
    first, last = (region.span.file.location(offset)[0] for offset in (region.span.start, region.span.end))
    inside = [text for at, text in lines if first <= at <= last]
    changed = [x for x, text in enumerate(inside) if text[0] != " "]
    if changed:
        yield from inside[max(0, changed[0] - _CONTEXT) : changed[-1] + 1 + _CONTEXT]
