"""Regions: what each may read and write, the types of its locals, and its faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.families import COORDINATES, FAMILIES, FORWARD, Family
from cubridge.ir.functions import FUNCTIONS, Result
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Call,
    Captured,
    Element,
    Expr,
    Field,
    Function,
    If,
    IntLit,
    Kernel,
    Name,
    Node,
    Partial,
    Record,
    Row,
    Scalar,
    Stmt,
    TileList,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.typecheck import BASE_NAMES, BOOL, FLOAT, INT, Scope, fail, infer, is_zero
from cubridge.ir.types import Axis, DType, ValueType
from cubridge.ir.walk import SCOPES, walk

_INT_ROWS: Final = ValueType(DType.I32, frozenset({Axis.ROW}))
SCORES: Final = ValueType(DType.F32, frozenset({Axis.ROW, Axis.KEY}))
OUTPUT: Final = ValueType(DType.F32, frozenset({Axis.ROW, Axis.OUT}))
ROWS: Final = ValueType(DType.F32, frozenset({Axis.ROW}))
"""Of queries, wherever they lie in a fragment."""

ACCESSORS: Final[Mapping[str, ValueType]] = {
    "i": _INT_ROWS,
    "j": ValueType(DType.I32, frozenset({Axis.KEY})),
    "e": ValueType(DType.I32, frozenset({Axis.OUT})),
}
TILE_FIELDS: Final[Mapping[str, ValueType]] = dict.fromkeys(COORDINATES, INT)
"""What schedules fill; each family has some of it."""
_ARGUMENTS: Final[Mapping[str, ValueType]] = {
    **dict.fromkeys(("s", "dp", "ds", "w"), SCORES), "o": OUTPUT, **dict.fromkeys(("lse", "delta", "d_lse"), ROWS),
    **dict.fromkeys(("kv_start", "q_start", "r", "t"), INT),
}  # fmt: skip


def fragments(kernel: Kernel, region: str) -> dict[str, ValueType]:
    """The arguments of a region that are tiles or vectors of registers."""
    given = family_of(kernel).regions[region]
    return {name: _ARGUMENTS[name] for name in given if name in _ARGUMENTS and _ARGUMENTS[name].axes}


def tile_fields(kernel: Kernel) -> dict[str, ValueType]:
    """What the schedule of this kernel fills."""
    return dict.fromkeys(family_of(kernel).coordinates, INT)


def family_of(kernel: Kernel) -> Family:
    return FAMILIES[kernel.family]


_COLLECTIVE: Final = (Result.ROW, Result.PARTIAL_ROW, Result.ADD_LANES)


@dataclass(frozen=True, slots=True)
class Rule:
    """`writes`: tiles by name, states by prefix; those in `makes` have no value yet. `elementwise`: no reductions, and nothing that
    depends on how work is tiled."""

    accessors: str = ""
    writes: frozenset[str] = frozenset()
    elementwise: bool = False
    result: ValueType | None = None
    makes: frozenset[str] = frozenset()


RULES: Final[Mapping[str, Rule]] = {
    "tile_setup": Rule("i", frozenset({"tile"}), True),
    "key_sequence": Rule(),
    "key_count": Rule(result=INT),
    "key_tile": Rule(result=INT),
    "key_masked": Rule(result=BOOL),
    "score": Rule("ij", frozenset({"s"}), True),
    "mask": Rule("ij", frozenset({"s"}), True),
    "row_init": Rule("i", frozenset({"row"}), True),
    "row_update": Rule("ij", frozenset({"row"})),
    "row_probs": Rule("ij", frozenset({"s", "row"})),
    "row_rescale": Rule("ie", frozenset({"o"}), True),
    "row_finalize": Rule("ie", frozenset({"o", "lse"}), makes=frozenset({"lse"})),
}
_BACKWARD: Final[Mapping[str, Rule]] = {
    "tile_setup": Rule("j", frozenset({"tile"}), True),
    "query_sequence": Rule(),
    "query_count": Rule(result=INT),
    "query_tile": Rule(result=INT),
    "query_masked": Rule(result=BOOL),
    "score": Rule("ij", frozenset({"s", "kept"}), True),
    "mask": Rule("ij", frozenset({"s"}), True),
    "probs": Rule("ij", frozenset({"s"}), True),
    "probs_grad": Rule("ij", frozenset({"dp"}), True),
    "score_grad": Rule("ij", frozenset({"ds"}), True),
}
_ROWS: Final[Mapping[str, Rule]] = {
    "tile_setup": Rule("i", frozenset({"tile"}), True),
    "row_terms": Rule("i", frozenset({"lse", "delta"}), True),
}
FAMILY_RULES: Final[Mapping[str, Mapping[str, Rule]]] = {
    FORWARD: RULES,
    "backward": _BACKWARD,
    "backward_rows": _ROWS,
    "backward_dq": {"tile_setup": _ROWS["tile_setup"]},
}


def written_arguments(region: str) -> frozenset[str]:
    """What a region of this name writes, in any family."""
    return frozenset[str]().union(*(rules[region].writes for rules in FAMILY_RULES.values() if region in rules))


def region_scope(kernel: Kernel, name: str) -> Scope:
    """What names stand for at the start of a region."""
    family, rule = family_of(kernel), FAMILY_RULES[kernel.family][name]
    given = family.regions[name]
    arguments = [a for a in given if a in _ARGUMENTS and a not in rule.makes]
    names = dict(BASE_NAMES)
    names |= {c.name: INT if isinstance(c.value, int) else FLOAT for c in kernel.constants}
    names |= {a: ACCESSORS[a] for a in rule.accessors}
    names |= {a: _ARGUMENTS[a] for a in arguments}
    fields = {"p": scalar_fields(kernel.params)}
    tile = tile_fields(kernel) | scalar_fields(kernel.tile_state, family.rows)
    if "tile" in given:
        fields["tile"] = tile
    if "row" in given:
        fields["row"] = scalar_fields(kernel.row_state)
    if "kept" in given:
        fields["kept"] = scalar_fields(kernel.score_state)
    if family.sequence in given:
        fields[family.sequence] = _key_fields(kernel)
    if rule.elementwise and rule.accessors == "ij":
        del names[_START[family.columns]], tile[_START[family.rows]]
    captured = {f.name: f.type for f in kernel.params if isinstance(f.type, Captured | TileList)}
    return Scope(names, fields, captured)


_START: Final = {Axis.ROW: "q_start", Axis.KEY: "kv_start"}
"""Where fragments begin, which the accessors take the place of."""


def tile_list_scope(kernel: Kernel) -> Scope:
    """What names stand for in the predicate of a tile list: rows, keys, batch, head, sizes and parameters."""
    mask = region_scope(kernel, "mask")
    names = {name: type for name, type in mask.names.items() if name != "s"}
    tile = {name: type for name, type in TILE_FIELDS.items() if name != "q_start"}
    captured = {name: type for name, type in mask.captured.items() if isinstance(type, Captured)}
    return Scope(names, {"p": mask.fields["p"], "tile": tile}, captured)


def check_region(kernel: Kernel, region: Function) -> tuple[Diagnostic, ...]:
    """Every fault of one region: CU201 to CU206, CU208."""
    given = family_of(kernel).regions[region.name]
    if region.params != given:
        arguments = ", ".join(given)
        return (Diagnostic("CU205", f"this region is `{region.name}({arguments})`", region.span),)
    checker = _Checker(kernel, region)
    checker.run()
    return tuple(checker.faults)


class _Checker:
    """Walks one region body, statement by statement; a fault leaves the name it defines broken and goes on."""

    def __init__(self, kernel: Kernel, region: Function) -> None:
        self.region = region
        self.rule = FAMILY_RULES[kernel.family][region.name]
        self.family = family_of(kernel)
        self.start = region_scope(kernel, region.name)
        self.faults: list[Diagnostic] = []
        self.locals: dict[str, ValueType] = {}

    def run(self) -> None:
        scope = self.final_scope()
        for name in sorted(self.rule.makes - scope.names.keys()):
            self.faults.append(Diagnostic("CU208", f"`{name}` is never written", self.region.span))
        result = self.region.result
        try:
            if result is None or not _reads(result, scope.broken):
                self._result(result, scope)
        except CuError as error:
            self.faults += error.diagnostics

    def final_scope(self) -> Scope:
        return self._body(self.region.body, self.start)

    def _body(self, body: tuple[Stmt, ...], scope: Scope) -> Scope:
        for stmt in body:
            scope = self._statement(stmt, scope)
        return scope

    def _statement(self, stmt: Stmt, scope: Scope) -> Scope:
        """The scope after `stmt`. What reads a broken name is not reported again."""
        spoiled = scope
        if isinstance(stmt, Assign) and isinstance(stmt.target, Name) and stmt.target.id not in self.rule.writes:
            spoiled = scope.spoil(stmt.target.id)
        if _reads(stmt.value if isinstance(stmt, Assign) else stmt, scope.broken):
            return spoiled
        try:
            return self._checked(stmt, scope)
        except CuError as error:
            self.faults += error.diagnostics
            return spoiled

    def _checked(self, stmt: Stmt, scope: Scope) -> Scope:
        match stmt:
            case Assign(Name(name), value):
                self._elementwise(value)
                return scope.bind(name, self._local(stmt, name, infer(value, scope), scope))
            case Assign(target, value):
                self._elementwise(value)
                self._state(stmt, target, infer(value, scope), scope)
            case If(condition, then, ()):
                if not isinstance(condition, Call) or condition.fn != "any_lane":
                    fail("CU205", "the condition of an `if` in a region is `any_lane(..)`", condition)
                infer(condition, scope)
                self._body(then, scope)
            case _:
                raise CuError(Diagnostic("CU205", "a region has assignments and `if any_lane(..):` alone", stmt.span))
        return scope

    def _elementwise(self, value: Expr) -> None:
        calls = [c for c in walk(value) if isinstance(c, Call) and c.fn in FUNCTIONS]
        for call in calls:
            result = FUNCTIONS[call.fn].result
            if result is Result.ANY_LANE or (self.rule.elementwise and result in _COLLECTIVE):
                fail("CU205", f"`{call.fn}` has no place here: `{self.region.name}` works element by element", call)

    def _local(self, stmt: Assign, name: str, value: ValueType, scope: Scope) -> ValueType:
        """The type that `name` has after `name = value`."""
        writable = name in self.rule.writes and name in _ARGUMENTS
        target = _ARGUMENTS[name] if writable else self.locals.get(name)
        if (name in self.start.names or name in SCOPES) and not writable:
            fail("CU205", f"`{self.region.name}` may not write `{name}`", stmt.target)
        if target is None:
            self.locals[name] = value
            return value
        _fits(stmt, value, target)
        return target

    def _state(self, stmt: Assign, target: Expr, value: ValueType, scope: Scope) -> None:
        if not isinstance(target, Attr) or not isinstance(target.base, Name) or target.base.id not in self.rule.writes:
            fail("CU205", f"`{self.region.name}` may not write `{print_expr(target)}`", target)
        if target.base.id == "tile" and target.name in TILE_FIELDS:
            fail("CU205", f"`{print_expr(target)}` is the schedule's to write", target)
        _fits(stmt, value, infer(target, scope))

    def _result(self, result: Expr | None, scope: Scope) -> None:
        if self.region.name in self.family.walk[:1]:
            _check_sequence(self.region, result, scope)
        elif result is None and self.rule.result is not None:
            raise CuError(Diagnostic("CU205", f"`{self.region.name}` returns nothing", self.region.span))
        elif result is not None:
            kind = infer(result, scope)
            if kind != self.rule.result:
                expected = "nothing" if self.rule.result is None else f"{self.rule.result}"
                fail("CU205", f"`{self.region.name}` returns {expected}, and this is {kind}", result)


RECORDS: Final = {"key_sequence": "KeySequence", "query_sequence": "QuerySequence"}
"""The record that each returns."""


def _check_sequence(region: Function, result: Expr | None, scope: Scope) -> None:
    record = RECORDS[region.name]
    if not isinstance(result, Record) or result.name != record:
        raise CuError(Diagnostic("CU205", f"`{region.name}` returns `{record}(..)`", region.span))
    for part in result.fields:
        kind = infer(part.value, scope)
        if kind.axes or kind.dtype.is_float:
            what = region.name.replace("_", " ")
            fail("CU205", f"`{part.name}` is {kind}; a {what} has integers and truths alone", part.value)


def _fits(stmt: Assign, value: ValueType, target: ValueType) -> None:
    """May `value` be stored as `target`; values broadcast along axes they do not have."""
    zero = is_zero(stmt.value)
    if value.dtype is not target.dtype and not (
        target.dtype.is_float and value.dtype.is_int and isinstance(stmt.value, IntLit)
    ):
        fail("CU202", f"{value} does not fit `{print_expr(stmt.target)}`, which is {target}", stmt.value)
    if not value.axes <= target.axes:
        fail("CU203", f"{value} varies over more than `{print_expr(stmt.target)}`, which is {target}", stmt.value)
    if value.partial and not target.partial:
        fail("CU204", f"`{print_expr(stmt.target)}` takes no partial sum", stmt.value, "add the lanes with `add_lanes`")
    if target.partial and not value.partial and not zero:
        help = "only 0 or another partial sum may start it: anything else counts once per lane"
        fail("CU204", f"`{print_expr(stmt.target)}` is a partial sum, and this is none", stmt.value, help)


def _reads(node: Node, names: frozenset[str]) -> bool:
    reads = node.condition if isinstance(node, If) else node
    return bool(names) and any(isinstance(n, Name) and n.id in names for n in walk(reads))


def scalar_fields(fields: tuple[Field, ...], rows: Axis = Axis.ROW) -> dict[str, ValueType]:
    """The fields that an expression may read as they are. `rows`: the axis of a value per row of a fragment."""
    types: dict[str, ValueType] = {}
    for item in fields:
        match item.type:
            case Scalar(dtype):
                types[item.name] = ValueType(dtype)
            case Row(dtype):
                types[item.name] = ValueType(dtype, frozenset({rows}))
            case Element(dtype):
                types[item.name] = ValueType(dtype, SCORES.axes)
            case Partial(dtype):
                types[item.name] = ValueType(dtype, frozenset({Axis.ROW}), partial=True)
            case _:
                pass
    return types


def _key_fields(kernel: Kernel) -> dict[str, ValueType]:
    """The fields of a sequence; an integer where its own region is at fault."""
    region = next((r for r in kernel.regions if r.name in family_of(kernel).walk[:1]), None)
    if region is None or not isinstance(region.result, Record):
        return {}
    checker = _Checker(kernel, region)
    scope = checker.final_scope()
    types: dict[str, ValueType] = {}
    for part in region.result.fields:
        try:
            types[part.name] = infer(part.value, scope)
        except CuError:
            types[part.name] = INT
    return types
