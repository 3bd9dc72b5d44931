"""Another specialisation of a reference, made at a call whose arguments are of another kind than those it was adapted with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cubridge.backend.launch.arguments import check_preconditions
from cubridge.backend.launch.kinds import Kind
from cubridge.driver.examples import Example, key_of, kind_of
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.reference import reread
from cubridge.driver.report import RULES
from cubridge.driver.transfer import transfer_before_checks
from cubridge.engine.plainly import plainly
from cubridge.ir.diagnostics import CuError, Note
from cubridge.ir.fitting import fitting_shapes
from cubridge.judge.long_lengths import check_long_lengths

if TYPE_CHECKING:
    from cubridge.backend.launch.extras import ExtraArgument
    from cubridge.backend.launch.operator import AttentionOperator
    from cubridge.driver.adapted import Adapted
    from cubridge.ir.spec import Shape

_MOST: Final = 32
"""Specialisations that an operator makes."""


@dataclass(frozen=True, slots=True)
class Specialiser:
    """`build` makes an operator of an adaptation. `made`: operators by the kinds of their arguments, or why there is none."""

    adapted: Adapted
    arguments: tuple[ExtraArgument, ...]
    build: Callable[[Adapted], AttentionOperator]
    made: dict[object, AttentionOperator | CuError] = field(default_factory=dict[object, "AttentionOperator | CuError"])

    def __call__(self, values: Mapping[str, object], sizes: Mapping[str, int], error: CuError) -> AttentionOperator:
        """The operator for calls with arguments like these. Errors: `error`, with the reason why there is no other kernel."""
        if (self.adapted.proposer, self.adapted.lowered_by) != (RULES, RULES):
            raise error
        kinds = {a.name: kind_of(values[a.name], a.kind, sizes) for a in self.arguments if a.kind is not None}
        key = tuple((name, key_of(kind)) for name, kind in kinds.items())
        if key not in self.made:
            if len(self.made) >= _MOST:
                raise error
            with ThreadPoolExecutor(
                1
            ) as outside:  # of an operator, inside of which torch has no autograd for the bounds
                self.made[key] = outside.submit(self._make, values, kinds, error).result()
        found = self.made[key]
        if isinstance(found, CuError):
            raise found
        numbers = {name: value for name, value in values.items() if isinstance(value, (bool, int, float))}
        try:
            check_preconditions(found.plan.preconditions, {**numbers, **sizes})
        except CuError as reason:
            raise _explained(error, reason) from reason
        return found

    def _make(
        self, values: Mapping[str, object], kinds: Mapping[str, Kind], error: CuError
    ) -> AttentionOperator | CuError:
        changed = {a.name for a in self.arguments if a.kind is not None and kinds[a.name] != a.kind}
        extra = self.adapted.reference.traced.reference.extra_inputs
        examples = {name: Example(values[name], kinds[name]) for name in changed}

        def extra_inputs(shape: Shape, device: str) -> dict[str, object]:
            given = {} if extra is None else dict(extra(shape, device))
            return given | {name: example.at(shape) for name, example in examples.items()}

        try:
            with plainly():
                return self.build(adapted_again(self.adapted, extra_inputs))
        except CuError as reason:
            return _explained(error, reason)


def _explained(error: CuError, reason: CuError) -> CuError:
    """The error of the call, with the reason why another specialisation does not answer it."""
    first, why = error.diagnostics[0], reason.diagnostics[0]
    note = Note(f"adapted to this call it is refused: {why.message}", why.span)
    return CuError(replace(first, notes=(*first.notes, note)))


def adapted_again(adapted: Adapted, extra_inputs: Callable[[Shape, str], dict[str, object]]) -> Adapted:
    """The same reference and kernel for other examples of the extra arguments. Errors: as those of an adaptation."""
    reference = reread(adapted.reference, extra_inputs, adapted.dtype)
    spec = reference.attention.spec
    transferred = transfer_before_checks(adapted.lifted.kernel, spec, None)
    patched = lower_kernel(adapted.kernel, adapted.lifted, transferred.kernel, adapted.dtype, adapted.shape.D)
    check_long_lengths(transferred.kernel, spec)
    return replace(
        adapted,
        reference=reference,
        target=transferred.kernel,
        pipeline=transferred.pipeline,
        patched=patched,
        text=adapted.kernel.with_text(patched_source(patched)),
        shape=next(iter(fitting_shapes(spec, [adapted.shape])), reference.traced.shape),
        remarks=tuple(transferred.remarks),
    )
