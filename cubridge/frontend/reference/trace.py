"""Reads a reference: records it, lifts it to an AttentionSpec, and compares the two at two other shapes."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cubridge.frontend.reference.algebra.terms import Arena, BudgetError, new_arena
from cubridge.frontend.reference.assemble import Assembled, assemble
from cubridge.frontend.reference.attempts import attempts
from cubridge.frontend.reference.captures import CaptureValues
from cubridge.frontend.reference.compare import compare
from cubridge.frontend.reference.evaluate import evaluate_number
from cubridge.frontend.reference.extents import call_extra_inputs
from cubridge.frontend.reference.held import held_extents, held_names
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.oracle import Oracle, OracleValues, sizes_of
from cubridge.frontend.reference.places import error_span
from cubridge.frontend.reference.quiet import off_stdout, uncompiled
from cubridge.frontend.reference.record import LOOP_HELP, first_line, record
from cubridge.frontend.reference.refusal import fail, refuse
from cubridge.frontend.reference.signature import check_arguments
from cubridge.frontend.reference.visibility import empty_rows, rows_without_lse
from cubridge.ir.diagnostics import CuError, InternalError, Refused
from cubridge.ir.source import NOWHERE
from cubridge.ir.spec import DEFAULT_SHAPE, AttentionSpec, Remark, Shape

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "f32": torch.float32}


Input = Tensor | int | float | bool


@dataclass(frozen=True)
class Traced:
    """A reference as read. `shape` is the one it was recorded at, `dtype` that of q, k and v there."""

    reference: Reference
    spec: AttentionSpec
    shape: Shape
    dtype: torch.dtype
    assembled: Assembled
    arena: Arena

    def extra(self, shape: Shape) -> dict[str, Input]:
        """The arguments besides q, k, v at a shape. Errors: CU473."""
        return call_extra_inputs(self.reference, shape)

    def captures(self, sizes: Mapping[str, int], inputs: Mapping[str, Input], wide: bool = False) -> dict[str, Tensor]:
        """The spec's captures for one launch. `inputs`: extra inputs by name, and q, k, v. Errors: CU490."""
        with new_arena(self.arena):
            values = CaptureValues(self.assembled.lifter, self.assembled.table)
            values.check(self.assembled.subscripts, self.arena.flags, sizes, inputs)
            return values.at(sizes, inputs, wide)

    def meets_preconditions(self, shape: Shape) -> bool:
        """May the kernel be launched at this shape, as far as the sizes and the scalar arguments say?"""
        numbers: dict[str, int | float | bool] = {**shape.sizes()}
        if self.assembled.lifter.recording.scalars:
            numbers |= {n: v for n, v in self.extra(shape).items() if not isinstance(v, Tensor)}
        try:
            return all(evaluate_number(c, numbers) for c in self.assembled.conditions)
        except (ZeroDivisionError, ValueError, OverflowError):
            return False

    def empty_rows(self, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> Tensor:
        """[B, Hq, Lq]: rows that see no key."""
        return empty_rows(self.spec, sizes, captures)

    def oracle_values(
        self, q: Tensor, k: Tensor, v: Tensor, extra: Mapping[str, Input], empty: Tensor, without_lse: Tensor
    ) -> OracleValues:
        with new_arena(self.arena):
            return Oracle(self.assembled.lifter).values(q, k, v, extra, empty, without_lse)

    def oracle(self, q: Tensor, k: Tensor, v: Tensor, extra: Mapping[str, Input]) -> tuple[Tensor, Tensor | None]:
        """(out, lse) of the reference in fp64; rows that see no key are 0 and -inf."""
        sizes = sizes_of(q, k)
        captures = self.captures(sizes, {**extra, "q": q, "k": k, "v": v}, wide=True)
        empty, without_lse = self.empty_rows(sizes, captures), rows_without_lse(self.spec, sizes, captures)
        values = self.oracle_values(q, k, v, extra, empty, without_lse)
        return values.out, values.lse

    def half(self, q: Tensor, k: Tensor, v: Tensor, extra: Mapping[str, Input]) -> Tensor:
        """The reference itself, in the precision of its inputs, or in float32 where it runs in no other. Errors: CU474."""
        try:
            with torch.no_grad(), off_stdout(), uncompiled():
                out = self.reference.function(*(t.to(self.dtype) for t in (q, k, v)), **extra)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever the user's code raises
            span = error_span(error.__traceback__)
            message = f"the reference fails on numbers: {type(error).__name__}: {first_line(error)}"
            fail("CU474", message, self.reference.span if span is NOWHERE else span)
        found = out[0] if isinstance(out, (tuple, list)) else out
        assert isinstance(found, Tensor)
        return found.to(q.dtype)


def trace(reference: Reference, shape: Shape | None = None, dtype: torch.dtype = torch.bfloat16) -> Traced:
    """Read `reference`. `shape`: sizes to favour, where the reference is fixed to some. Errors: CU47x to CU49x, located."""
    first: CuError | None = None
    extra = call_extra_inputs(reference, shape or DEFAULT_SHAPE)
    check_arguments(reference, extra)
    names = frozenset(n for n, v in extra.items() if not isinstance(v, Tensor))
    for candidate in attempts(shape, held_extents(reference)):
        for kind, fixed in _ways(dtype, names):
            try:
                traced = _at(reference, candidate, kind, fixed)
            except Refused:
                raise
            except CuError as error:
                first = first or error
                if kind is not torch.float32 and not names and not _is_about_dtypes(error):
                    break
                continue
            return traced if first is None else _remarked(traced, first)
    assert first is not None
    raise first


def _ways(dtype: torch.dtype, scalars: frozenset[str]) -> Iterator[tuple[torch.dtype, frozenset[str]]]:
    """In the asked precision, then in float32; with scalar arguments as symbols, then as the numbers they are."""
    for fixed in (frozenset[str](), scalars) if scalars else (frozenset[str](),):
        yield dtype, fixed
        yield torch.float32, fixed


def _remarked(traced: Traced, first: CuError) -> Traced:
    """Says why the reference was not read at distinct sizes in the asked precision."""
    why = first.diagnostics[0]
    remark = Remark(f"read at {traced.shape}, because elsewhere {why.message}", why.span)
    return replace(traced, spec=replace(traced.spec, specialised=(*traced.spec.specialised, remark)))


def _is_about_dtypes(error: CuError) -> bool:
    """A reference that mixes float32 captures with half-precision inputs runs in float32 alone."""
    return any(word in error.diagnostics[0].message for word in ("dtype", "scalar type"))


def _at(reference: Reference, shape: Shape, dtype: torch.dtype, fixed: frozenset[str]) -> Traced:
    """`fixed`: scalar arguments that enter as the numbers they are."""
    with new_arena() as arena, _deep_recursion():
        try:
            recording = record(reference, shape, dtype, fixed)
            heads = recording.fixed_heads()
            if heads:
                recording = record(reference, shape, dtype, fixed | heads)
            assembled = assemble(reference, recording, held_names(reference), arena)
        except BudgetError:
            refuse("CU489", "reading the reference takes too long", arena.here, LOOP_HELP)
        except RecursionError:
            refuse("CU489", "the reference nests too deeply", arena.here, LOOP_HELP)
        except OverflowError:
            span = reference.span if arena.here is NOWHERE else arena.here
            refuse("CU476", "a number of the reference is too large for a float", span, "keep factors within float32")
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InternalError(f"reading {arena.here} fails: {type(error).__name__}: {error}") from error
        traced = Traced(reference, assembled.spec, shape, dtype, assembled, arena)
    return replace(traced, spec=compare(traced))


@contextmanager
def _deep_recursion() -> Generator[None]:
    """A graph of many calls is lifted by as many nested calls."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def compute_captures(
    traced: Traced,
    shape: Shape,
    extra: Mapping[str, Input],
    qkv: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """The spec's captures as CPU tensors, f32, i32 or bool. `qkv` where a computed capture reads them. Errors: CU490."""
    return traced.captures(shape.sizes(), {**extra, **(qkv or {})})
