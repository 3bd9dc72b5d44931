"""Where the edits of a CuIR tree stand in the kernel text: regions, and the functions in them, by byte ranges."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from cubridge.backend.text.diff import Change, Edit, place_of
from cubridge.backend.text.names import Names, Spelling
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.nodes import REGIONS, Field, Kernel, Node
from cubridge.ir.paths import Splice
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.source_map import SOURCE_REGIONS, SourceMap, SourceRegion
from cubridge.ir.vocabulary import VALUE_REGIONS


@dataclass(frozen=True, slots=True)
class Anchor:
    """A region that edits change, with the CuIR functions in it that they touch (none for a region of fields)."""

    region: SourceRegion
    functions: tuple[str, ...]


def anchors(
    edits: Iterable[Edit], source: Kernel, source_map: SourceMap, patchable: Collection[str] = SOURCE_REGIONS
) -> tuple[Anchor, ...]:
    """The regions that `edits` of `source` change, in the order of the text.
    Errors: CU602 for an edit outside the regions that are `patchable`, CU606 for a region that the text lacks."""
    touched: dict[str, set[str]] = {}
    for edit in edits:
        region, function = _region_of(edit)
        if region is None or region not in patchable:
            raise _outside(edit, source, patchable)
        touched.setdefault(region, set()).update([function] if function else [])
    regions = {r.name: r for r in source_map.regions}
    missing = touched.keys() - regions
    if missing:
        name = min(missing)
        raise CuError(Diagnostic("CU606", f"{source_map.file.name} has no region `{name}`, which the change needs"))
    found = (Anchor(regions[name], tuple(f for f in REGIONS if f in functions)) for name, functions in touched.items())
    return tuple(sorted(found, key=lambda a: a.region.span.start))


def _region_of(edit: Edit) -> tuple[str | None, str | None]:
    """The region of the text that holds what `edit` changes, if any, and the function if it is one."""
    match edit.at.steps:
        case ("params",) if isinstance(edit, Splice) and not any(_is_fixed(n) for n in (*edit.old, *edit.new)):
            return "params", None
        case ("tile_state" | "row_state" as section,):
            return section, None
        case ("regions", str(name), "body" | "result", *_):
            return ("kv_range" if name in VALUE_REGIONS else name), name
        case _:
            return None, None


def _outside(edit: Edit, source: Kernel, patchable: Collection[str]) -> Refused:
    message = f"the change of `{place_of(edit, source)}` is outside the regions that a patch may write"
    return Refused(Diagnostic("CU602", message, _span(edit), help=f"they are {', '.join(patchable)}"))


def _is_fixed(node: Node) -> bool:
    return isinstance(node, Field) and node.fixed


def _span(edit: Edit) -> Span:
    """Where the text of an edit stands: of what goes, else of what comes."""
    values = (edit.old, edit.new) if isinstance(edit, Change) else (*edit.old, *edit.new)
    return next((v.span for v in values if isinstance(v, Node) and v.span is not NOWHERE), NOWHERE)


# ---- functions and structs inside a region ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FunctionText:
    """`body`: from brace to brace. `lead`: the comment lines that open the region, if the function follows them."""

    body: Span
    parameters: str
    lead: Span


_HIDDEN: Final = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def function_text(region: SourceRegion, name: str) -> FunctionText:
    """The definition of function `name` in a region. Errors: CU606 if there is none."""
    span = region.span
    text = _visible(span)
    head = re.search(rf"\b{name}\s*\(", text)
    if head is None:
        raise CuError(Diagnostic("CU606", f"region `{region.name}` does not define the function `{name}`", span))
    closing = _closing(text, head.end() - 1, span)
    brace = text.find("{", closing)
    if brace < 0 or text[closing + 1 : brace].strip():
        raise CuError(Diagnostic("CU606", f"region `{region.name}` does not define the function `{name}`", span))
    body = Span(span.file, span.start + brace, span.start + _closing(text, brace, span) + 1)
    parameters = text[head.end() : closing]
    return FunctionText(body, parameters, _lead(span, text, head.start()))


def _lead(span: Span, text: str, start: int) -> Span:
    """The comment lines that open a region, if what stands at `start` is the first code in it."""
    first = re.search(r"\S", text)
    end = 0 if first is None or "\n" in text[first.start() : start] else text.rfind("\n", 0, first.start()) + 1
    return Span(span.file, span.start, span.start + end)


@dataclass(frozen=True, slots=True)
class StructText:
    """`definition`: from `struct` to its semicolon. `lead`: as a function's."""

    definition: Span
    lead: Span


def struct_text(region: SourceRegion, name: str) -> StructText:
    """The definition of struct `name` in a region. Errors: CU606 if there is none."""
    text = _visible(region.span)
    head = re.search(rf"\bstruct\s+{name}\s*{{", text)
    if head is None:
        raise CuError(Diagnostic("CU606", f"region `{region.name}` does not define the struct `{name}`", region.span))
    end = text.find(";", _closing(text, head.end() - 1, region.span))
    definition = Span(region.span.file, region.span.start + head.start(), region.span.start + end + 1)
    return StructText(definition, _lead(region.span, text, head.start()))


def _visible(span: Span) -> str:
    """The text, one character per byte, with comments and literals blanked."""
    text = span.file.data[span.start : span.end].decode("latin-1")
    return _HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def _closing(text: str, start: int, span: Span) -> int:
    """The bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "({[") - (text[at] in ")}]")
        if depth == 0:
            return at
    raise CuError(Diagnostic("CU606", "a bracket of this region is never closed", span))


# ---- what a signature says about names -------------------------------------------------------------------------------

_ARRAY: Final = re.compile(r"\(\s*&\s*(\w+)\s*\)((?:\s*\[\s*\w+\s*\])+)")
_WORD: Final = re.compile(r"\w+")


def spelling_of(function: str, parameters: str, names: Names, region: SourceRegion) -> Spelling:
    """Names inside a region's function, from its parameter list. Errors: CU606 if it does not have the fixed parameters."""
    texts = [part for part in _split(parameters) if part.strip()]
    expected = (*REGIONS[function], "p")
    if len(texts) != len(expected):
        what = f"`{function}` takes {len(texts)} arguments, its signature has {len(expected)}: {', '.join(expected)}"
        raise CuError(Diagnostic("CU606", what, region.span))
    arguments: dict[str, str] = {}
    extents: dict[str, list[str]] = {}
    for name, text in zip(expected, texts, strict=True):
        array = _ARRAY.search(text)
        arguments[name] = array.group(1) if array else _WORD.findall(text)[-1]
        extents[name] = _WORD.findall(array.group(2)) if array else []
    rows = next((dims[0] for dims in extents.values() if dims), "ROWS")
    columns = {name: dims[1] for name, dims in extents.items() if len(dims) == 2}
    return Spelling(
        names, arguments, arguments["p"], rows, columns.get("s", "S_COLS"), columns.get("o", "O_COLS")
    )  # fmt: skip


def _split(parameters: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth = [""], 0
    for char in parameters:
        depth += (char in "([<{") - (char in ")]>}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts
