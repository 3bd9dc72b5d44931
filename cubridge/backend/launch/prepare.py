"""From the first call of a form to a prepared call: its kinds are checked, and each captured tensor gets a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from cubridge.backend.launch.arguments import bind_sizes, check_memory
from cubridge.backend.launch.extras import check_value
from cubridge.backend.launch.kinds import check_kind
from cubridge.backend.launch.prepared import Handed, Mixed, PreparedCall, Tables, ValueChecks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from cubridge.backend.launch.captured import CaptureSource, CaptureValue
    from cubridge.backend.launch.extras import ExtraArgument
    from cubridge.backend.launch.prepared import Inputs, Values
    from cubridge.backend.launch.runtime import Launcher


Captured = Callable[["Inputs", "Values"], "Sequence[Tensor]"]
"""From q, k, v and the values of a call to captured tensors."""


@dataclass(frozen=True, slots=True)
class Preparer:
    """Of calls: `given` are the extra arguments that are not fixed, and then what the reference keeps."""

    captures: CaptureSource
    arguments: tuple[ExtraArgument, ...]
    launcher: Launcher

    def prepare(self, inputs: Inputs, given: Values, outputs: tuple[str, ...]) -> PreparedCall:
        """`outputs`: what the call gives, by the contract's names. Errors: CU824 for another kind of argument, CU490, and those of
        a launch."""
        self.check_kinds(inputs, given)
        checks = self._checks(inputs, given, self._names())
        if checks is not None:
            checks(inputs, given)
        values, captured = self.read(inputs, given, self.launcher.arrays)
        plan = self.launcher.plan(_named(inputs), values, outputs)
        made_outputs = [o.name for o in plan.made]
        order = tuple(made_outputs.index(name) for name in outputs)
        return PreparedCall(plan, captured, checks, order)

    def read(
        self, inputs: Inputs, given: Values, arrays: tuple[str, ...]
    ) -> tuple[Mapping[str, CaptureValue], Captured]:
        """The captures of a call of this form, and where calls get the tensors from that are named in `arrays`."""
        names = self._names()
        by_name = dict(zip(names, given, strict=True))
        handed = {name: by_name[source] for name, source in self.captures.handed.items()}
        made = self.captures.compute((*self.captures.computed, *self.captures.of_sizes), _named(inputs), by_name)
        return cast("dict[str, CaptureValue]", {**handed, **made}), self._captured(inputs, names, arrays)

    def _names(self) -> tuple[str, ...]:
        return (*(a.name for a in self.arguments if not a.fixed), *self.captures.state())

    def check_kinds(self, inputs: Inputs, given: Values) -> None:
        """Errors: CU821, CU824; an OtherKindError for an argument of another kind."""
        self._check_kinds(_named(inputs), dict(zip(self._names(), given, strict=True)))

    def _check_kinds(self, inputs: Mapping[str, Tensor], given: Mapping[str, object]) -> None:
        sizes = bind_sizes(self.launcher.text.contract, inputs)
        check_memory(given, self.launcher.device.torch_device)
        for argument in self.arguments:
            if not argument.fixed:
                check_value(argument.name, given[argument.name])
            if argument.kind is not None:
                check_kind(argument.name, argument.kind, given[argument.name], sizes)

    def _checks(self, inputs: Inputs, given: Values, names: Sequence[str]) -> ValueChecks | None:
        """None where the reading of the reference takes nothing for granted."""
        captures = self.captures

        def make(inputs: Inputs, values: Values):
            return captures.requirements(_named(inputs), dict(zip(names, values, strict=True)))

        reads_inputs = bool(captures.computed)
        return ValueChecks(inputs[0].device, make, reads_inputs) if make(inputs, given) else None

    def _captured(self, inputs: Inputs, names: Sequence[str], arrays: tuple[str, ...]) -> Captured:
        handed = self.captures.handed
        positions = {name: names.index(source) for name, source in handed.items()}
        if all(name in positions for name in arrays):
            return Handed(tuple(positions[name] for name in arrays))
        captures = self.captures

        computed = tuple(n for n in captures.computed if n in arrays)
        of_sizes = (*(n for n in captures.of_sizes if n in arrays), *(captures.tables if computed else ()))

        def compute(
            wanted: tuple[str, ...], inputs: Inputs, values: Values, made: Mapping[str, Tensor]
        ) -> Mapping[str, Tensor]:
            found = captures.compute(wanted, _named(inputs), dict(zip(names, values, strict=True)), made)
            return cast("Mapping[str, Tensor]", found)

        tables = Tables(inputs[0].device, lambda inputs, values: compute(of_sizes, inputs, values, {}))
        sources = tuple(positions.get(name, name) for name in arrays)
        return Mixed(sources, partial(compute, computed), tables)


def _named(inputs: Inputs) -> dict[str, Tensor]:
    return dict(zip("qkv", inputs, strict=True))
