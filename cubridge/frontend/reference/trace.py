"""Reads a reference: records it, lifts it to an AttentionSpec, and compares the two at two other shapes."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from cubridge.frontend.reference.algebra.terms import BudgetError, new_arena
from cubridge.frontend.reference.assemble import assemble
from cubridge.frontend.reference.attempts import Attempts
from cubridge.frontend.reference.compare import READ_WRONGLY, compare
from cubridge.frontend.reference.extents import call_extra_inputs
from cubridge.frontend.reference.live_arrays import without_live_arrays
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.record import LOOP_HELP, record
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.signature import check_arguments
from cubridge.frontend.reference.state import State, integers_of
from cubridge.frontend.reference.traced import Traced
from cubridge.ir.diagnostics import CuError, Diagnostic, InternalError, Refused
from cubridge.ir.source import NOWHERE
from cubridge.ir.spec import Remark, Shape

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "f32": torch.float32}


def trace(reference: Reference, shape: Shape | None = None, dtype: torch.dtype = torch.bfloat16) -> Traced:
    """Read `reference`. `shape`: sizes to favour, where the reference is fixed to some. Errors: CU47x to CU49x, located."""
    return replace(_trace(reference, shape, dtype), again=partial(trace, reference, shape, dtype))


def _trace(reference: Reference, shape: Shape | None, dtype: torch.dtype) -> Traced:
    failures: list[tuple[Shape, CuError]] = []
    elsewhere: Traced | None = None
    state = State.of(reference.function, reference.span)
    numbers = (*state.extents(), *integers_of(reference.function), *integers_of(reference.extra_inputs))
    tries = Attempts(shape, state.extents(), numbers)
    for candidate in tries:
        try:
            traced = _in_some_way(reference, candidate, dtype)
        except Refused:
            raise
        except CuError as error:
            failures.append((candidate, error))
            if not _may_run_elsewhere(error.diagnostics[0]):
                break
            if elsewhere is None:
                tries.failed(candidate, error.diagnostics[0].message)
            continue
        if failures:
            traced = _remarked(traced, f"at {traced.shape}", "elsewhere", failures[0][1])
        if shape is None or traced.meets_preconditions(shape):
            return traced
        if elsewhere is None:
            elsewhere = traced
            tries.keep_heads()
    if elsewhere is not None:
        return elsewhere
    raise CuError(*(_with_sizes_asked(d) for d in _telling(failures, shape).diagnostics))


def _telling(failures: Sequence[tuple[Shape, CuError]], shape: Shape | None) -> CuError:
    """The first failure that other sizes do not cure: at those that were asked for, else where heads and lengths are equal."""
    first = failures[0][1]
    asked = [error for at, error in failures if at == shape]
    equal = [error for at, error in failures if at.Hq == at.Hk and at.Lq == at.Lk]
    left = (*asked, *equal, first)[0]
    return first if first.diagnostics[0].span == left.diagnostics[0].span else left


def _may_run_elsewhere(found: Diagnostic) -> bool:
    """At other sizes: anything but extra inputs that are no tensors or numbers."""
    return found.code != "CU473" or found.message.startswith("`extra_inputs` fails")


def _with_sizes_asked(found: Diagnostic) -> Diagnostic:
    """What runs at some sizes alone can be read there."""
    if found.code not in ("CU473", "CU474") or not _may_run_elsewhere(found):
        return found
    asked = "if it runs at some sizes only, give them: `--shape B,Hq,Hk,Lq,Lk,D`, or `shape=`"
    return replace(found, help=asked if found.help is None else f"{found.help}; {asked}")


def _in_some_way(reference: Reference, shape: Shape, dtype: torch.dtype) -> Traced:
    """Errors: the first, where all ways fail."""
    extra = call_extra_inputs(reference, shape)
    check_arguments(reference, extra)
    names = frozenset(n for n, v in extra.items() if not isinstance(v, Tensor))
    first: CuError | None = None
    for kind, fixed in _ways(dtype, names):
        try:
            traced = _at(reference, shape, kind, fixed)
        except Refused:
            raise
        except CuError as error:
            first = first or error
            if kind is not torch.float32 and not names and not _is_about_dtypes(error):
                break
            continue
        return traced if first is None else _remarked(traced, _way(dtype, kind, fixed), "otherwise", first)
    assert first is not None
    raise first


def _ways(dtype: torch.dtype, scalars: frozenset[str]) -> Iterator[tuple[torch.dtype, frozenset[str]]]:
    """In the asked precision, then in float32; with scalar arguments as symbols, then as the numbers they are."""
    for fixed in (frozenset[str](), scalars) if scalars else (frozenset[str](),):
        yield dtype, fixed
        yield torch.float32, fixed


def _way(asked: torch.dtype, kind: torch.dtype, fixed: frozenset[str]) -> str:
    """What differs from the first of the ways."""
    words = [f"in {str(kind).removeprefix('torch.')}"] if kind is not asked else []
    if fixed:
        words.append(f"with the number given for {' and '.join(f'`{name}`' for name in sorted(fixed))}")
    return " and ".join(words)


def _remarked(traced: Traced, how: str, otherwise: str, first: CuError) -> Traced:
    """Says why the reference was not read at distinct sizes in the asked precision."""
    why = first.diagnostics[0]
    remark = Remark(f"read {how}, because {otherwise} {why.message}", why.span)
    return replace(traced, spec=replace(traced.spec, specialised=(*traced.spec.specialised, remark)))


def _is_about_dtypes(error: CuError) -> bool:
    """A reference that mixes float32 captures with half-precision inputs runs in float32 alone."""
    return any(word in error.diagnostics[0].message for word in ("dtype", "scalar type"))


def _at(reference: Reference, shape: Shape, dtype: torch.dtype, fixed: frozenset[str]) -> Traced:
    """`fixed`: scalar arguments that enter as the numbers they are. What is read wrongly for any number of heads is read for those
    of `shape`."""
    try:
        return _recorded_at(reference, shape, dtype, fixed)
    except CuError as error:
        if not error.diagnostics[0].message.startswith(READ_WRONGLY):
            raise
        with suppress(CuError):
            return _recorded_at(reference, shape, dtype, fixed | {"G", "Hk"})
        raise


def _recorded_at(reference: Reference, shape: Shape, dtype: torch.dtype, fixed: frozenset[str]) -> Traced:
    with new_arena() as arena, _deep_recursion():
        try:
            recording = record(reference, shape, dtype, fixed)
            heads = recording.fixed_heads()
            if heads:
                recording = record(reference, shape, dtype, fixed | heads)
            recording = without_live_arrays(recording, partial(record, reference, shape, dtype, fixed | heads))
            assembled = assemble(reference, recording, arena)
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
