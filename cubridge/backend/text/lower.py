"""Target CuIR to patched CUDA text: the difference of two trees becomes edits of the regions it is in, and of nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from cubridge.backend.text.anchor import Anchor, anchors, spelling_of
from cubridge.backend.text.diff import diff
from cubridge.backend.text.emit import emit_function
from cubridge.backend.text.emit_fields import emit_fields, emit_struct
from cubridge.backend.text.names import Names
from cubridge.backend.text.patch import TextEdit, apply_edits, diff_lines, newline_of, unified_diff
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Field, Function, Kernel
from cubridge.ir.region_types import RECORDS, check_region, family_of, region_scope
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import SOURCE_REGIONS, SourceMap, SourceRegion


@dataclass(frozen=True, slots=True)
class Patched:
    """A patched kernel text. `patch`: a unified diff, b"" if nothing changed; lines are counted as it shows them."""

    text: bytes
    patch: bytes
    regions_changed: tuple[str, ...]
    lines_added: int
    lines_removed: int


def lower(
    file: SourceFile,
    source_map: SourceMap,
    source: Kernel,
    target: Kernel,
    names: Names,
    *,
    patchable: Collection[str] = SOURCE_REGIONS,
    patch_name: str = "kernel.cu",
) -> Patched:
    """Patch `file`, whose CuIR is `source`, so that it says `target`. `patchable`: regions that may change; `patch_name`: the path
    that the diff names. Errors: CU601 a stale map, CU602 a change outside the regions, CU603, CU604 what the text cannot say,
    CU606 a region that is not laid out as its CuIR is, CU2xx a region of `target` whose types do not hold."""
    source_map.check(file.data)
    edits: list[TextEdit] = []
    changed: list[str] = []
    for anchor in anchors(diff(source, target), source, source_map, patchable):
        found = [e for e in _region_edits(anchor, source, target, names) if e.new != _bytes(e.span)]
        edits += found
        changed += [anchor.region.name] if found else []
    lines = diff_lines(file, edits)
    return Patched(
        text=apply_edits(file, edits),
        patch=unified_diff(lines, patch_name),
        regions_changed=tuple(changed),
        lines_added=sum(line.mark == "+" for line in lines),
        lines_removed=sum(line.mark == "-" for line in lines),
    )


def _bytes(span: Span) -> bytes:
    return span.file.data[span.start : span.end]


def _region_edits(anchor: Anchor, source: Kernel, target: Kernel, names: Names) -> Iterator[TextEdit]:
    if not anchor.functions:
        old, new = (_fields(kernel, anchor.region.name) for kernel in (source, target))
        if anchor.region.name == "params":
            _check_free(new, names)
        yield _fields_edit(anchor.region, old, new)
    for name in anchor.functions:
        yield from _function_edits(anchor.region, source.region(name), target.region(name), target, names)
    if {*anchor.functions}.intersection(family_of(source).walk[:1]):
        yield from _struct_edits(anchor.region, source, target)


# ---- functions -------------------------------------------------------------------------------------------------------


def _function_edits(
    region: SourceRegion, source: Function, target: Function, kernel: Kernel, names: Names
) -> Iterator[TextEdit]:
    faults = check_region(kernel, target)
    if faults:
        raise CuError(*faults)
    text = region.function(target.name)
    family = family_of(kernel)
    spelling = spelling_of(text, names, region, family.regions[target.name])
    yield _edit(text.body, emit_function(target, kernel, spelling, text.body.location[1]))
    if target.name not in family.walk and _nothing_stays(source, target):
        yield TextEdit(text.lead, b"")


def _nothing_stays(source: Function, target: Function) -> bool:
    """Then a comment above the function speaks of code that is gone."""
    old = {repr(s) for s in source.body}
    return bool(old) and not old & {repr(s) for s in target.body}


def _struct_edits(region: SourceRegion, source: Kernel, target: Kernel) -> Iterator[TextEdit]:
    """The struct that the walk's first region returns, if its fields change; then the comment above it speaks of others."""
    family = family_of(source)
    old, new = (region_scope(kernel, family.walk[1]).fields[family.sequence] for kernel in (source, target))
    if list(old.items()) != list(new.items()):
        name = RECORDS[family.walk[0]]
        text = region.struct(name)
        yield _edit(text.definition, emit_struct(name, new))
        yield TextEdit(text.lead, b"")


# ---- fields ----------------------------------------------------------------------------------------------------------


def _fields(kernel: Kernel, section: str) -> Sequence[Field]:
    match section:
        case "params":
            return [f for f in kernel.params if not f.fixed]
        case "tile_state":
            return kernel.tile_state
        case "score_state":
            return kernel.score_state
        case _:
            return kernel.row_state


def _check_free(fields: Sequence[Field], names: Names) -> None:
    for item in fields:
        if item.name in names.params:
            message = f"the kernel text has a field `{item.name}` in Params already"
            raise CuError(Diagnostic("CU604", message, item.span, help="rename the field"))


def _fields_edit(region: SourceRegion, source: Sequence[Field], target: Sequence[Field]) -> TextEdit:
    span = region.span
    data = span.file.data
    marker = data[span.end : data.index(b"//", span.end)]
    line_before = span.file.location(span.start)[0] - 2
    column = span.file.line(line_before).find("//") if line_before >= 1 else -1
    text = data[span.start : span.end].decode("utf-8", errors="surrogateescape")
    new = emit_fields(text, source, target, marker.decode(), column if column >= 0 else None, _line_end(span.file))
    return TextEdit(span, new.encode("utf-8", errors="surrogateescape"))


def _edit(span: Span, text: str) -> TextEdit:
    return TextEdit(span, text.replace("\n", _line_end(span.file) + "\n").encode())


def _line_end(file: SourceFile) -> str:
    """What stands before LF at the end of a line."""
    return newline_of(file)[:-1].decode()
