"""Views of global tensors: CuIR names a tensor, a batch and a head, so what a view is given besides must be that tensor's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cubridge.frontend.cuda.values import Plumbing, Pointer, Value, View, describe, refusal
from cubridge.ir.contract import TensorAddress, TensorStride
from cubridge.ir.nodes import Attr, Expr, Index, IntLit, Name, Node
from cubridge.ir.source import Span
from cubridge.ir.walk import rewrite

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
        if name in given and not _is_size(lift, lift.as_expr(given[name], place), tensor.shape[axis]):
            raise refusal(f"the {name} of this view are not those of `{tensor.name}`", place, MISFIT)
    if "heads" in given and not tensor.contiguous:
        raise refusal(f"`{tensor.name}` is not contiguous", place, MISFIT)
    indices = (lift.as_expr(given["b"], place), lift.as_expr(given["h"], place))
    return View(Index(base.expr, indices, span=place))


def _is_size(lift: Expressions, given: Expr, size: Expr) -> bool:
    """Is it this size, once fields that the host fills and constants are what they are?"""
    return given == size or _known(lift, given) == _known(lift, size)


def _known(lift: Expressions, expr: Expr) -> Expr:
    definitions = lift.context.definitions()

    def change(node: Node) -> Node:
        if isinstance(node, Attr) and node in definitions:
            return _known(lift, definitions[node])
        number = lift.context.constants.number(node.id) if isinstance(node, Name) else None
        return IntLit(number) if isinstance(number, int) else node

    return rewrite(expr, change)


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
