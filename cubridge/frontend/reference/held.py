"""Names of the tensors that a reference holds: buffers, parameters, variables of a closure or of its module."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from cubridge.frontend.reference.load import Reference


def held_names(reference: Reference) -> dict[int, str]:
    """Name by the identity of the tensor."""
    found: dict[int, str] = {}
    for name, tensor in _held(reference.function):
        found.setdefault(id(tensor), name.rsplit(".", 1)[-1])
    for name, value in reference.globals.items():
        if isinstance(value, Tensor):
            found.setdefault(id(value), name)
    return found


def held_extents(reference: Reference) -> frozenset[int]:
    """Extents of the tensors that may be counts of heads."""
    return frozenset(n for _, tensor in _held(reference.function) for n in tensor.shape if 1 < n <= MAX_HEADS)


MAX_HEADS = 256


def _held(function: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(function, torch.nn.Module):
        yield from function.named_buffers()
        yield from function.named_parameters()
    elif isinstance(function, partial):
        yield from _tensors(function.keywords)
        yield from _held(function.func)
    elif inspect.isfunction(function):
        yield from _tensors(inspect.getclosurevars(function).nonlocals)
    elif inspect.ismethod(function):
        yield from _held(function.__self__)
        yield from _tensors(getattr(function.__self__, "__dict__", {}))


def _tensors(values: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
    for name, value in values.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, torch.nn.Module):
            yield from value.named_buffers()
            yield from value.named_parameters()
