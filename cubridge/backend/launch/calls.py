"""Calls of an operator by their forms: the first of a form is prepared, the others fill in addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cubridge.backend.launch.arguments import bind_sizes
from cubridge.backend.launch.call_plan import call_form
from cubridge.backend.launch.extras import without_data
from cubridge.backend.launch.kinds import OtherKindError
from cubridge.backend.launch.operator_plan import OperatorPlan
from cubridge.backend.launch.prepare import Preparer
from cubridge.backend.launch.runtime import MAX_PLANS, Launcher
from cubridge.ir.diagnostics import Diagnostic, Refused

if TYPE_CHECKING:
    from cubridge.backend.launch.prepared import Inputs, Values

Run = Callable[["Inputs", "Values"], list[Tensor]]
Otherwise = Callable[["Inputs", "Values", OtherKindError], Run]
"""What runs calls like one whose arguments are of another kind than the adaptation saw. Raises the error where nothing does."""


def nothing(inputs: Inputs, sizes: Mapping[str, int]) -> None:
    del inputs, sizes


class Calls:
    """`outputs`: what a call gives, by the contract's names. `ready` is called before the first call of a form."""

    def __init__(
        self,
        plan: OperatorPlan,
        outputs: Sequence[str],
        launcher_of: Callable[[torch.device], Launcher],
        otherwise: Otherwise,
        ready: Callable[[Inputs, Mapping[str, int]], None] = nothing,
    ) -> None:
        self._plan = plan
        self._outputs = tuple(outputs)
        self._launcher_of = launcher_of
        self._otherwise = otherwise
        self._ready = ready
        self._align = max((t.align_bytes for t in plan.text.contract.tensors), default=1)
        self._prepared: dict[tuple[object, ...], Run] = {}

    def __call__(self, inputs: Inputs, given: Values) -> list[Tensor]:
        """`given`: the extra arguments without the fixed ones, and what the reference keeps."""
        try:
            form = call_form((*inputs, *given), self._align)
        except RuntimeError as error:
            raise without_data((*inputs, *given)) from error
        prepared = self._prepared.get(form)
        if prepared is None:
            prepared = self._prepare(inputs, given)
            if len(self._prepared) >= MAX_PLANS:
                self._prepared.clear()
            self._prepared[form] = prepared
        return prepared(inputs, given)

    def _prepare(self, inputs: Inputs, given: Values) -> Run:
        plan = self._plan
        launcher = self._launcher_of(inputs[0].device)
        sizes = bind_sizes(plan.text.contract, dict(zip("qkv", inputs, strict=True)))
        if plan.needs_keys and not sizes["Lk"]:
            message = "there are no keys, and the reference gives another LSE than -inf then"
            raise Refused(Diagnostic("CU826", message, help="no kernel is launched without keys; leave the call out"))
        try:
            prepared = Preparer(plan.captures, plan.arguments, launcher).prepare(inputs, given, self._outputs)
        except OtherKindError as error:
            return self._otherwise(inputs, given, error)
        self._ready(inputs, sizes)
        return prepared
