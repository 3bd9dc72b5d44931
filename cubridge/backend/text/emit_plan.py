"""Which loops a region's flat statements need: rows outside, columns inside, and where each local lives.

A statement stands at the level of its axes: in the body of the function, in a loop over columns, in the loop over rows, or in a
column loop inside that. Neighbours at one level share a loop. A local is a plain variable where the scope that assigns it holds
all of its uses, else an array over the loops between its assignment and the innermost scope that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from cubridge.backend.text.emit_types import Types, unsayable
from cubridge.ir.nodes import Assign, Call, Expr, If, Name, Stmt
from cubridge.ir.types import Axis
from cubridge.ir.walk import map_children, walk

_READS_ARRAY: Final = ("rowmax", "partial_rowsum")
_ACROSS_LANES: Final = (*_READS_ARRAY, "add_lanes")
"""Calls that stand in the row loop, never in a column loop."""


@dataclass(frozen=True)
class Leave:
    """Return unless some row of the warp has the local `name`."""

    name: str


@dataclass(frozen=True)
class Array:
    """Declares the local `name` as an array over `axes`."""

    name: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Loop:
    axis: Axis
    items: list[Item] = field(default_factory=list)


Item = Assign | Leave | Array | Loop
Position = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """`storage`: axes that a local is subscripted by, () for a plain one. `mutable`: plain locals assigned more than once."""

    items: list[Item]
    storage: Mapping[str, tuple[Axis, ...]]
    mutable: frozenset[str]


def plan(body: Sequence[Stmt], types: Types, one_row: bool) -> Plan:
    """Loops and storage of a region's body. `one_row`: the function acts on one fragment row, so there is no loop over rows.
    `types` learns the locals. Errors: CU603 for statements that a region's function cannot hold."""
    flat = _Flattening(types, {n.id for s in body for n in walk(s) if isinstance(n, Name)}).statements(body)
    items = _Nesting(types, one_row).items(flat)
    return _with_arrays(items, types)


def is_local(target: Expr, types: Types) -> bool:
    return isinstance(target, Name) and target.id not in types.fragments


# ---- flat statements whose reductions read named values --------------------------------------------------------------


@dataclass
class _Flattening:
    """Gives every reduced expression a name, and every reduction in a column loop one of its own."""

    types: Types
    taken: set[str]
    _pending: list[Assign] = field(default_factory=list)

    def statements(self, body: Sequence[Stmt]) -> list[Assign | Leave]:
        out: list[Assign | Leave] = []
        for at, statement in enumerate(body):
            match statement:
                case Assign(target, value):
                    value = self._named(value, bool(self._columns(target) | self._columns(value)))
                    out += self._take()
                    out.append(replace(statement, value=value))
                    _learn(out[-1], self.types)
                case If(Call("any_lane", (condition,)), then, ()) if at == len(body) - 1:
                    name = self._name(condition, "moved")
                    out += self._take()
                    return [*out, Leave(name), *self.statements(then)]
                case _:
                    help_ = "a region may end with `if any_lane(..):` and no else"
                    raise unsayable("a region's function cannot say this statement", statement, help_)
        return out

    def _columns(self, expr: Expr) -> frozenset[Axis]:
        if is_local(expr, self.types) and isinstance(expr, Name) and expr.id not in self.types.locals:
            return frozenset()
        return self.types.of(expr).axes.intersection(self.types.columns)

    def _named(self, expr: Expr, in_columns: bool) -> Expr:
        expr = map_children(expr, lambda x: self._named(x, in_columns) if isinstance(x, Expr) else x)
        if not isinstance(expr, Call):
            return expr
        if expr.fn in _READS_ARRAY:
            if Axis.KEY not in self.types.of(expr.args[0]).axes:
                raise unsayable(f"`{expr.fn}` reduces over keys, of which this value has none", expr)
            expr = replace(expr, args=(Name(self._name(expr.args[0], "terms")),))
        if expr.fn in _ACROSS_LANES and in_columns:
            return Name(self._name(expr, expr.fn.split("_")[-1]))
        return expr

    def _name(self, expr: Expr, wish: str) -> str:
        """The name of a local that holds `expr`."""
        if isinstance(expr, Name):
            return expr.id
        names = (wish if n == 0 else f"{wish}_{n}" for n in count())
        name = next(n for n in names if n not in self.taken)
        self.taken.add(name)
        self._pending.append(Assign(Name(name), expr, span=expr.span))
        _learn(self._pending[-1], self.types)
        return name

    def _take(self) -> list[Assign]:
        taken, self._pending = self._pending, []
        return taken


def _learn(statement: Assign | Leave, types: Types) -> None:
    if isinstance(statement, Assign) and isinstance(statement.target, Name) and is_local(statement.target, types):
        types.declare(statement.target.id, statement.value)


