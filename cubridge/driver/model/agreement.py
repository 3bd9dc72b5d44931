"""Do the statements of CuIR that a model lifted agree with the lines that they stand for: in numbers, tensors, order and loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from cubridge.driver.model.anchored import CODE, Anchor, Anchored
from cubridge.driver.model.instructions import Instructions, operation_of, ordering
from cubridge.driver.model.operands import Numbers, Operands
from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.evaluate import known_int
from cubridge.ir.nodes import (
    Assign,
    Cast,
    CopyAsync,
    For,
    Global,
    If,
    Kernel,
    Loop,
    Op,
    RegionCall,
    RegisterTile,
    Stmt,
    Store,
    StoreAsync,
    TensorMap,
)
from cubridge.ir.walk import blocks, field_names, field_of


def agreement_faults(anchored: Anchored, instructions: Instructions) -> Iterator[Diagnostic]:
    """CU718 for a statement that says other numbers or another tensor than its lines, that stands before one whose lines come
    earlier, or in another loop than its lines."""
    entry = next((f for f in instructions.program.kernels() if f.name == instructions.entry), None)
    if entry is None:
        return
    operands = Operands(instructions.program, entry)
    for anchor in anchored.anchors:
        yield from _number_faults(anchor, anchored.kernel, operands)
        yield from _tensor_faults(anchor, anchored.kernel, operands)
    inside = [a for a in anchored.anchors if _does_something(a.statement) and _first(a) in operands.lines]
    for before, after in pairwise(inside):
        if _first(after) < _first(before):
            message = f"line {_first(after)} of the text comes before line {_first(before)}, of the statement above"
            yield Diagnostic(CODE, message, after.place, (Note("that one", before.place),))
    yield from _loop_faults(anchored, operands)


def _does_something(statement: Stmt) -> bool:
    return operation_of(statement) is not None or isinstance(statement, RegionCall | Cast | Store | If | For | Loop)


def _first(anchor: Anchor) -> int:
    return anchor.runs[0][0]


# ---- numbers and tensors ---------------------------------------------------------------------------------------------


def _number_faults(anchor: Anchor, kernel: Kernel, operands: Operands) -> Iterator[Diagnostic]:
    statement = anchor.statement
    if not isinstance(statement, Op) or statement.op not in ordering():
        return
    said = tuple(known_int(getattr(statement, n), kernel.constant_values) for n in field_names(type(statement)))
    found = operands.numbers(statement.op, anchor.lines)
    if found and not any(_may_be(said, numbers) for numbers in found):
        there = " or ".join(sorted(", ".join(map(_shown, numbers)) for numbers in found))
        message = f"the lines of this `{statement.op}` say {there}, not {', '.join(map(_shown, said))}"
        yield Diagnostic(CODE, message, anchor.place)


def _may_be(said: Numbers, numbers: Numbers) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(said, numbers, strict=False))


def _shown(number: int | None) -> str:
    return "no number" if number is None else str(number)


def _tensor_faults(anchor: Anchor, kernel: Kernel, operands: Operands) -> Iterator[Diagnostic]:
    match anchor.statement:
        case CopyAsync(src=moved) | Store(dst=moved) | StoreAsync(dst=moved):
            name = field_of(moved)
        case _:
            return
    tensors = {f.name for f in kernel.params if isinstance(f.type, Global | TensorMap)}
    there = operands.fields(anchor.lines) & tensors
    if there and name not in there:
        message = f"the lines of this statement are about `p.{'`, `p.'.join(sorted(there))}`, not `p.{name}`"
        yield Diagnostic(CODE, message, anchor.place)


# ---- loops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Nested:
    """An anchor, and those of the statements around it that loop."""

    anchor: Anchor
    loops: tuple[Anchor, ...]


def _nested(body: tuple[Stmt, ...], anchors: Iterator[Anchor], loops: tuple[Anchor, ...]) -> Iterator[_Nested]:
    """In the order of `statements`."""
    for statement in body:
        anchor = next(anchors)
        yield _Nested(anchor, loops)
        for name, inner in blocks(statement):
            yield from _nested(inner, anchors, (*loops, anchor) if name == "body" else loops)


def _loop_faults(anchored: Anchored, operands: Operands) -> Iterator[Diagnostic]:
    nested = [*_nested(anchored.kernel.body, iter(anchored.anchors), ())]
    ranges = {loop.place: operands.loops(loop.lines) for n in nested for loop in n.loops}
    for n in nested:
        line = _first(n.anchor)
        if isinstance(n.anchor.statement, For | Loop | If | Assign | RegisterTile) or line not in operands.lines:
            continue
        around = {loop.place for loop in n.loops}
        for loop, lines in ranges.items():
            if lines and any(line in r for r in lines) != (loop in around):
                where = "outside of" if loop in around else "inside of"
                message = (
                    f"line {line} of the text is {where} the loop at line {lines[0].start}, and this statement is not"
                )
                yield Diagnostic(CODE, message, n.anchor.place)
