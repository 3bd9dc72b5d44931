"""Constant tensors that are a simple function of their indices: one number, a range, a band of two values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.comparisons import cast
from cubridge.frontend.reference.algebra.predicates import at_least_zero, conjunction
from cubridge.frontend.reference.algebra.selection import where
from cubridge.frontend.reference.algebra.terms import Term, const
from cubridge.frontend.reference.values import sort_of

Form = Callable[..., Term]


def closed_form(tensor: Tensor) -> Form | None:
    """The function of the indices that the tensor is, or None where it stays a table."""
    with no_dispatch():
        tensor = tensor.detach()
        return _uniform(tensor) or _range(tensor) or _band(tensor)


def _number(tensor: Tensor) -> Term:
    return cast(const(tensor.item()), sort_of(tensor.dtype))


def _uniform(tensor: Tensor) -> Form | None:
    if not tensor.numel():
        return None
    first = tensor.reshape(-1)[0]
    if tensor.numel() > 1 and not bool((tensor == first).all()):
        return None
    value = _number(first)
    return lambda *_: value


def _range(tensor: Tensor) -> Form | None:
    """start + step * i along the only long axis; integers only."""
    long = [axis for axis, n in enumerate(tensor.shape) if n > 1]
    if len(long) != 1 or tensor.dtype.is_floating_point or tensor.dtype == torch.bool or tensor.numel() < 3:
        return None
    flat = tensor.reshape(-1).long()
    start, step = int(flat[0]), int(flat[1] - flat[0])
    if not torch.equal(flat, start + step * torch.arange(flat.numel())):
        return None
    return lambda *ix: integers.add(const(start), integers.mul(const(step), ix[long[0]]))


def _band(tensor: Tensor) -> Form | None:
    """One value where low <= j - i <= high, another elsewhere; leading axes of extent 1."""
    if tensor.dim() < 2 or any(n != 1 for n in tensor.shape[:-2]) or min(tensor.shape[-2:]) < 3:
        return None
    table = tensor.reshape(tensor.shape[-2:])
    rows, columns = table.shape
    lag = torch.arange(columns) - torch.arange(rows)[:, None]
    outer = table[0, -1] if not torch.equal(table[0, -1], table[0, 0]) else table[-1, 0]
    inside = table != outer
    if not bool(inside.any()):
        return None
    value = table[inside][0]
    if not torch.equal(table, torch.where(inside, value, outer)):
        return None
    low, high = int(lag[inside].min()), int(lag[inside].max())
    if not torch.equal(inside, (lag >= low) & (lag <= high)):
        return None
    return _band_form(low, high, rows, columns, _number(value), _number(outer))


def _band_form(low: int, high: int, rows: int, columns: int, inner: Term, outer: Term) -> Form:
    def element(*indices: Term) -> Term:
        lag = integers.sub(indices[-1], indices[-2])
        bounds: list[Term] = []
        if high < columns - 1:
            bounds.append(at_least_zero(integers.sub(const(high), lag)))
        if low > 1 - rows:
            bounds.append(at_least_zero(integers.sub(lag, const(low))))
        return where(conjunction(*bounds), inner, outer)

    return element