# ---- loops -----------------------------------------------------------------------------------------------------------


@dataclass
class _Nesting:
    types: Types
    one_row: bool
    body: list[Item] = field(default_factory=list)

    def items(self, flat: Sequence[Assign | Leave]) -> list[Item]:
        for statement in flat:
            if isinstance(statement, Leave):
                self.body.append(statement)
            else:
                self._add(statement)
        return self.body

    def _add(self, statement: Assign) -> None:
        axes = self.types.of(statement.target).axes
        outer = self.types.family.rows
        in_rows = outer in axes and not self.one_row
        columns = [a for a in self.types.columns if a in axes]
        if len(columns) > 1:
            raise unsayable("a value over keys and output columns at once has no place in a fragment", statement)
        rows = self.body[-1] if self.body else None
        if not in_rows and isinstance(rows, Loop) and rows.axis is outer and not _touches(rows, statement.target):
            # Nothing here varies over rows, so nothing here reads what the row loop writes.
            self.body.pop()
            _append(self.body, columns, statement)
            self.body.append(rows)
        elif in_rows:
            _append(_loop(self.body, outer).items, columns, statement)
        else:
            _append(self.body, columns, statement)


def _touches(loop: Loop, target: Expr) -> bool:
    return any(target == node for item in loop.items for node in _nodes(item))


def _nodes(item: Item) -> Iterator[object]:
    match item:
        case Assign():
            yield from walk(item)
        case Loop(_, items):
            for inner in items:
                yield from _nodes(inner)
        case Leave() | Array():
            pass


def _append(items: list[Item], columns: Sequence[Axis], statement: Assign) -> None:
    target = _loop(items, columns[0]).items if columns else items
    target.append(statement)


def _loop(items: list[Item], axis: Axis) -> Loop:
    """The loop over `axis` that `items` ends with; a new one if it does not."""
    last = items[-1] if items else None
    if isinstance(last, Loop) and last.axis is axis:
        return last
    items.append(Loop(axis))
    return items[-1]  # pyright: ignore[reportReturnType]


# ---- storage ---------------------------------------------------------------------------------------------------------


@dataclass
class _Uses:
    """Where a local is assigned and read: positions in the tree of items."""

    assigned: list[Position] = field(default_factory=list)
    all: list[Position] = field(default_factory=list)


def _with_arrays(items: list[Item], types: Types) -> Plan:
    uses: dict[str, _Uses] = {}
    for position, item in _positions(items, ()):
        _note(item, position, uses, types)
    storage: dict[str, tuple[Axis, ...]] = {}
    arrays: list[tuple[Position, Array]] = []
    for name, use in uses.items():
        if not use.assigned:
            continue
        first = use.assigned[0]
        home = _common_scope(use.all)
        axes = tuple(_loop_at(items, first[:end]).axis for end in range(len(home) + 1, len(first)))
        storage[name] = axes
        if axes:
            arrays.append((first[: len(home) + 1], Array(name, axes)))
    arrays.sort(key=lambda entry: entry[0])
    for (*home, at), array in reversed(arrays):  # the last first, so that places in front of it stay what they are
        scope = _loop_at(items, home).items if home else items
        scope.insert(at, array)
    mutable = frozenset(name for name, use in uses.items() if len(use.assigned) > 1 and not storage[name])
    return Plan(items, storage, mutable)


def _positions(items: Sequence[Item], base: Position) -> Iterator[tuple[Position, Item]]:
    for at, item in enumerate(items):
        if isinstance(item, Loop):
            yield from _positions(item.items, (*base, at))
        else:
            yield (*base, at), item


def _note(item: Item, position: Position, uses: dict[str, _Uses], types: Types) -> None:
    match item:
        case Assign(target, value):
            for name in {n.id for n in walk(value) if isinstance(n, Name)}:
                uses.setdefault(name, _Uses()).all.append(position)
            if isinstance(target, Name) and is_local(target, types):
                use = uses.setdefault(target.id, _Uses())
                use.assigned.append(position)
                use.all.append(position)
        case Leave(name):
            uses.setdefault(name, _Uses()).all.append(position)
        case Array() | Loop():
            pass


def _common_scope(positions: Sequence[Position]) -> Position:
    """The innermost scope that holds all positions."""
    shortest = min(len(p) for p in positions) - 1
    end = next((at for at in range(shortest) if len({p[at] for p in positions}) > 1), shortest)
    return positions[0][:end]


def _loop_at(items: list[Item], path: Sequence[int]) -> Loop:
    """The loop at a position that stands for a scope."""
    item: Item | None = None
    for at in path:
        item = items[at]
        items = item.items if isinstance(item, Loop) else []
    assert isinstance(item, Loop)
    return item
