"""Compares a spec with its reference in fp64, at shapes other than the traced one. Every trace does: no proof of the lifting
is as sure as its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cubridge.engine.dense import spec_values
from cubridge.frontend.reference.algebra.terms import new_arena
from cubridge.frontend.reference.eager import check_run, conditions_on_ones
from cubridge.frontend.reference.empty_rows import other_empty_rows, random_inputs
from cubridge.frontend.reference.extents import call_extra_inputs
from cubridge.frontend.reference.printing import ExprWriter
from cubridge.frontend.reference.record import first_line
from cubridge.frontend.reference.refusal import fail, refuse
from cubridge.frontend.reference.remarks import EmptyRows, captured_fill_remark
from cubridge.frontend.reference.traced import Traced
from cubridge.frontend.reference.visibility import captured_fills, filled_rows, rows_without_lse
from cubridge.ir.diagnostics import CuError
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.nodes import BoolLit, Call
from cubridge.ir.spec import AttentionSpec, Precondition, Remark, Shape
from cubridge.ir.walk import free_names, walk
from cubridge.verify.size_limits import of_formulas

TOLERANCE: Final = 1e-7
SHAPES: Final = 2
READ_WRONGLY: Final = "the reference was read wrongly"
MAX_LENGTH: Final = 1200


def compare(traced: Traced) -> AttentionSpec:
    """The spec, with a warning where it could not be compared at two other shapes. Errors: CU487 where they differ."""
    compared: list[Shape] = []
    seen: list[_Seen] = []
    reason: CuError | Exception | None = None
    for shape in _candidates(traced):
        try:
            seen.append(_compare_at(traced, shape, seed=len(compared)))
            compared.append(shape)
        except CuError as error:
            if error.diagnostics[0].code == "CU487":
                raise
            reason = error
        except (
            RuntimeError,
            IndexError,
            ValueError,
            TypeError,
            ArithmeticError,
        ) as error:  # the reference does not run at this shape
            reason = error
        if len(compared) == SHAPES:
            break
    if not compared:
        seen.append(_compare_where_traced(traced))
    run_at = compared[0] if compared else traced.shape
    remarks = (*_remarks(traced, run_at, len(compared), reason, seen), *check_run(traced, run_at))
    return replace(
        traced.spec,
        warnings=(*traced.spec.warnings, *remarks),
        preconditions=(*traced.spec.preconditions, *_on_ones(traced, run_at), *of_formulas(traced.spec)),
    )


def _compare_where_traced(traced: Traced) -> _Seen:
    """Errors: CU474 where the recorded calls do not run on numbers even there; CU487."""
    try:
        return _compare_at(traced, traced.shape, seed=0)
    except (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError) as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        fail("CU474", f"the reference fails on numbers: {what}", traced.reference.span)


def _on_ones(traced: Traced, shape: Shape) -> Iterator[Precondition]:
    with new_arena(traced.arena):
        writer = ExprWriter(traced.assembled.table.subscript)
        for condition in conditions_on_ones(traced, shape):
            yield Precondition(writer.expr(condition), traced.reference.span)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a comparison shows besides that it holds: the reference in rows that see no key, and captures that hold fills."""

    empty: EmptyRows
    fills: tuple[str, ...]


def _remarks(
    traced: Traced, run_at: Shape, compared: int, reason: Exception | None, seen: list[_Seen]
) -> Iterator[Remark]:
    keeps_lse = _keeps_lse(traced.spec)
    for why, rows in chain((("", s.empty) for s in seen), other_empty_rows(traced, run_at)):
        remark = rows.remark(why, keeps_lse) if rows.out.numel() else None
        if remark is not None:
            yield replace(remark, span=traced.reference.span)
            break
    for name in dict.fromkeys(name for s in seen for name in s.fills):
        yield replace(captured_fill_remark(name), span=traced.reference.span)
    if compared < SHAPES:
        cause = f": {str(reason).splitlines()[0]}" if reason is not None else ""
        yield Remark(f"compared with the reference at {compared or 1} shape only{cause}", traced.reference.span)


