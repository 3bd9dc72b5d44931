"""What a row's output and log-sum-exp are made of behind the loop, and the registers that carried them through it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from cubridge.frontend.ptx.floats import as_float
from cubridge.frontend.ptx.formula import Formula, Formulas, leaves
from cubridge.frontend.ptx.layout import Layout
from cubridge.frontend.ptx.reach import RegisterKey, is_shared, moves_of
from cubridge.frontend.ptx.row import MAXIMUM, OUTPUT, RowStep
from cubridge.frontend.ptx.slices import Slices
from cubridge.frontend.ptx.values import Node, Value, contains, span_of, states_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Expr, Name

FINAL_TOTAL: Final = Name("l")


@dataclass(frozen=True, slots=True)
class Stored:
    """What one lane stores of one row: values of the output by column, and the log-sum-exp if this lane stores it."""

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

    def outputs(self) -> dict[int, RegisterKey]:
        """The register that carries each column. Errors: CU854."""
        states = {column: set(states_of(value)) for column, value in self.columns.items()}
        shared = set.intersection(*states.values()) if len(states) > 1 else set[RegisterKey]()
        found: dict[int, RegisterKey] = {}
        for column, registers in states.items():
            own = registers - shared
            if len(own) != 1:
                raise CuError(
                    Diagnostic(
                        "CU854", "an element of the output is made of no one accumulator", span_of(self.columns[column])
                    )
                )
            found[column] = own.pop()
        return found


def stored_rows(slices: Slices, layout: Layout, lanes: list[tuple[int, int]]) -> list[Stored]:
    """What these lanes store, by row."""
    columns: dict[tuple[int, int, int], dict[int, Value]] = defaultdict(dict)
    sums: dict[tuple[int, int, int], Value] = {}
    trace = slices.reach.trace
    for index, step in enumerate(trace.steps):
        operation = trace.code[step.at]
        if not operation.name.startswith("st."):
            continue
        for warp, lane in lanes:
            if (
                step.warp != warp
                or not step.mask >> lane & 1
                or is_shared(operation.name, int(step.addresses[0][lane]))
            ):
                continue
            moves = moves_of(operation.name)
            tensor = layout.window(int(step.addresses[0][lane]))
            if tensor is None:
                continue
            for number in range(moves.count):
                value = slices.source(index, 1 + number, lane)
                for part, piece in enumerate(_pieces(value, moves.bytes, layout.bytes[tensor])):
                    address = int(step.addresses[0][lane]) + number * moves.bytes + part * layout.bytes[tensor]
                    place = layout.place(tensor, address)
                    if tensor == "lse":
                        sums[warp, lane, place.row] = as_float(piece, operation.span)
                    else:
                        columns[warp, lane, place.row][place.column] = piece
    return [Stored(*key, found, sums.get(key)) for key, found in columns.items()]


def _pieces(value: Value, moved: int, size: int) -> list[Value]:
    """The elements of a value of `moved` bytes."""
    if moved == size:
        return [value]
    if isinstance(value, Node) and value.op == "pack":
        return list(value.args)
    raise CuError(Diagnostic("CU854", "several elements are stored that were not put together", span_of(value)))


def finish_formula(slices: Slices, stored: Stored, value: Value, output: RegisterKey | None, step: RowStep) -> Formula:
    """Over `o`, `row.m` and `l`, the sum of all lanes of the row. Errors: CU854."""
    warp = stored.warp
    names: dict[int, Expr] = {}
    totals: set[int] = set()
    for (of, lane, register), node in slices.states.items():
        if of != warp or lane not in step.lanes:
            continue
        if register == step.total:
            totals.add(id(node))
        elif register == step.maximum:
            names[id(node)] = MAXIMUM
        elif register == output and lane == stored.lane:
            names[id(node)] = OUTPUT

    def leaf(node: Node) -> Expr | None:
        parts = [id(p) for p in leaves(node, ("add",))]
        if len(parts) == len(step.lanes) and len(totals) == len(parts) and set(parts) == totals:
            return FINAL_TOTAL
        return names.get(id(node))

    inner = value.args[0] if isinstance(value, Node) and value.op == "cast" else value
    return Formulas(leaf).of(inner)
