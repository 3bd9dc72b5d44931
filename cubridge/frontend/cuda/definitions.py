"""What the regions of a text define: their functions and structs, from the tree that lifting reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cubridge.frontend.cuda.structure import FunctionText, Program, declarator_of
from cubridge.frontend.cuda.text import without_comments
from cubridge.ir.source import Span
from cubridge.ir.source_map import ArgumentText, SourceMap, SourceRegion
from cubridge.ir.source_map import FunctionText as RegionFunction
from cubridge.ir.source_map import StructText as RegionStruct


def with_definitions(source_map: SourceMap, program: Program) -> SourceMap:
    """The map of the program's own text, with what its regions define."""
    regions = (
        replace(r, functions=tuple(_functions(r, program)), structs=tuple(_structs(r, program)))
        for r in source_map.regions
    )
    return SourceMap(source_map.file, tuple(regions))


def _functions(region: SourceRegion, program: Program) -> Iterator[RegionFunction]:
    for function in (f for overloads in program.functions.values() for f in overloads):
        body = function.node.child_by_field_name("body")
        if body is not None and lies_in(function.span, region.span):
            lead = _lead(region.span, declarator_of(function.node).start_byte)
            yield RegionFunction(function.name, _arguments(function), function.reader.span(body), lead)


def _arguments(function: FunctionText) -> tuple[ArgumentText, ...]:
    return tuple(ArgumentText(p.name, tuple(dim.span.text for dim in p.type.dims)) for p in function.params)


def _structs(region: SourceRegion, program: Program) -> Iterator[RegionStruct]:
    for struct in program.structs.values():
        if lies_in(struct.span, region.span):
            text = struct.reader.text
            end = text.masked.index(b";", struct.span.end) + 1
            definition = Span(text.file, struct.span.start, end)
            yield RegionStruct(struct.name, definition, _lead(region.span, struct.span.start))


def lies_in(span: Span, region: Span) -> bool:
    return span.file is region.file and region.start <= span.start and span.end <= region.end


def _lead(region: Span, start: int) -> Span:
    """The comment lines that open a region, if its first code is on the line of `start`."""
    text = without_comments(region.file)
    code = text[region.start : start]
    blank = len(code) - len(code.lstrip())
    first = region.start + blank
    end = region.start if "\n" in text[first:start] else max(text.rfind("\n", region.start, first) + 1, region.start)
    return Span(region.file, region.start, end)