def _candidates(traced: Traced) -> Iterator[Shape]:
    """Small shapes that meet the preconditions, long enough for the numbers in the mask to matter."""
    longest = min(MAX_LENGTH, 37 + 2 * max(_numbers(traced), default=0))
    fixed = {name: traced.shape.sizes()[name] for name in ("B", "Hq", "Hk", "Lq", "Lk", "D")}
    lengths = ((23, max(53, longest)), (max(70, longest), 21), (61, 61), (longest, longest), (fixed["Lq"], fixed["Lk"]))
    for at, (lq, lk) in enumerate(lengths):
        heads = ((4, 2), (6, 3)) if at % 2 == 0 else ((6, 3), (4, 2))
        options = [
            Shape(b, hq, hk, lq, lk, d)
            for d in (8 * (at % 2 + 1), fixed["D"])
            for b in (2 - at % 2, fixed["B"])
            for hq, hk in (*heads, (3, 3), (fixed["Hq"], fixed["Hk"]))
        ]
        changed = (s for option in options for s in fitting_shapes(traced.spec, [option]))
        fit = next((s for s in chain(options, changed) if traced.meets_preconditions(s)), None)
        if fit is not None and fit != traced.shape:
            yield fit


def _numbers(traced: Traced) -> Iterator[int]:
    """Whole numbers in the reference's operations: widths of windows, extents of tables, lengths of prefixes."""
    for call in traced.assembled.lifter.recording.calls:
        for operand in pytree.tree_leaves((call.args, call.kwargs)):
            if isinstance(operand, int) and 1 < abs(operand) < 4096:
                yield abs(operand)


def _keeps_lse(spec: AttentionSpec) -> bool:
    """Does the LSE read more than the row: a sink, which is left in rows that see no key?"""
    calls = () if spec.lse is None else (n for n in walk(spec.lse) if isinstance(n, Call) and n.fn == "exp")
    return any("m" in free_names(call) for call in calls)


def _compare_at(traced: Traced, shape: Shape, seed: int) -> _Seen:
    """Errors: CU487."""
    q, k, v = random_inputs(shape, seed)
    extra = call_extra_inputs(traced.reference, shape)
    captures = traced.captures(shape.sizes(), {**extra, "q": q, "k": k, "v": v}, wide=True)
    values = spec_values(traced.spec, q, k, v, captures, derivatives=False)
    empty = traced.empty_rows(shape.sizes(), captures)
    without_lse = rows_without_lse(traced.spec, shape.sizes(), captures)
    found = traced.oracle_values(q, k, v, extra, empty, without_lse)
    unlike = _filled_otherwise(traced.spec, shape, captures)
    got, want = values.out.masked_fill((empty | unlike)[..., None], 0.0), found.out.masked_fill(unlike[..., None], 0.0)
    _check(traced, shape, "the output", got, want)
    if found.lse is not None and values.lse is not None:
        _check(traced, shape, "LSE", values.lse.masked_fill(unlike, 0.0), found.lse.masked_fill(unlike, 0.0))
    rows = EmptyRows(found.at_empty, found.lse_at_empty, float(v.abs().max()))
    return _Seen(rows, captured_fills(traced.spec, captures))


def _filled_otherwise(spec: AttentionSpec, shape: Shape, captures: Mapping[str, Tensor]) -> Tensor:
    """[B, Hq, Lq]: rows that captures fill, where the reference gives a mean of keys too that a fill of its own hides."""
    filled = filled_rows(spec, shape.sizes(), captures)
    return filled if spec.mask != BoolLit(True) else torch.zeros_like(filled)


def _check(traced: Traced, shape: Shape, what: str, got: Tensor, want: Tensor) -> None:
    same = (got == want) | ((got - want).abs() <= TOLERANCE * (1 + want.abs()))
    if bool(same.all()):
        return
    place = [int(n) for n in (~same).nonzero()[0]]
    there = tuple(place)
    if bool(want[there].isnan()):
        refuse(
            "CU487",
            f"the reference gives NaN at {place} of {what}, in a row that sees a key (shape {shape})",
            traced.reference.span,
            "0 * inf or inf - inf: write the mask with torch.where or masked_fill",
        )
    refuse(
        "CU487",
        f"{READ_WRONGLY}: {what} at {place} is {float(want[there]):.6g}, its reading gives "
        f"{float(got[there]):.6g} (shape {shape})",
        traced.reference.span,
        "this is a fault of the tool; please report the reference. Another spelling of it may be read rightly",
    )
