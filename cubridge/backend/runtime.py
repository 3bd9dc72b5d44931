"""Launches a kernel from its contract alone: sizes, layouts, host formulas, captured values, outputs."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import torch

from cubridge.backend.arguments import (
    bind_sizes,
    check_device,
    check_preconditions,
    check_types,
    inputs_of,
    lay_out,
    misfit,
    outputs_of,
)  # fmt: skip
from cubridge.backend.captured import captured_tensor, scalar_captures
from cubridge.backend.device import Device, KernelText, Launch, LoadedKernel, TensorMapRequest
from cubridge.backend.params import pack
from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    ElementType,
    HostValue,
    MapOfTensor,
    ParamField,
    TensorAddress,
    TensorArgument,
    TensorMapSpec,
    TensorStride,
)  # fmt: skip
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.spec import Precondition
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.arguments import Scalar
    from cubridge.backend.captured import CaptureValue

    FieldBits = int | float | bytes
    Names = dict[str, Scalar]

OUTPUT = "o"
LSE = "lse"
"""Names that a contract gives the output and its log-sum-exp; inputs are `q`, `k`, `v`."""
_MAX_INT = 2**31 - 1
_log = logging.getLogger("cubridge")


def say_once() -> Callable[[str], None]:
    """A logger that says each thing once."""
    said: set[str] = set()

    def say(message: str) -> None:
        if message not in said:
            said.add(message)
            _log.warning(message)

    return say


@dataclass(frozen=True, slots=True)
class _Source:
    """What a captured array was made from: the tensor and its version then."""

    tensor: weakref.ref[Tensor]
    version: int
    sizes: tuple[int, ...]


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
        checked: Callable[[Launcher, LoadedKernel], None] | None = None,
    ) -> None:
        self.device = device
        self.text = text
        self.preconditions = tuple(preconditions)
        self.say = say_once() if say is None else say
        self._checked = checked
        self._kernels: dict[tuple[DType, int], LoadedKernel] = {}
        self._captured: dict[str, tuple[_Source, Tensor]] = {}

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
        contract = self.text.contract
        sizes = bind_sizes(contract, inputs)
        dtype = check_types(contract, inputs)
        check_device(inputs, self.device.torch_device)
        scalars = scalar_captures(captures)
        check_preconditions(self.preconditions, {**scalars, **sizes})
        for name, output in outputs.items():
            if reason := misfit(output, contract.tensor(name), mapped=False):
                raise CuError(Diagnostic("CU826", f"the output `{name}` cannot be written in place: {reason}"))
        if 0 in sizes.values():
            _fill_empty(outputs)
            return
        if any(n > _MAX_INT for n in sizes.values()):
            raise CuError(Diagnostic("CU826", f"sizes past 2^31 - 1: {sizes}"))
        kernel = self._kernel(dtype, sizes["D"])
        names: Names = {**scalars, **self.device.constants, **dict(kernel.instantiation.macros), **sizes}
        tensors = {**self._laid_out(inputs), **outputs}
        keep = list(tensors.values())
        values = {f.name: self._value(f, tensors, captures, names, keep) for f in contract.params}
        grid = int(evaluate_number(contract.grid, names))
        if not 0 < grid <= _MAX_INT:
            raise CuError(Diagnostic("CU826", f"{grid} blocks; a launch takes 1 to 2^31 - 1", contract.grid.span))
        block = int(evaluate_number(contract.block, names))
        kernel.launch(Launch(grid, block, kernel.shared_bytes, pack(contract, values)), keep)

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
            self._checked(self, self._kernels[form])
        except CuError:
            del self._kernels[form]
            raise

    def _laid_out(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        mapped = {m.tensor for m in self.text.contract.tensor_maps}
        tensors: dict[str, Tensor] = {}
        for argument in inputs_of(self.text.contract):
            laid = lay_out(inputs[argument.name], argument, argument.name in mapped)
            if laid.copied:
                self.say(f"`{argument.name}` is copied before every launch: {laid.copied}")
            tensors[argument.name] = laid.tensor
        return tensors

    def _value(
        self,
        field: ParamField,
        tensors: Mapping[str, Tensor],
        captures: Mapping[str, CaptureValue],
        names: Names,
        keep: list[Tensor],
    ) -> FieldBits:
        """What the host puts into one field of `Params`; tensors that it makes for that go into `keep`."""
        match field.value:
            case TensorAddress(name):
                return tensors[name].data_ptr() if name in tensors else 0
            case TensorStride(name, axis):
                return tensors[name].stride(axis) if name in tensors else 0
            case MapOfTensor(name):
                spec = self.text.contract.tensor_map(name)
                return self.device.tensor_map(map_request(spec, tensors[spec.tensor], names))
            case HostValue(expr):
                value = evaluate_number(expr, names)
                assert isinstance(value, (bool, int, float))
                return value
            case CapturedAddress():
                array = self._captured_array(field, captures, names)
                keep.append(array)
                return array.data_ptr()
            case CounterAddress(count):
                if self.text.contract.equal_work:
                    return 0
                counters = self.device.counters(count)
                keep.append(counters)
                return counters.data_ptr()
            case _:
                assert_never(field.value)

    def _captured_array(self, field: ParamField, captures: Mapping[str, CaptureValue], names: Names) -> Tensor:
        """As `captured_tensor`; the same tensor, unchanged since, is converted once."""
        assert isinstance(field.value, CapturedAddress)
        given = captures.get(field.value.name)
        if not isinstance(given, torch.Tensor) or given.is_inference():
            return captured_tensor(field, captures, names, self.device.torch_device)
        sizes = tuple(int(evaluate_number(e, names)) for e in field.value.extents)
        if field.name in self._captured:
            source, array = self._captured[field.name]
            if source.tensor() is given and source.version == given._version and source.sizes == sizes:
                return array
        array = captured_tensor(field, captures, names, self.device.torch_device)
        self._captured[field.name] = (_Source(weakref.ref(given), given._version, sizes), array)
        return array


def map_request(spec: TensorMapSpec, tensor: Tensor, names: Names) -> TensorMapRequest:
    """The TMA descriptor of a tensor that `lay_out` has passed. An axis of one element gets a stride that is legal."""
    sizes, strides = list(tensor.shape), list(tensor.stride())
    width = tensor.element_size()
    for axis in range(len(sizes) - 2, -1, -1):
        if sizes[axis] == 1:
            strides[axis] = sizes[axis + 1] * strides[axis + 1]
    return TensorMapRequest(
        tensor,
        tuple(reversed(sizes)),
        tuple(s * width for s in reversed(strides[:-1])),
        tuple(int(evaluate_number(b, names)) for b in spec.box),
        spec.swizzle_bytes,
    )


def new_output(argument: TensorArgument, sizes: Mapping[str, int], half: Tensor) -> Tensor:
    """An output without values, on the device of `half` and for half outputs of its type."""
    shape = [evaluate_number(e, sizes) for e in argument.shape]
    dtype = half.dtype if argument.element is ElementType.HALF else torch.float32
    return half.new_empty(shape, dtype=dtype)  # pyright: ignore[reportCallIssue, reportArgumentType]


def _fill_empty(outputs: Mapping[str, Tensor]) -> None:
    """No query, or no key: every row is one that sees no key."""
    for name, output in outputs.items():
        output.fill_(-torch.inf if name == LSE else 0.0)
