"""The kind of an argument: what an adaptation fixes of it. A call with another kind is another computation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import torch

from cubridge.backend.launch.arguments import formula
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Expr, Name

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TensorKind:
    """A tensor of these extents, formulas of sizes; None for an axis of any length. Floats of every width are one kind, since
    a kernel computes in its own; integers are not, since they wrap at their width."""

    dtype: torch.dtype
    extents: tuple[Expr | None, ...]


@dataclass(frozen=True, slots=True)
class NumberKind:
    """A Python number. An integer is taken for a float, as PyTorch does."""

    type: type[bool] | type[int] | type[float]


Kind = TensorKind | NumberKind


class OtherKindError(CuError):
    """CU824: an argument is of another kind than the adaptation saw."""


def fits_kind(kind: Kind, value: object, sizes: Mapping[str, int]) -> bool:
    try:
        check_kind("", kind, value, sizes)
    except OtherKindError:
        return False
    return True


def check_kind(name: str, kind: Kind, value: object, sizes: Mapping[str, int]) -> None:
    """Is `value`, the argument `name` of a call, what the kernel was adapted with? Errors: OtherKindError."""
    match kind:
        case NumberKind(wanted):
            if type(value) is not wanted and not (wanted is float and type(value) is int):
                raise _other_kind(f"`{name}` is a {type(value).__name__}", f"a {wanted.__name__}")
        case TensorKind():
            if not isinstance(value, torch.Tensor):
                raise _other_kind(f"`{name}` is a {type(value).__name__}", f"a tensor of {kind.dtype}")
            _check_tensor(name, kind, value, sizes)
        case _:
            assert_never(kind)


def _check_tensor(name: str, kind: TensorKind, value: Tensor, sizes: Mapping[str, int]) -> None:
    if value.dtype != kind.dtype and not (value.is_floating_point() and kind.dtype.is_floating_point):
        raise _other_kind(f"`{name}` is {value.dtype}", str(kind.dtype))
    extents = [None if e is None else int(evaluate_number(e, sizes)) for e in kind.extents]
    fits = len(extents) == value.dim() and all(e in (None, n) for e, n in zip(extents, value.shape, strict=True))
    if not fits:
        formulas = formula([Name("_") if e is None else e for e in kind.extents])
        here = ", ".join("_" if e is None else str(e) for e in extents)
        raise _other_kind(f"`{name}` has shape {list(value.shape)}", f"{formulas}, which is [{here}] here")


def _other_kind(found: str, adapted: str) -> OtherKindError:
    message = f"{found}; the kernel was adapted with {adapted}"
    return OtherKindError(Diagnostic("CU824", message, help="adapt the reference with such an argument"))
