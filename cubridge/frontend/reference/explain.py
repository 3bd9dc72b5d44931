"""What was found in a reference, as text for its author."""

from __future__ import annotations

from collections.abc import Iterator

from cubridge.frontend.reference.algebra.terms import new_arena
from cubridge.frontend.reference.mask_facts import bounds
from cubridge.frontend.reference.printing import ExprWriter
from cubridge.frontend.reference.traced import Traced
from cubridge.ir.nodes import BoolLit, Expr, Index, Name
from cubridge.ir.printer import print_expr
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.spec import AttentionSpec, Remark
from cubridge.ir.walk import walk

_LABEL = 11


def explain(traced: Traced) -> str:
    """Score, mask, normalizer, head map, captures, preconditions, assumptions and warnings, each with its line."""
    spec = traced.spec
    dtype = str(traced.dtype).removeprefix("torch.")
    head = f"{traced.reference.name}  ({_place(traced.reference.span)}), read at {traced.shape} in {dtype}"
    lines = [head, *_parts(traced)]
    lines += [_line("requires", print_expr(p.condition), p.span) for p in spec.preconditions]
    for label, remarks in (
        ("fixed", spec.specialised),
        ("assumes", spec.assumptions),
        ("warning", spec.warnings),
    ):
        lines += [_line(label, r.message, r.span) for r in _once(remarks)]
    return "\n".join(lines) + "\n"


def _parts(traced: Traced) -> Iterator[str]:
    spec = traced.spec
    yield _line("score", f"x = {print_expr(spec.score)}", spec.score.span)
    yield _line("", "s = sum over d of q[b, h, i, d] * k[b, kv, j, d]")
    everywhere = spec.mask == BoolLit(True)
    yield _line("mask", "every key" if everywhere else print_expr(spec.mask), NOWHERE if everywhere else spec.mask.span)
    for text in _mask_facts(traced):
        yield _line("", text)
    shift = ", m any number of the row (exponential: stable with the row maximum)" if spec.shift else ""
    yield _line("weight", f"{print_expr(spec.weight)}{shift}", spec.weight.span)
    for row in spec.rows:
        over = "visible keys" if row.over == spec.mask else _keys(row.over)
        yield _line("row", f"{row.name} = {row.kind} over {over} of {print_expr(row.body)}", row.body.span)
    yield _line("output", f"{print_expr(spec.finalize)}, acc = sum over visible keys of weight * v", spec.finalize.span)
    if spec.lse is not None:
        returned = "returned" if spec.gives_lse else "not returned by the reference"
        yield _line("LSE", f"{print_expr(spec.lse)}  (natural log; {returned})")
    yield _line("heads", f"query head h reads key head kv = {print_expr(spec.kv_head)}", spec.kv_head.span)
    for capture in spec.captures:
        extents = f"[{', '.join(map(print_expr, capture.extents))}]" if capture.extents else ""
        reads = ", ".join(sorted(set(_reads(spec, capture.name))))
        sources = ", ".join(sorted(traced.inputs_of(capture.name))) if capture.kind == "computed" else ""
        kind = (
            f"`{capture.path}` at each call" if capture.path else capture.kind + (f" of {sources}" if sources else "")
        )
        text = f"{capture.name}{extents}  {kind}, {capture.dtype}, read as {reads}"
        yield _line("capture", text, capture.span if capture.kind == "computed" else NOWHERE)


def _keys(condition: Expr) -> str:
    return "every key" if condition == BoolLit(True) else f"keys with {print_expr(condition)}"


def _mask_facts(traced: Traced) -> Iterator[str]:
    found = traced.assembled
    with new_arena(traced.arena):
        writer = ExprWriter(found.table.subscript)
        for bound in bounds(found.normalizer.mask, found.axes.i, found.axes.j):
            yield bound.text(print_expr(writer.expr(bound.reach)))


def _reads(spec: AttentionSpec, name: str) -> Iterator[str]:
    """How the capture is subscripted."""
    exprs: list[Expr] = [spec.score, spec.mask, spec.weight, spec.finalize, spec.kv_head]
    exprs += [e for row in spec.rows for e in (row.over, row.body)]
    exprs += [spec.lse] if spec.lse is not None else []
    for expr in exprs:
        for node in walk(expr):
            match node:
                case Index(Name(id)) if id == name:
                    yield print_expr(node)
                case Name(id) if id == name and not spec.capture(name).extents:
                    yield name
                case _:
                    pass


def _once(remarks: tuple[Remark, ...]) -> list[Remark]:
    return list(dict.fromkeys(remarks))


def _line(label: str, text: str, span: Span = NOWHERE) -> str:
    body = f"{label:<{_LABEL}}{text}"
    return body if span is NOWHERE or not span.file.data else f"{body}    [line {span.location[0]}]"


def _place(span: Span) -> str:
    return "interactive" if span is NOWHERE else f"{span.file.name}:{span.location[0]}"
