"""Where the edits of a CuIR tree stand in the kernel text: its regions, and how the functions in them spell their arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cubridge.backend.text.diff import Change, Edit, place_of
from cubridge.backend.text.names import Names, Spelling
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.nodes import Field, Kernel, Node
from cubridge.ir.paths import Splice
from cubridge.ir.region_types import family_of
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.source_map import SOURCE_REGIONS, FunctionText, SourceMap, SourceRegion


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
        region, function = _region_of(edit, source)
        if region is None or region not in patchable:
            raise _outside(edit, source, patchable)
        touched.setdefault(region, set()).update([function] if function else [])
    regions = {r.name: r for r in source_map.regions}
    missing = touched.keys() - regions
    if missing:
        name = min(missing)
        raise CuError(Diagnostic("CU606", f"{source_map.file.name} has no region `{name}`, which the change needs"))
    order = family_of(source).regions
    found = (Anchor(regions[name], tuple(f for f in order if f in functions)) for name, functions in touched.items())
    return tuple(sorted(found, key=lambda a: a.region.span.start))


def _region_of(edit: Edit, source: Kernel) -> tuple[str | None, str | None]:
    """The region of the text that holds what `edit` changes, if any, and the function if it is one."""
    match edit.at.steps:
        case ("params",) if isinstance(edit, Splice) and not any(_is_fixed(n) for n in (*edit.old, *edit.new)):
            return "params", None
        case ("tile_state" | "row_state" | "score_state" as section,):
            return section, None
        case ("regions", str(name), "body" | "result", *_):
            return family_of(source).source_of(name), name
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


# ---- what a signature says about names -------------------------------------------------------------------------------


def spelling_of(function: FunctionText, names: Names, region: SourceRegion, takes: tuple[str, ...]) -> Spelling:
    """Names inside a region's function, from its arguments. Errors: CU606 if they are not those that the region takes."""
    expected = (*takes, "p")
    given = function.arguments
    if len(given) != len(expected):
        what = (
            f"`{function.name}` takes {len(given)} arguments, its signature has {len(expected)}: {', '.join(expected)}"
        )
        raise CuError(Diagnostic("CU606", what, region.span))
    nameless = next((name for name, a in zip(expected, given, strict=True) if not a.name), None)
    if nameless is not None:
        raise CuError(Diagnostic("CU606", f"`{function.name}` does not name its argument `{nameless}`", region.span))
    arguments = {name: a.name for name, a in zip(expected, given, strict=True)}
    columns = {name: a.extents[1] for name, a in zip(expected, given, strict=True) if len(a.extents) == 2}
    tiles = [a.extents for a in given if len(a.extents) == 2] or [a.extents for a in given if a.extents]
    rows = tiles[0][0] if tiles else "ROWS"
    output = columns.pop("o", "O_COLS")
    scores = next(iter(columns.values()), "S_COLS")
    return Spelling(names, arguments, arguments["p"], rows, scores, output)
