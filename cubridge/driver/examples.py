"""Values of a call as examples of what its arguments are: their kinds, and values of these kinds at other shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.backend.launch.kinds import Kind, NumberKind, TensorKind, fits_kind
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Expr, IntLit, Name
from cubridge.ir.printer import print_expr

if TYPE_CHECKING:
    from cubridge.ir.spec import Shape

_LAYOUT: Final = ("Lk", "Lq", "Hq", "B")
"""What the axes of scores follow, from the last; and where no axis tells, what an extent most likely follows."""
_OTHERS: Final = ("Hk", "D")


def kind_of(value: object, adapted: Kind | None, sizes: Mapping[str, int]) -> Kind:
    """The kind of a value of a call; that of the adaptation where it fits."""
    if adapted is not None and fits_kind(adapted, value, sizes):
        return adapted
    if not isinstance(value, Tensor):
        return NumberKind(type(value))  # pyright: ignore[reportArgumentType]
    was = adapted.extents if isinstance(adapted, TensorKind) else ()
    last_first = [
        _extent(n, at, was[-1 - at] if at < len(was) else None, sizes) for at, n in enumerate(reversed(value.shape))
    ]
    return TensorKind(value.dtype, tuple(reversed(last_first)))


def _extent(length: int, at: int, was: Expr | None, sizes: Mapping[str, int]) -> Expr:
    """A formula for the axis `at`, from the last, of `length`: none for one element, what the adaptation had there, a size."""
    if length == 1:
        return IntLit(1)
    if was is not None and evaluate_number(was, sizes) == length:
        return was
    here = _LAYOUT[at : at + 1]
    return next((Name(n) for n in (*here, *_LAYOUT, *_OTHERS) if sizes[n] == length), IntLit(length))


def key_of(kind: Kind) -> object:
    if isinstance(kind, NumberKind):
        return kind.type
    return kind.dtype, tuple(None if e is None else print_expr(e) for e in kind.extents)


# ---- examples -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Example:
    """A value of a call, repeated or cut to the extents that other shapes have."""

    value: object
    kind: Kind

    def __post_init__(self) -> None:
        if isinstance(self.value, Tensor):
            self.value = self.value.detach().cpu().clone()

    def at(self, shape: Shape) -> object:
        found = self.value
        if not isinstance(found, Tensor) or not isinstance(self.kind, TensorKind):
            return found
        for axis, extent in enumerate(self.kind.extents):
            assert extent is not None
            length = int(evaluate_number(extent, shape.sizes()))
            found = found.index_select(axis, torch.arange(length) % max(1, found.shape[axis]))
        return found
