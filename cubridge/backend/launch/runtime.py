"""Launches a kernel from its contract alone: sizes, layouts, host formulas, captured values, outputs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cubridge.backend.launch.arguments import bind_sizes, check_device, check_memory, check_preconditions, check_types
from cubridge.backend.launch.call_plan import (
    MAX_INT,
    EmptyPlan,
    OutputForm,
    Plan,
    call_form,
    make_plan,
    output_forms,
)
from cubridge.backend.launch.captured import numbers_read
from cubridge.backend.launch.capturing import refuse_capturing
from cubridge.backend.launch.device import Device, KernelText, LoadedKernel
from cubridge.backend.launch.tile_plan import load_makers, plan_lists
from cubridge.ir.contract import CapturedAddress
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.spec import Precondition
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.captured import CaptureValue


OUTPUT = "o"
LSE = "lse"
"""Names that a contract gives the output and its log-sum-exp; inputs are `q`, `k`, `v`."""
MAX_PLANS = 1024
_log = logging.getLogger("cubridge")


def say_once() -> Callable[[str], None]:
    """A logger that says each thing once."""
    said: set[str] = set()

    def say(message: str) -> None:
        if message not in said:
            said.add(message)
            _log.warning(message)

    return say


Checked = Callable[["Launcher", LoadedKernel, int], None]
"""Judges a form, the kernel of a head dim, before its first result is handed out. Raises CuError to refuse it."""


class Launcher:
    """One kernel text on one device, for every size, stride and listed element type.

    `say` is told what a user might not expect: copies, and forms that are compiled only now. `checked` sees each form
    before its first result is handed out; a form that it refuses by raising stays refused."""

    def __init__(
        self,
        device: Device,
        text: KernelText,
        preconditions: Sequence[Precondition] = (),
        say: Callable[[str], None] | None = None,
        checked: Checked | None = None,
    ) -> None:
        self.device = device
        self.text = text
        self.preconditions = tuple(preconditions)
        self.say = say_once() if say is None else say
        self._checked = checked
        self._kernels: dict[tuple[DType, int], LoadedKernel] = {}
        self._makers: dict[tuple[DType, int], dict[str, LoadedKernel]] = {}
        self._plans: dict[tuple[object, ...], Plan] = {}
        self.align = max((t.align_bytes for t in text.contract.tensors), default=1)
        self.arrays = tuple(f.value.name for f in text.contract.captured if isinstance(f.value, CapturedAddress))

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, captures: Mapping[str, CaptureValue] | None = None, *, lse: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attention of q [B, Hq, Lq, D] over k, v [B, Hk, Lk, D]; with `lse` also the log-sum-exp [B, Hq, Lq], fp32.
        Errors: CU809, CU821 to CU826."""
        outputs = self.run({"q": q, "k": k, "v": v}, captures or {}, (OUTPUT, LSE) if lse else (OUTPUT,))
        return (outputs[OUTPUT], outputs[LSE]) if lse else outputs[OUTPUT]

    def run(
        self, inputs: Mapping[str, Tensor], captures: Mapping[str, CaptureValue], wanted: Sequence[str]
    ) -> dict[str, Tensor]:
        """The outputs of the contract named in `wanted`, new tensors. Inputs by the contract's names."""
        captures = numbers_read(captures)
        form = (tuple(wanted), call_form((*inputs.values(), *captures.values()), self.align), tuple(captures))
        plan = self._planned(form, lambda: self.plan(inputs, captures, wanted))
        outputs = plan.new_outputs(next(iter(inputs.values())))
        self._launch(plan, inputs, captures, outputs)
        made = {o.name: output for o, output in zip(plan.made, outputs, strict=True)}
        return {name: made[name] for name in wanted}

    def run_into(
        self, inputs: Mapping[str, Tensor], captures: Mapping[str, CaptureValue], outputs: Mapping[str, Tensor]
    ) -> None:
        """Write the outputs given; an optional one that is absent is not computed. Errors: CU826 for an output that the
        kernel cannot write where it lies; as `__call__`."""
        captures = numbers_read(captures)
        values = (*inputs.values(), *outputs.values(), *captures.values())
        form = (tuple(outputs), call_form(values, self.align), tuple(captures), "into")
        plan = self._planned(form, lambda: self.plan_into(inputs, captures, outputs))
        self._launch(plan, inputs, captures, tuple(outputs.values()))

    def plan(self, inputs: Mapping[str, Tensor], captures: Mapping[str, CaptureValue], wanted: Sequence[str]) -> Plan:
        """How to launch calls of the form of this one; the plan makes the outputs of `wanted`. Errors: as `__call__`."""
        half = next(iter(inputs.values()))
        made = output_forms(self.text.contract, wanted, bind_sizes(self.text.contract, inputs), half.dtype)
        outputs = {o.name: half.new_empty(o.shape, dtype=o.dtype) for o in made}
        return self._plan(inputs, captures, outputs, made)

    def plan_into(
        self, inputs: Mapping[str, Tensor], captures: Mapping[str, CaptureValue], outputs: Mapping[str, Tensor]
    ) -> Plan:
        """The same for outputs that each call gives. Errors: as `run_into`."""
        return self._plan(inputs, captures, outputs, ())

    def _plan(
        self,
        inputs: Mapping[str, Tensor],
        captures: Mapping[str, CaptureValue],
        outputs: Mapping[str, Tensor],
        made: tuple[OutputForm, ...],
    ) -> Plan:
        contract = self.text.contract
        sizes = bind_sizes(contract, inputs)
        dtype = check_types(contract, inputs)
        check_device({**inputs, **outputs}, self.device.torch_device)
        check_memory({**inputs, **outputs, **captures}, self.device.torch_device)
        scalars = {name: value for name, value in captures.items() if isinstance(value, (bool, int, float))}
        check_preconditions(self.preconditions, {**scalars, **sizes})
        if any(n > MAX_INT for n in sizes.values()):
            raise CuError(Diagnostic("CU826", f"sizes past 2^31 - 1: {sizes}"))
        if 0 in sizes.values():
            return EmptyPlan(made, tuple(-math.inf if name == LSE else 0.0 for name in outputs))
        kernel = self._kernel(dtype, sizes["D"])
        names = {**scalars, **self.device.constants, **dict(kernel.instantiation.macros), **sizes}
        makers = self._makers.get((dtype, sizes["D"]), {})
        lists = tuple(plan_lists(f, contract, self.device, names, makers.get(f.name)) for f in contract.tile_lists)
        plan = make_plan(self.device, contract, kernel, names, (inputs, outputs, captures), made, lists)
        for _, name, reason in plan.copies:
            self.say(f"`{name}` is copied before every launch: {reason}")
        return plan

    def _planned(self, form: tuple[object, ...], make: Callable[[], Plan]) -> Plan:
        if form not in self._plans:
            plan = make()
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[form] = plan
        return self._plans[form]

    def _launch(
        self,
        plan: Plan,
        inputs: Mapping[str, Tensor],
        captures: Mapping[str, CaptureValue],
        outputs: Sequence[Tensor],
    ) -> None:
        arrays = [captures[name] for name in self.arrays]
        plan.launch(tuple(inputs.values()), outputs, arrays)  # pyright: ignore[reportArgumentType]

    def prepare(self, dtype: DType, head_dim: int) -> LoadedKernel:
        """Compile and load a form before its first call."""
        return self._kernel(dtype, head_dim)

    def _kernel(self, dtype: DType, head_dim: int) -> LoadedKernel:
        form = (dtype, head_dim)
        if form not in self._kernels:
            refuse_capturing(
                self.device.torch_device, f"{self.text.source.name} is compiled for {dtype}, head dim {head_dim}"
            )
            loaded = self.device.load(self.text, dtype, head_dim)
            if self._kernels:
                self.say(f"{self.text.source.name}: compiled again for {dtype} and head dim {head_dim}")
            if self.device.makes_lists:
                self._makers[form] = load_makers(self.device, self.text, loaded.instantiation, head_dim)
            self._kernels[form] = loaded
            self._check(form)
        return self._kernels[form]

    def _check(self, form: tuple[DType, int]) -> None:
        if self._checked is None:
            return
        try:
            self._checked(self, self._kernels[form], form[1])
        except CuError:
            del self._kernels[form]
            self._plans.clear()
            raise
