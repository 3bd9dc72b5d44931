"""From the recorded graph to the AttentionSpec: lifting, extraction, normalizer, expressions, remarks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

import sympy
import torch
from torch import Tensor

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.predicates import TRUE, is_zero, negation
from cubridge.frontend.reference.algebra.reduce import renewed
from cubridge.frontend.reference.algebra.terms import Arena, Size, Term, arena, const, index, size, sizes_only, walk
from cubridge.frontend.reference.attention import Axes
from cubridge.frontend.reference.captured_numbers import captured_numbers
from cubridge.frontend.reference.captures import CaptureTable
from cubridge.frontend.reference.distances import by_distance
from cubridge.frontend.reference.extract import extract
from cubridge.frontend.reference.fixed import fixed_numbers
from cubridge.frontend.reference.lift import Lifter
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.normalizer import Normalizer, normalize
from cubridge.frontend.reference.ops import HANDLERS
from cubridge.frontend.reference.printing import ExprWriter, text
from cubridge.frontend.reference.record import Recording
from cubridge.frontend.reference.remarks import warnings_of
from cubridge.frontend.reference.requirements import Declared
from cubridge.frontend.reference.sizes import SizeReader
from cubridge.frontend.reference.table_lengths import length_conditions
from cubridge.frontend.reference.ties import tie
from cubridge.frontend.reference.values import Value
from cubridge.ir.algebra.hosts import is_positive
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.spec import AttentionSpec, Precondition, Remark, RowReduction

_SIZES: Final = ("B", "G", "Hk", "Lq", "Lk", "D")


@dataclass(frozen=True, slots=True)
class Assembled:
    """A spec and what it was made from. `conditions`: the preconditions as terms; `declared`: what values must be like."""

    spec: AttentionSpec
    normalizer: Normalizer
    axes: Axes
    lifter: Lifter
    table: CaptureTable
    conditions: tuple[Term, ...]
    declared: Declared


def assemble(reference: Reference, recording: Recording, current: Arena) -> Assembled:
    """Errors: CU475 shapes of the results, those of lifting and extraction."""
    reader = SizeReader(recording)
    conditions, own_conditions = _conditions(recording, reader)
    current.learn([t for t, _ in conditions])
    reader.learn(t for t, _ in conditions)
    current.no_flags = frozenset(n for n, value in recording.examples.items() if not _is_flag(value))
    lifter = Lifter(recording, reader)
    lifter.run(HANDLERS)
    axes = _axes(recording, reader)
    out, lse = _results(reference, recording, lifter, axes)
    attention = extract(out, lse, axes)
    normalizer = by_distance(normalize(attention), lifter, axes)
    table = CaptureTable(lifter, attention.computed, reference.span)
    writer = ExprWriter(table.subscript, reference.span)
    conditions += _divisors(reference, current, writer)
    lengths = {s: c for s in current.subscripts if (c := length_conditions(s)) is not None}
    conditions = _independent(
        [*conditions, *((t, current.subscripts[s]) for s, terms in lengths.items() for t in terms)]
    )
    rows = tuple(RowReduction(r.name, r.kind, writer.expr(r.over), writer.expr(r.body)) for r in normalizer.rows)
    spec = AttentionSpec(
        score=writer.expr(normalizer.score),
        mask=writer.expr(normalizer.mask),
        weight=writer.expr(normalizer.weight),
        rows=rows,
        finalize=writer.expr(normalizer.finalize),
        shift=normalizer.shift,
        lse=None if normalizer.lse is None else writer.expr(normalizer.lse),
        kv_head=writer.expr(attention.kv_head),
        gives_lse=lse is not None,
        tie=tie(recording, lifter),
        preconditions=tuple(Precondition(writer.expr(t), span) for t, span in conditions),
        specialised=(*_specialised(recording, conditions), *_fixed_state(reference, recording)),
        assumptions=(
            *(Remark(what, span) for what, span in current.assumptions.items()),
            *(Remark(f"`{name}` holds 0 and 1 alone", span) for name, span in current.flags.items()),
            *(Remark(f"{text(term)}, an extent of an argument", span) for term, span in own_conditions),
        ),
    )
    warnings = warnings_of(normalizer, lifter, table, current)
    spec = replace(spec, captures=table.captures(writer), warnings=warnings)
    return Assembled(
        spec,
        normalizer,
        axes,
        lifter,
        table,
        tuple(t for t, _ in conditions),
        Declared.of(current, lengths, tuple(own_conditions), captured_numbers(table, normalizer)),
    )


def _is_flag(example: Tensor | float) -> bool:
    """May it hold 0 and 1 alone? A number that is given by itself is a factor."""
    return isinstance(example, Tensor) and example.dim() > 0 and bool(((example == 0) | (example == 1)).all())


def _axes(recording: Recording, reader: SizeReader) -> Axes:
    """The index variables, with extents as the guards left them: equal where the reference insisted."""
    by_name = {name: symbol for symbol, name in recording.symbols.items()}

    def extent(name: str) -> Term:
        if name not in by_name:
            return const(recording.sizes[name])
        return reader.expression(recording.env.replace(by_name[name]))  # pyright: ignore[reportArgumentType]

    sizes = {name: extent(name) for name in _SIZES}
    heads = integers.mul(sizes["G"], sizes["Hk"])
    return Axes(
        index("b", sizes["B"]),
        index("h", heads),
        index("i", sizes["Lq"]),
        index("j", sizes["Lk"]),
        index("e", sizes["D"]),
        sizes["D"],
        sizes["Hk"],
    )


def _results(reference: Reference, recording: Recording, lifter: Lifter, axes: Axes) -> tuple[Term, Term | None]:
    outputs = [lifter.value(t) for t in recording.outputs]
    if len(outputs) > 2:
        raise CuError(
            Diagnostic("CU475", f"the reference returns {len(outputs)} tensors", reference.span, help=_RETURNS)
        )
    out = outputs[0]
    for tensor, value in zip(recording.outputs, outputs, strict=True):
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            span = value.span if value.span is not NOWHERE else reference.span
            raise CuError(
                Diagnostic("CU475", f"the reference returns {kind}, which no kernel writes", span, help=_RETURNS)
            )
    _check_shape(
        "the output", out, (axes.b.extent, axes.h.extent, axes.i.extent, axes.e.extent), "[B, Hq, Lq, D]", reference
    )
    element = out.at(axes.b, axes.h, axes.i, axes.e)
    if len(outputs) == 1:
        return element, None
    lse = outputs[1]
    _check_shape("the second output", lse, (axes.b.extent, axes.h.extent, axes.i.extent), "[B, Hq, Lq]", reference)
    return element, lse.at(axes.b, axes.h, axes.i)


_RETURNS: Final = "return `out`, or `(out, lse)` with the natural-log sum of exponentials of each row"


def _check_shape(what: str, value: Value, wanted: tuple[Term, ...], layout: str, reference: Reference) -> None:
    if value.shape != wanted:
        found = "[" + ", ".join(text(n) for n in value.shape) + "]"
        span = value.span if value.span is not NOWHERE else reference.span
        raise CuError(Diagnostic("CU475", f"{what} has shape {found}, expected {layout}", span, help=_RETURNS))


_Conditions = list[tuple[Term, Span]]


def _conditions(recording: Recording, reader: SizeReader) -> tuple[_Conditions, _Conditions]:
    """What the reference's control flow and broadcasts required of the sizes, as read before any size was replaced; and what of
    extents of arguments that follow no size.
    An operation that asks for sizes to differ decides on its memory layout; its result is the same where they do not."""
    found: dict[Term, Span] = {}
    for guard, (span, by_operation) in zip(recording.env.guards, recording.env.guard_places, strict=False):
        if not (by_operation and isinstance(guard.expr, sympy.Ne)):
            found.setdefault(reader.expression(guard.expr), span)
    for name in recording.sizes:
        if name in recording.static:
            found.setdefault(_fixed(name, recording), NOWHERE)
    required = [(t, s) for t, s in found.items() if t is not TRUE]
    own = [(t, s) for t, s in required if any(isinstance(x, Size) and x.name not in _SIZES for x in walk(t))]
    return _independent([c for c in required if c not in own]), own


def _divisors(reference: Reference, current: Arena, writer: ExprWriter) -> _Conditions:
    """Sizes at which an integer would be divided by 0."""
    found = [(t, span) for t, span in current.divisors.items() if sizes_only(t) and not is_positive(writer.expr(t))]
    conditions = [(negation(is_zero(t)), reference.span if span is NOWHERE else span) for t, span in found]
    return [c for c in conditions if c[0] is not TRUE]


def _independent(conditions: list[tuple[Term, Span]]) -> list[tuple[Term, Span]]:
    """Without those that follow from the others."""
    current = arena()
    kept = list(conditions)
    for condition in conditions:
        others = [c for c in kept if c is not condition]
        current.learn([t for t, _ in others])
        if renewed(condition[0]) is TRUE:
            kept = others
    current.learn([])
    return kept


def _fixed(name: str, recording: Recording) -> Term:
    """The size is a number; the group of heads as their count where the key heads are one too."""
    value = recording.sizes[name]
    if name == "G" and "Hk" in recording.static:
        return is_zero(integers.sub(integers.mul(size("G"), size("Hk")), const(value * recording.sizes["Hk"])))
    return is_zero(integers.sub(size(name), const(value)))


def _specialised(recording: Recording, conditions: list[tuple[Term, Span]]) -> tuple[Remark, ...]:
    """Sizes that a guard made a number."""
    spans = {x.name: span for t, span in conditions for x in walk(t) if isinstance(x, Size)}
    found: list[Remark] = []
    for symbol, name in recording.symbols.items():
        value = recording.env.replace(symbol)
        if value.is_number:
            found.append(Remark(f"{_PUBLIC.get(name, name)} is fixed at {value}", spans.get(name, NOWHERE)))
    found += [Remark(f"{name} is fixed at {recording.scalars[name]}", NOWHERE) for name in sorted(recording.fixed)]
    return tuple(found)


def _fixed_state(reference: Reference, recording: Recording) -> Iterator[Remark]:
    """Numbers that the reference keeps, and numbers read from tensors that it keeps; what it returns without asking."""
    if recording.nones:
        yield Remark("the reference returns None beside its tensors, the operator does not", reference.span)
    given, returned = recording.inputs["q"].dtype, recording.outputs[0].dtype
    if returned is not given:
        kind = str(returned).removeprefix("torch.")
        yield Remark(f"the reference returns {kind}, the operator the element type of q", reference.span)
    arguments = {*recording.inputs, *recording.scalars}
    for path, value in (fixed_numbers(reference.function, arguments) | _other_defaults(reference, arguments)).items():
        yield Remark(f"`{path}` is fixed at {value}")
    for number in recording.numbers:
        yield Remark(f"a number read from `{number.source.path}` is fixed at {number.value!r}", number.span)


def _other_defaults(reference: Reference, given: Collection[str]) -> dict[str, str]:
    """Arguments that are no numbers and that nothing gives: another value is refused at a call."""
    parameters = list(reference.signature().parameters.values())[3:]
    kinds = (type(None), torch.dtype, torch.device)
    return {p.name: repr(p.default) for p in parameters if p.name not in given and isinstance(p.default, kinds)}


_PUBLIC: Final = {"G": "Hq // Hk"}
