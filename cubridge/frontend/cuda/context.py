"""What is known of a kernel before its code is lifted: its structs, its regions, the axes of its register tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cubridge.frontend.cuda.constants import Constants
from cubridge.frontend.cuda.digest import Digests
from cubridge.frontend.cuda.lemmas import Lemma, Lemmas
from cubridge.frontend.cuda.structure import FunctionText, Program, StructText
from cubridge.frontend.cuda.syntax import CExpr, CType, Ident
from cubridge.frontend.cuda.values import Kind
from cubridge.ir.contract import HostValue, Instantiation, LaunchContract, ParamField
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.nodes import REGIONS, Attr, Expr, Name
from cubridge.ir.source import Span
from cubridge.ir.source_map import SourceMap
from cubridge.ir.types import Axis
from cubridge.ir.vocabulary import VALUE_REGIONS

THREADS: Final = "CU427"
"""Code of thread tests outside the idioms."""

STRUCTURE: Final = "CU429"
"""Code of a kernel that lacks a part."""

_MARKED: Final = {"params": Kind.PARAMS, "tile_state": Kind.TILE, "row_state": Kind.ROW}
_TILE_AXES: Final = {"score": (Axis.ROW, Axis.KEY), "row_rescale": (Axis.ROW, Axis.OUT)}


@dataclass(slots=True)
class Context:
    """`kinds`: struct name -> what it is. `axes`: the constants that bound element loops. `fragment_rows`: the lane map of rows."""

    program: Program
    source_map: SourceMap
    contract: LaunchContract
    instance: Instantiation
    lemmas: Lemmas
    constants: Constants
    digests: Digests
    kernel: FunctionText
    schedule: FunctionText
    kinds: Mapping[str, Kind]
    regions: Mapping[str, FunctionText]
    axes: Mapping[str, Axis]
    fragment_rows: Lemma
    lanes: int
    shared: StructText | None = None
    params: dict[str, ParamField] = field(default_factory=dict[str, ParamField])

    def struct(self, kind: Kind) -> StructText:
        if kind is Kind.SHARED:
            assert self.shared is not None
            return self.shared
        return self.program.structs[next(n for n, k in self.kinds.items() if k is kind)]

    def row_count(self) -> int:
        """The fragment rows that a thread holds."""
        extent = self.regions["score"].params[0].type.dims[0]
        return int(self.constants.evaluate(extent))

    def definitions(self) -> dict[Expr, Expr]:
        """Host expressions of scalar parameters, for proofs about signs."""
        return {Attr(Name("p"), p.name): p.value.expr for p in self.params.values() if isinstance(p.value, HostValue)}

    def axis_of(self, bound: CExpr) -> Axis | None:
        """The axis of an element loop, by the constant that bounds it, else by its value where that decides."""
        if isinstance(bound, Ident) and bound.name in self.axes:
            return self.axes[bound.name]
        try:
            number = self.constants.evaluate(bound)
        except CuError:
            return None
        fitting = {axis for name, axis in self.axes.items() if self.constants.number(name) == number}
        return fitting.pop() if len(fitting) == 1 else None

    def type_lemma(self, kind: CType) -> Lemma | None:
        """What objects of a struct type are. Errors: CU424 if the struct changed."""
        struct = self.program.structs.get(kind.name)
        if struct is None:
            return None
        lemma = self.lemmas.find(self.digests.struct(struct))
        if lemma is None and kind.name in self.lemmas.names:
            raise CuError(changed(kind.name, kind.span, struct.span))
        return lemma


def changed(name: str, place: Span, definition: Span) -> Diagnostic:
    return Diagnostic(
        "CU424", f"the body of `{name}` is not the one that was proved", place, (Note("it is defined here", definition),),
        "restore it, or register the new body in lemmas.toml after its tests have passed",
    )  # fmt: skip


def read_context(
    program: Program, source_map: SourceMap, contract: LaunchContract, instance: Instantiation, lemmas: Lemmas
) -> Context:
    """Errors: CU429 for each part that a kernel needs and this text lacks."""
    faults: list[Diagnostic] = []
    end = Span(program.file, len(program.file.data), len(program.file.data))

    def missing(what: str, place: Span = end, help: str | None = None) -> None:
        faults.append(Diagnostic(STRUCTURE, what, place, help=help))

    kernel = next((k for k in program.kernels() if k.name == contract.entry), None)
    if kernel is None:
        missing(f"there is no kernel `{contract.entry}`, the entry of the launch contract")
    kinds = dict(_struct_kinds(program, source_map))
    for region, kind in _MARKED.items():
        if kind not in kinds.values():
            missing(f"region `{region}` lies in no struct", source_map.region(region).span)
    regions = {name: fs[0] for name in REGIONS if (fs := program.functions.get(name))}
    for name in REGIONS:
        source_region = source_map.region(source_region_name(name)).span
        if name not in regions:
            missing(f"region `{source_region_name(name)}` defines no function `{name}`", source_region)
        elif not _inside(regions[name], source_region):
            missing(f"the function `{name}` is not inside its region", regions[name].head_span)
    if "key_sequence" in regions:
        keys = regions["key_sequence"].result.name
        kinds[keys] = Kind.KEYS
        if keys not in program.structs:
            missing(f"there is no struct `{keys}`", regions["key_sequence"].head_span)
    tile = next((n for n, k in kinds.items() if k is Kind.TILE), "")
    schedule = next((f for fs in program.functions.values() for f in fs if f.result.name == tile), None)
    if schedule is None and tile:
        missing(
            f"no function returns a `{tile}`: the order of work tiles is unknown",
            help="write `DEVICE WorkTile work_tile(..)`",
        )
    digests = Digests(program)
    maps_of_lanes = [f for fs in program.functions.values() for f in fs if _may_be_lane_map(f)]
    known = [m for f in maps_of_lanes if (m := lemmas.find(digests.function(f)))]
    rows = [m for m in known if m.kind == "rows"]
    lanes = {m.lanes for m in known if m.kind == "columns"}
    for kind, maps in (("rows", rows), ("columns", lanes)):
        if len(maps) != 1:
            help = f"a lane map of your own is a row of kind `{kind}` in FILE.lemmas.toml, see docs/kernels.md"
            missing(f"the text has {'two lane maps' if maps else 'no proved lane map'} of {kind}", help=help)
    if faults or kernel is None or schedule is None:
        raise CuError(*faults)
    return Context(
        program=program,
        source_map=source_map,
        contract=contract,
        instance=instance,
        lemmas=lemmas,
        constants=Constants(program),
        digests=digests,
        kernel=kernel,
        schedule=schedule,
        kinds=kinds,
        regions=regions,
        axes=dict(_axes(regions)),
        fragment_rows=rows[0],
        lanes=lanes.pop(),
        params={p.name: p for p in contract.params},
    )


def _may_be_lane_map(function: FunctionText) -> bool:
    """Integers to a number: only such functions are worth a digest here."""
    return function.result.name in ("int", "float") and all(p.type.name == "int" for p in function.params)


def source_region_name(name: str) -> str:
    """The source region that a region function lies in."""
    return "kv_range" if name in VALUE_REGIONS else name


def _inside(function: FunctionText, region: Span) -> bool:
    span = function.span
    return span.file is region.file and region.start <= span.start and span.end <= region.end


def _struct_kinds(program: Program, source_map: SourceMap) -> Iterator[tuple[str, Kind]]:
    for region, kind in _MARKED.items():
        marked = source_map.region(region).span
        for struct in program.structs.values():
            span = struct.span
            if span.file is marked.file and span.start < marked.start and marked.end < span.end:
                yield struct.name, kind


def _axes(regions: Mapping[str, FunctionText]) -> Iterator[tuple[str, Axis]]:
    """The constants in the extents of `s[..][..]` and `o[..][..]`."""
    for name, axes in _TILE_AXES.items():
        dims = regions[name].params[0].type.dims if regions[name].params else ()
        yield from ((dim.name, axis) for dim, axis in zip(dims, axes, strict=False) if isinstance(dim, Ident))
