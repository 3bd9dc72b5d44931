"""A reference as read: its spec, and its recorded calls as a function of other inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from cubridge.frontend.reference.algebra.terms import Arena, new_arena
from cubridge.frontend.reference.assemble import Assembled
from cubridge.frontend.reference.captures import CaptureValues, Input
from cubridge.frontend.reference.evaluate import CPU, evaluate_number
from cubridge.frontend.reference.extents import call_extra_inputs
from cubridge.frontend.reference.fixed import PLAIN, Fixed
from cubridge.frontend.reference.flex import flex_by_math
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.oracle import Oracle, OracleValues, sizes_of
from cubridge.frontend.reference.places import error_span
from cubridge.frontend.reference.printing import ExprWriter
from cubridge.frontend.reference.quiet import off_stdout, uncompiled
from cubridge.frontend.reference.record import Recording, first_line
from cubridge.frontend.reference.refusal import fail, refuse
from cubridge.frontend.reference.requirements import requirements
from cubridge.frontend.reference.sizes import follows_sizes
from cubridge.frontend.reference.state import StateTensor
from cubridge.frontend.reference.unchanged import unchanged
from cubridge.frontend.reference.visibility import empty_rows, rows_without_lse
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Expr
from cubridge.ir.requirement import Requirement
from cubridge.ir.source import NOWHERE
from cubridge.ir.spec import AttentionSpec, Shape


def says(spec: AttentionSpec) -> AttentionSpec:
    """What a spec computes, without the remarks on how it was read."""
    return replace(spec, specialised=(), assumptions=(), warnings=())


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _same_values(one: Sequence[tuple[str, object]], other: Sequence[tuple[str, object]]) -> bool:
    """Numbers by their values, objects by what they are."""
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(
        p == q and (x is y or (isinstance(x, PLAIN) and type(x) is type(y) and x == y)) for (p, x), (q, y) in pairs
    )


@dataclass(frozen=True)
class Traced:
    """A reference as read. `shape` is the one it was recorded at, `dtype` that of q, k and v there. `again`: reads it as it is
    now; `accepted`: values that it keeps which change nothing."""

    reference: Reference
    spec: AttentionSpec
    shape: Shape
    dtype: torch.dtype
    assembled: Assembled
    arena: Arena
    again: Callable[[], Traced] | None = None
    accepted: list[list[tuple[str, object]]] = field(
        default_factory=list[list[tuple[str, object]]], compare=False, repr=False
    )

    def extra(self, shape: Shape) -> dict[str, Input]:
        """The arguments besides q, k, v at a shape. Errors: CU473."""
        return call_extra_inputs(self.reference, shape)

    @property
    def recording(self) -> Recording:
        return self.assembled.lifter.recording

    @cached_property
    def kept(self) -> tuple[StateTensor, ...]:
        """Where the tensors lie that a call reads besides its arguments: parameters, buffers, variables."""
        recording = self.recording
        return (*(r.state for r in recording.reals if r.state is not None), *(n.source for n in recording.numbers))

    def state(self) -> dict[str, Tensor]:
        """What lies there now, by path. Errors: CU490, also for modules that would run something else and for numbers that
        changed."""
        recording = self.recording
        for module in recording.modules:
            module.check()
        changed = [f for f in recording.kept if not f.holds()]
        if changed:
            self._check_changed(changed)
        return {s.path: s.tensor() for s in self.kept}

    def _check_changed(self, changed: Sequence[Fixed]) -> None:
        """Errors: CU490 where the reference reads otherwise now that values which it keeps are others, and while a CUDA graph is
        captured, since reading moves tensors."""
        now = [(f.path, f.now()) for f in changed]
        if any(_same_values(now, known) for known in self.accepted):
            return
        same = not _is_capturing()
        if same:
            with ThreadPoolExecutor(1) as outside:  # of the modes of PyTorch that the call stands in
                same = outside.submit(copy_context().run, self._reads_the_same).result()
        if not same:
            message = f"{changed[0].change()} when the reference was read"
            refuse("CU490", message, self.reference.span, "adapt the reference again")
        self.accepted.append(now)

    def _reads_the_same(self) -> bool:
        """Is a new reading this one?"""
        assert self.again is not None
        try:
            other = self.again()
        except CuError:
            return False
        return says(other.spec) == says(self.spec) and other.recording.said() == self.recording.said()

    def captures(self, sizes: Mapping[str, int], inputs: Mapping[str, Input], wide: bool = False) -> dict[str, Tensor]:
        """The spec's captures for one launch, on the CPU. `inputs`: extra inputs by name, and q, k, v. Errors: CU490."""
        for requirement in self.requirements(sizes, inputs):
            requirement.check()
        with new_arena(self.arena):
            return self._values(sizes, inputs, CPU).at(wide)

    def computed(
        self,
        names: Container[str],
        sizes: Mapping[str, int],
        inputs: Mapping[str, Input],
        device: torch.device,
        made: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """The captures of `names` for one launch, as the kernel reads them, and the tables of `names` that these are made of;
        nothing waits for `device`. `made`: such tables of an earlier launch at these sizes."""
        with new_arena(self.arena):
            values = replace(self._values(sizes, inputs, device), made=made or {})
            return values.at(names=names) | values.tables(names)

    def tables_of_sizes(self, capture: str) -> frozenset[str]:
        """The tables of sizes alone that a computed capture is made of."""
        with new_arena(self.arena):
            return self.assembled.table.tables_of_sizes(capture)

    def requirements(
        self, sizes: Mapping[str, int], inputs: Mapping[str, Input], device: torch.device | None = None
    ) -> tuple[Requirement, ...]:
        """What the reading of the reference takes for granted of the values of a launch."""
        with new_arena(self.arena):
            values = self._values(sizes, inputs, CPU if device is None else device)
            return tuple(requirements(values, self.assembled.declared))

    def inputs_of(self, capture: str) -> frozenset[str]:
        """Names of the arguments, and paths of what the reference keeps, that a capture is made of."""
        with new_arena(self.arena):
            return self.assembled.table.inputs_of(capture)

    def _values(self, sizes: Mapping[str, int], inputs: Mapping[str, Input], device: torch.device) -> CaptureValues:
        return CaptureValues(self.assembled.lifter, self.assembled.table, sizes, inputs, device)

    def extents(self, argument: str) -> tuple[Expr | None, ...]:
        """Formulas of the extents of a tensor argument; None where one follows no size."""
        with new_arena(self.arena):
            writer = ExprWriter(self.assembled.table.subscript, self.reference.span)
            shape = self.assembled.lifter.shape(self.assembled.lifter.recording.inputs[argument])
            return tuple(writer.expr(extent) if follows_sizes(extent) else None for extent in shape)

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

    def gradients(
        self, q: Tensor, k: Tensor, v: Tensor, extra: Mapping[str, Input], dout: Tensor, dlse: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """PyTorch's gradients of q, k, v through the recorded calls, in fp64."""
        with new_arena(self.arena):
            return Oracle(self.assembled.lifter).gradients(q, k, v, extra, dout, dlse)

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
            function = self.reference.function
            with unchanged(function), torch.no_grad(), off_stdout(), flex_by_math(function), uncompiled():
                out = function(*(t.to(self.dtype, copy=True) for t in (q, k, v)), **extra)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever the user's code raises
            span = error_span(error.__traceback__)
            message = f"the reference fails on numbers: {type(error).__name__}: {first_line(error)}"
            fail("CU474", message, self.reference.span if span is NOWHERE else span)
        found = out[0] if isinstance(out, (tuple, list)) else out
        assert isinstance(found, Tensor)
        return found.to(q.dtype)
