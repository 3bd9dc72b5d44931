"""What is known of a kernel before its code is lifted: its structs, its regions, the axes of its register tiles."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cubridge.frontend.cuda.constants import Constants
from cubridge.frontend.cuda.definitions import lies_in
from cubridge.frontend.cuda.digest import Digests
from cubridge.frontend.cuda.lemmas import Lemma, Lemmas
from cubridge.frontend.cuda.structure import FunctionText, Program, StructText
from cubridge.frontend.cuda.syntax import CExpr, CType, Ident
from cubridge.frontend.cuda.values import SEQUENCES, Kind
from cubridge.ir.contract import HostValue, Instantiation, LaunchContract, ParamField
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.families import FAMILIES, Family
from cubridge.ir.nodes import Attr, Expr, Name
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import SourceMap
from cubridge.ir.types import Axis

T = TypeVar("T")

THREADS: Final = "CU427"
"""Code of thread tests outside the idioms."""

STRUCTURE: Final = "CU429"
"""Code of a kernel that lacks a part."""

PLACED: Final = "tile_at"
"""The function that gives a work tile back from its coordinates."""

_MARKED: Final = {"params": Kind.PARAMS, "tile_state": Kind.TILE, "row_state": Kind.ROW, "score_state": Kind.KEPT}


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

    @property
    def family(self) -> Family:
        return FAMILIES[self.contract.family]

    @property
    def placed(self) -> FunctionText | None:
        functions = self.program.functions.get(PLACED, ())
        return next((f for f in functions if self.kinds.get(f.result.name) is Kind.TILE), None)

    def struct(self, kind: Kind) -> StructText:
        if kind is Kind.SHARED:
            assert self.shared is not None
            return self.shared
        return self.program.structs[next(n for n, k in self.kinds.items() if k is kind)]

    def row_count(self) -> int:
        """The fragment rows that a thread holds."""
        function = next((self.regions[n] for n in ("score", "row_terms") if n in self.regions), None)
        if function is None:
            return self.fragment_rows.held
        return int(self.constants.evaluate(function.params[0].type.dims[0]))

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
        "CU424", f"the body of `{name}` is not the one that was tested", place, (Note("it is defined here", definition),),
        "restore it, or register the new body in lemmas.toml after its tests have passed",
    )  # fmt: skip


def read_context(
    program: Program, source_map: SourceMap, contract: LaunchContract, instance: Instantiation, lemmas: Lemmas
) -> Context:
    """Errors: CU429 for each part that a kernel needs and this text lacks."""
    missing = _Missing(program.file)
    kernel = _entry(program, contract, missing)
    kinds = _marked_structs(program, source_map, missing)
    regions = _region_functions(program, source_map, FAMILIES[contract.family], missing)
    kinds |= _keys_struct(program, regions, kinds, FAMILIES[contract.family], missing)
    schedule = _schedule(program, kinds, missing)
    digests = Digests(program)
    rows, lanes = _lane_maps(program, digests, lemmas, missing)
    if missing.faults or kernel is None or schedule is None or rows is None or lanes is None:
        raise CuError(*missing.faults)
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
        axes=dict(_axes(regions, FAMILIES[contract.family])),
        fragment_rows=rows,
        lanes=lanes,
        params={p.name: p for p in contract.params},
    )


# ---- parts -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Missing:
    """Collects the parts that a text lacks. A part without a place is missed at the end of `file`."""

    file: SourceFile
    faults: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def part(self, what: str, place: Span | None = None, help: str | None = None) -> None:
        size = len(self.file.data)
        self.faults.append(Diagnostic(STRUCTURE, what, place or Span(self.file, size, size), help=help))


def _entry(program: Program, contract: LaunchContract, missing: _Missing) -> FunctionText | None:
    """The kernel that the launch contract names."""
    kernel = next((k for k in program.kernels() if k.name == contract.entry), None)
    if kernel is None:
        missing.part(f"there is no kernel `{contract.entry}`, the entry of the launch contract")
    return kernel


def _marked_structs(program: Program, source_map: SourceMap, missing: _Missing) -> dict[str, Kind]:
    """The structs that a region of fields lies in, by name."""
    kinds = dict(_struct_kinds(program, source_map))
    for region, kind in _marked(source_map):
        if kind not in kinds.values():
            missing.part(f"region `{region}` lies in no struct", source_map.region(region).span)
    return kinds


def _marked(source_map: SourceMap) -> Iterator[tuple[str, Kind]]:
    """The regions of fields that this text has."""
    yield from ((r.name, _MARKED[r.name]) for r in source_map.regions if r.name in _MARKED)


def _struct_kinds(program: Program, source_map: SourceMap) -> Iterator[tuple[str, Kind]]:
    for region, kind in _marked(source_map):
        marked = source_map.region(region).span
        for struct in program.structs.values():
            span = struct.span
            if span.file is marked.file and span.start < marked.start and marked.end < span.end:
                yield struct.name, kind


def _region_functions(
    program: Program, source_map: SourceMap, family: Family, missing: _Missing
) -> dict[str, FunctionText]:
    """The function of each region, by name."""
    regions = {name: functions[0] for name in family.regions if (functions := program.functions.get(name))}
    for name in family.regions:
        around = family.source_of(name)
        place = source_map.region(around).span
        if name not in regions:
            missing.part(f"region `{around}` defines no function `{name}`", place)
        elif not lies_in(regions[name].span, place):
            missing.part(f"the function `{name}` is not inside its region", regions[name].head_span)
    return regions


def _keys_struct(
    program: Program, regions: Mapping[str, FunctionText], kinds: Mapping[str, Kind], family: Family, missing: _Missing
) -> dict[str, Kind]:
    """The struct that `key_sequence` or `query_sequence` returns."""
    function = regions.get(family.walk[0]) if family.walk else None
    if function is None:
        return {}
    name = function.result.name
    if name not in program.structs:
        missing.part(f"there is no struct `{name}`", function.head_span)
    if name in kinds:
        missing.part(f"`{function.name}` returns `{name}`, which is another part", function.head_span)
        return {}
    return {name: SEQUENCES[family.sequence]}


def _schedule(program: Program, kinds: Mapping[str, Kind], missing: _Missing) -> FunctionText | None:
    """The function that returns a work tile from what numbers it."""
    tile = next((name for name, kind in kinds.items() if kind is Kind.TILE), None)
    if tile is None:
        return None
    given = (f for fs in program.functions.values() for f in fs if f.result.name == tile)
    schedule = next((f for f in given if f.name != PLACED), None)
    if schedule is None:
        missing.part(
            f"no function returns a `{tile}`: the order of work tiles is unknown",
            help="write `DEVICE WorkTile work_tile(..)`",
        )
    return schedule


def _lane_maps(
    program: Program, digests: Digests, lemmas: Lemmas, missing: _Missing
) -> tuple[Lemma | None, int | None]:
    """The lane map of rows, and how many lanes share a row: what it says itself, or the lane map of columns."""
    candidates = [f for fs in program.functions.values() for f in fs if _may_be_lane_map(f)]
    known = [m for f in candidates if (m := lemmas.find(digests.function(f)))]
    rows = _only("rows", [m for m in known if m.kind == "rows"], missing)
    if rows is not None and rows.lanes:
        return rows, rows.lanes
    lanes = _only("columns", {m.lanes for m in known if m.kind == "columns"}, missing)
    return rows, lanes


def _may_be_lane_map(function: FunctionText) -> bool:
    """Integers to a number: only such functions are worth a digest here."""
    return function.result.name in ("int", "float") and all(p.type.name == "int" for p in function.params)


def _only(kind: str, maps: Collection[T], missing: _Missing) -> T | None:
    """The one lane map of a kind."""
    if len(maps) == 1:
        return next(iter(maps))
    help = f"a lane map of your own is a row of kind `{kind}` in FILE.lemmas.toml, see docs/kernels.md"
    missing.part(f"the text has {'two lane maps' if maps else 'no tested lane map'} of {kind}", help=help)
    return None


def _axes(regions: Mapping[str, FunctionText], family: Family) -> Iterator[tuple[str, Axis]]:
    """The constants in the extents of `s[..][..]`, `o[..][..]` and of a row vector."""
    tiles = {"score": (family.rows, family.columns), "row_rescale": (Axis.ROW, Axis.OUT), "row_terms": (Axis.ROW,)}
    for name, axes in ((n, a) for n, a in tiles.items() if n in regions):
        dims = regions[name].params[0].type.dims if regions[name].params else ()
        yield from ((dim.name, axis) for dim, axis in zip(dims, axes, strict=False) if isinstance(dim, Ident))
