"""Views of global tensors: CuIR names a tensor, a batch and a head, so what a view is given besides must be that tensor's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cubridge.frontend.cuda.values import Plumbing, Pointer, Value, View, describe, refusal
from cubridge.ir.contract import TensorAddress, TensorStride
from cubridge.ir.nodes import Index
from cubridge.ir.source import Span

if TYPE_CHECKING:
    from cubridge.frontend.cuda.expressions import Expressions

MISFIT: Final = "CU428"
_STRIDES: Final = {"batch_stride": 0, "head_stride": 1, "row_stride": 2}
_SIZES: Final = {"heads": 1, "rows": 2}


def head_of(lift: Expressions, given: Mapping[str, Value], place: Span) -> View:
    """`base[b, h]`. Errors: CU428 if a stride or a size is another tensor's."""
    base = given["base"]
    if not isinstance(base, Pointer) or not isinstance(base.param.value, TensorAddress) or base.offset is not None:
        raise refusal(f"a view of {describe(base)}", place, MISFIT)
    tensor = lift.context.contract.tensor(base.param.value.tensor)
    for name, axis in _STRIDES.items():
        if name in given:
            _check_stride(given[name], tensor.name, axis, place)
    for name, axis in _SIZES.items():
        if name in given and lift.as_expr(given[name], place) != tensor.shape[axis]:
            raise refusal(f"the {name} of this view are not those of `{tensor.name}`", place, MISFIT)
    if "heads" in given and not tensor.contiguous:
        raise refusal(f"`{tensor.name}` is not contiguous", place, MISFIT)
    indices = (lift.as_expr(given["b"], place), lift.as_expr(given["h"], place))
    return View(Index(base.expr, indices, span=place))


def _check_stride(value: Value, tensor: str, axis: int, place: Span) -> None:
    if not isinstance(value, Plumbing):
        raise refusal(f"{describe(value)} in place of a stride", place, MISFIT)
    match value.param.value:
        case TensorStride(found, at) if found == tensor and at == axis:
            return
        case TensorStride(found, at):
            message = f"the view of `{tensor}` takes stride {at} of `{found}` for its stride {axis}"
            raise refusal(message, place, MISFIT)
        case _:
            raise refusal("a stride of no tensor", place, MISFIT)
