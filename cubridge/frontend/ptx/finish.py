"""What a row's output and log-sum-exp are made of behind the loop, and what carried them through it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.frontend.ptx.floats import as_float
from cubridge.frontend.ptx.formula import Formula, Formulas, leaves
from cubridge.frontend.ptx.layout import Layout
from cubridge.frontend.ptx.reach import is_shared, lanes_of, moves_of
from cubridge.frontend.ptx.row import MAXIMUM, OUTPUT, Link
from cubridge.frontend.ptx.slices import Key, Slices
from cubridge.frontend.ptx.values import Node, Value, contains, span_of, states_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Expr, Name

FINAL_TOTAL: Final = Name("l")


@dataclass(frozen=True, slots=True)
class Stored:
    """What one lane computes of a row, whoever stores it: values of the output by column; the row's log-sum-exp."""

    warp: int
    lane: int
    row: int
    columns: dict[int, Value]
    lse: Value | None

    @property
    def is_whole(self) -> bool:
        """Does it show all that is computed: no branch has left out a part."""
        values = [*self.columns.values(), *([] if self.lse is None else [self.lse])]
        return not any(contains(value, "left out") for value in values)

    def outputs(self) -> dict[int, Key]:
        """What made each column, when all key tiles were done. Errors: CU854."""
        own = own_states(self.columns)
        for column, found in own.items():
            if len(found) != 1:
                raise CuError(
                    Diagnostic(
                        "CU854", "an element of the output is made of no one accumulator", span_of(self.columns[column])
                    )
                )
        return {column: found.pop() for column, found in own.items()}

    def shared(self) -> tuple[Key, ...]:
        """What made all else that the output is finished with."""
        return tuple(sorted(set[Key]().union(*map(states_of, self.columns.values())) - set(self.outputs().values())))


def own_states(columns: Mapping[int, Value]) -> dict[int, set[Key]]:
    """By column, what made it and no other."""
    states = {column: set(states_of(value)) for column, value in columns.items()}
    shared = set.intersection(*states.values()) if len(states) > 1 else set[Key]()
    return {column: found - shared for column, found in states.items()}


def stored_rows(slices: Slices, layout: Layout, rows: Collection[int]) -> list[Stored]:
    """What is stored of these rows of the query tile's head, each as the lane computes it that has most of it."""
    columns: dict[int, dict[int, Value]] = defaultdict(dict)
    sums: dict[int, Value] = {}
    for index, lane in _stores(slices, layout, rows):
        step = slices.reach.trace.steps[index]
        operation = slices.reach.trace.code[step.at]
        moves, address = moves_of(operation.name), int(step.addresses[0][lane])
        tensor = layout.window(address)
        assert tensor is not None
        for number in range(moves.count):
            value = slices.source(index, 1 + number, lane)
            for part, piece in enumerate(_pieces(value, moves.bytes, layout.bytes[tensor])):
                place = layout.place(tensor, address + number * moves.bytes + part * layout.bytes[tensor])
                if tensor == "lse":
                    sums[place.row] = as_float(piece, operation.span)
                else:
                    columns[place.row][place.column] = piece
    return [_of_lane(slices, row, found, sums.get(row)) for row, found in sorted(columns.items())]


def _stores(slices: Slices, layout: Layout, rows: Collection[int]) -> Iterator[tuple[int, int]]:
    """Steps and lanes that store into these rows of the output and of the log-sum-exp."""
    trace = slices.reach.trace
    for index, step in enumerate(trace.steps):
        name = trace.code[step.at].name
        if not name.startswith("st."):
            continue
        for lane in lanes_of(step.mask):
            address = int(step.addresses[0][lane])
            window = None if is_shared(name, address) else layout.window(address)
            if window is not None and layout.place(window, address).row in rows:
                yield index, lane


def _of_lane(slices: Slices, row: int, columns: dict[int, Value], lse: Value | None) -> Stored:
    """The columns of the lane that computes the first of them."""
    own = own_states(columns)
    first = own[min(columns)]
    if len(first) != 1:
        raise CuError(
            Diagnostic(
                "CU854", "an element of the output is made of no one accumulator", span_of(columns[min(columns)])
            )
        )
    (root,) = first
    mine = {column: value for column, value in columns.items() if {r[2] for r in own[column]} == {root[2]}}
    return Stored(slices.reach.trace.steps[root[0]].warp, root[2], row, mine, lse)


def _pieces(value: Value, moved: int, size: int) -> list[Value]:
    """The elements of a value of `moved` bytes."""
    if moved == size:
        return [value]
    if isinstance(value, Node) and value.op == "pack":
        return list(value.args)
    raise CuError(Diagnostic("CU854", "several elements are stored that were not put together", span_of(value)))


def finish_formula(slices: Slices, value: Value, output: Key | None, step: Link) -> Formula:
    """Over `o`, `row.m` and `l`, the sum of all lanes of the row. Errors: CU854."""
    names: dict[int, Expr] = {}
    totals: set[int] = set()
    for root in states_of(value):
        node = slices.states[root]
        if root == output:
            names[id(node)] = OUTPUT
        elif root[:2] == step.total[:2] and root[2] in step.lanes:
            totals.add(id(node))
        elif step.is_maximum(root):
            names[id(node)] = MAXIMUM

    def leaf(node: Node) -> Expr | None:
        parts = [id(p) for p in leaves(node, ("add",))]
        if len(parts) == len(step.lanes) and len(totals) == len(parts) and set(parts) == totals:
            return FINAL_TOTAL
        return names.get(id(node))

    inner = value.args[0] if isinstance(value, Node) and value.op == "cast" else value
    return Formulas(leaf).of(inner)
