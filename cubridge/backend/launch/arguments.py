"""The tensors of a call: sizes that their shapes give, what is refused, and what must be copied to fit the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cubridge.ir.contract import ElementType, LaunchContract, Role, TensorArgument
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Expr, Name
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Precondition
from cubridge.ir.types import DType
from cubridge.ir.walk import walk

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Scalar = bool | int | float


# ---- sizes -----------------------------------------------------------------------------------------------------------


def bind_sizes(contract: LaunchContract, inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """Sizes B, Hq, Hk, Lq, Lk, D from the shapes of the input tensors.
    Errors: CU821 for a rank or a size that does not fit the others, CU826 for heads that do not group."""
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for argument in inputs_of(contract):
        shape = tuple(inputs[argument.name].shape)
        if len(shape) != len(argument.shape):
            raise _bad_input(f"`{argument.name}` has {len(shape)} axes {list(shape)}, not {formula(argument.shape)}")
        for axis, (extent, given) in enumerate(zip(argument.shape, shape, strict=True)):
            if isinstance(extent, Name) and extent.id not in sizes:
                sizes[extent.id], owner[extent.id] = given, argument.name
            elif (expected := evaluate_number(extent, sizes)) != given:
                whose = f" as in `{owner[extent.id]}`" if isinstance(extent, Name) else ""
                raise _bad_input(
                    f"`{argument.name}` has shape {list(shape)}; axis {axis} should be "
                    f"{print_expr(extent)} = {expected}{whose}, not {given}"
                )
    _check_groups(sizes)
    return sizes


def inputs_of(contract: LaunchContract) -> tuple[TensorArgument, ...]:
    return tuple(t for t in contract.tensors if t.role is Role.INPUT)


def outputs_of(contract: LaunchContract) -> tuple[TensorArgument, ...]:
    return tuple(t for t in contract.tensors if t.role is Role.OUTPUT)


def check_preconditions(preconditions: Sequence[Precondition], names: Mapping[str, Scalar]) -> None:
    """Errors: CU823 with the first precondition that these sizes and scalars break."""
    for precondition in preconditions:
        if not evaluate_number(precondition.condition, names):
            used = {n: names[n] for n in names if n in _names_of(precondition.condition)}
            given = ", ".join(f"{name} = {value}" for name, value in used.items())
            raise CuError(
                Diagnostic(
                    "CU823",
                    f"this kernel holds only where {print_expr(precondition.condition)}; the call has {given}",
                    precondition.span,
                    help=precondition.help,
                )
            )


def _check_groups(sizes: Mapping[str, int]) -> None:
    if "Hq" not in sizes or "Hk" not in sizes:
        return
    query_heads, key_heads = sizes["Hq"], sizes["Hk"]
    if query_heads and (key_heads == 0 or query_heads % key_heads):
        message = f"{query_heads} query heads cannot share {key_heads} key heads evenly"
        raise CuError(
            Diagnostic("CU826", message, help="the number of query heads must be a multiple of the key heads")
        )


def _names_of(expr: Expr) -> set[str]:
    return {node.id for node in walk(expr) if isinstance(node, Name)}


def formula(extents: Sequence[Expr]) -> str:
    return "[" + ", ".join(print_expr(e) for e in extents) + "]"


def _bad_input(message: str) -> CuError:
    return CuError(Diagnostic("CU821", message))


# ---- types and layouts -----------------------------------------------------------------------------------------------


def dtype_of(tensor: Tensor) -> DType | None:
    """The half type of a tensor, None if it is another type."""
    return {"torch.bfloat16": DType.BF16, "torch.float16": DType.F16}.get(str(tensor.dtype))


def check_types(contract: LaunchContract, inputs: Mapping[str, Tensor]) -> DType:
    """The half type that all inputs share but those of fp32. Errors: CU821 for a type that the kernel does not take, or two
    types."""
    listed = tuple(name for name, _ in contract.dtypes)
    single = {t.name for t in inputs_of(contract) if t.element is ElementType.F32}
    for name in single & inputs.keys():
        if str(inputs[name].dtype) != "torch.float32":
            raise _bad_input(f"`{name}` is {inputs[name].dtype}; the kernel reads torch.float32")
    inputs = {name: tensor for name, tensor in inputs.items() if name not in single}
    first = next(iter(inputs))
    for name, tensor in inputs.items():
        if dtype_of(tensor) not in listed:
            raise _bad_input(f"`{name}` is {tensor.dtype}; the kernel is written for {', '.join(listed)}")
        if tensor.dtype != inputs[first].dtype:
            raise _bad_input(f"`{name}` is {tensor.dtype} and `{first}` is {inputs[first].dtype}; they must agree")
    dtype = dtype_of(inputs[first])
    assert dtype is not None
    return dtype


def check_device(inputs: Mapping[str, Tensor], device: torch.device) -> None:
    """Errors: CU821 for a tensor that is elsewhere."""
    for name, tensor in inputs.items():
        if tensor.device != device:
            raise _bad_input(f"`{name}` is on {tensor.device}; the kernel runs on {device}")


def check_memory(tensors: Mapping[str, object], device: torch.device) -> None:
    """Errors: CU821 for a tensor without data, and for one whose memory holds the negatives of its elements, as a part of a
    conjugate does."""
    for name, tensor in tensors.items():
        if getattr(tensor, "is_meta", False) and device.type != "meta":
            raise _bad_input(f"`{name}` is a meta tensor, which holds no values")
        if hasattr(tensor, "is_neg") and tensor.is_neg():  # pyright: ignore
            help_ = f"pass `{name}.resolve_neg()`"
            raise CuError(Diagnostic("CU821", f"`{name}` is negated when it is read", help=help_))


def misfit(tensor: Tensor, argument: TensorArgument, mapped: bool) -> str | None:
    """Why the kernel cannot read (or write) this tensor where it lies; None if it can. Axes of one element have no stride.
    `mapped`: it is read through a TMA descriptor, which takes no stride of 0."""
    if tensor.numel() == 0:
        return None
    if tensor.data_ptr() % argument.align_bytes:
        return f"its address is no multiple of {argument.align_bytes} bytes"
    if argument.contiguous:
        return None if tensor.is_contiguous() else "it is not contiguous"
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        return f"its last axis has stride {tensor.stride(-1)}"
    outer = [s for n, s in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True) if n > 1]
    bad = next((s for s in outer if s * tensor.element_size() % argument.align_bytes), None)
    if bad is not None:
        return f"a stride of {bad} elements is no multiple of {argument.align_bytes} bytes"
    if mapped and 0 in outer:
        return "a TMA descriptor takes no axis of stride 0"
    return None
