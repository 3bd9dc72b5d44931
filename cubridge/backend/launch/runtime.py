"""Launches a kernel from its contract alone: sizes, layouts, host formulas, captured values, outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

import torch

from cubridge.backend.launch.arguments import bind_sizes, check_device, check_preconditions, check_types, outputs_of
from cubridge.backend.launch.call_plan import MAX_INT, CallForm, CallPlan, call_form, make_plan
from cubridge.backend.launch.captured import captured_tensor, scalar_captures
from cubridge.backend.launch.device import Device, KernelText, LoadedKernel
from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    ElementType,
    HostValue,
    MapOfTensor,
    ParamField,
    TensorAddress,
    TensorArgument,
    TensorStride,
)  # fmt: skip
from cubridge.ir.diagnostics import CuError, Diagnostic, InternalError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.spec import Precondition
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.arguments import Scalar
    from cubridge.backend.launch.captured import CaptureValue


OUTPUT = "o"
LSE = "lse"
"""Names that a contract gives the output and its log-sum-exp; inputs are `q`, `k`, `v`."""
_MAX_PLANS = 1024
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
        self._plans: dict[CallForm, CallPlan | None] = {}
        self._align = max((t.align_bytes for t in text.contract.tensors), default=1)

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
        sizes = bind_sizes(self.text.contract, inputs)
        half = next(iter(inputs.values()))
        outputs = {
            argument.name: new_output(argument, sizes, half)
            for argument in outputs_of(self.text.contract)
            if argument.name in wanted or not argument.optional
        }
        self.run_into(inputs, captures, outputs)
        return {name: outputs[name] for name in wanted}

    def run_into(
        self, inputs: Mapping[str, Tensor], captures: Mapping[str, CaptureValue], outputs: Mapping[str, Tensor]
    ) -> None:
        """Write the outputs given; an optional one that is absent is not computed. Errors: CU826 for an output that the
        kernel cannot write where it lies; as `__call__`."""
        scalars = scalar_captures(captures)
        form = call_form({**inputs, **outputs}, scalars, self._align)
        if form not in self._plans:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[form] = self._plan(inputs, outputs, scalars)
        plan = self._plans[form]
        if plan is None:
            _fill_empty(outputs)
            return
        tensors = {**inputs, **outputs}
        for name, reason in plan.copies.items():
            self.say(f"`{name}` is copied before every launch: {reason}")
            tensors[name] = tensors[name].clone(memory_format=torch.contiguous_format)
        keep = list(tensors.values())
        values = {f.name: self._value(f, tensors, captures, plan, keep) for _, f in plan.dynamic}
        plan.kernel.launch(plan.launch(values), keep)

    def _plan(
        self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], scalars: Mapping[str, Scalar]
    ) -> CallPlan | None:
        """How to launch calls of this form; None where there is nothing to launch."""
        contract = self.text.contract
        sizes = bind_sizes(contract, inputs)
        dtype = check_types(contract, inputs)
        check_device({**inputs, **outputs}, self.device.torch_device)
        check_preconditions(self.preconditions, {**scalars, **sizes})
        if 0 in sizes.values():
            return None
        if any(n > MAX_INT for n in sizes.values()):
            raise CuError(Diagnostic("CU826", f"sizes past 2^31 - 1: {sizes}"))
        kernel = self._kernel(dtype, sizes["D"])
        names = {**scalars, **self.device.constants, **dict(kernel.instantiation.macros), **sizes}
        return make_plan(contract, kernel, names, inputs, outputs)

    def prepare(self, dtype: DType, head_dim: int) -> LoadedKernel:
        """Compile and load a form before its first call."""
        return self._kernel(dtype, head_dim)

    def _kernel(self, dtype: DType, head_dim: int) -> LoadedKernel:
        form = (dtype, head_dim)
        if form not in self._kernels:
            if self._kernels:
                self.say(f"{self.text.source.name}: compiled again for {dtype} and head dim {head_dim}")
            self._kernels[form] = self.device.load(self.text, dtype, head_dim)
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

    def _value(
        self,
        field: ParamField,
        tensors: Mapping[str, Tensor],
        captures: Mapping[str, CaptureValue],
        plan: CallPlan,
        keep: list[Tensor],
    ) -> int | bytes:
        """The address or tensor map of a field; tensors that are made for it go into `keep`."""
        match field.value:
            case TensorAddress(name):
                return tensors[name].data_ptr()
            case MapOfTensor(name):
                return self.device.tensor_map(plan.maps[name].request(tensors))
            case CapturedAddress():
                array = captured_tensor(field, captures, plan.names, self.device.torch_device)
                keep.append(array)
                return array.data_ptr()
            case CounterAddress(count):
                if self.text.contract.equal_work:
                    return 0
                counters = self.device.counters(count)
                keep.append(counters)
                return counters.data_ptr()
            case TensorStride() | HostValue():
                raise InternalError(f"`p.{field.name}` does not differ from call to call")
            case _:
                assert_never(field.value)


def new_output(argument: TensorArgument, sizes: Mapping[str, int], half: Tensor) -> Tensor:
    """An output without values, on the device of `half` and for half outputs of its type."""
    shape = [evaluate_number(e, sizes) for e in argument.shape]
    dtype = half.dtype if argument.element is ElementType.HALF else torch.float32
    return half.new_empty(shape, dtype=dtype)  # pyright: ignore[reportCallIssue, reportArgumentType]


def _fill_empty(outputs: Mapping[str, Tensor]) -> None:
    """No query, or no key: every row is one that sees no key."""
    for name, output in outputs.items():
        output.fill_(-torch.inf if name == LSE else 0.0)
