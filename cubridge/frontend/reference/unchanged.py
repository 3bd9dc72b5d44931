"""The user's code runs, and nothing of the user's is changed by it: modules, globals, closures, caches, tensors, random
numbers and settings of torch are afterwards what they were, also where it fails."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cubridge.frontend.reference.reach import CACHED, Reached, is_foreign, reachable

Undo = Callable[[], None]


@contextlib.contextmanager
def unchanged(function: object, contents: bool = True) -> Generator[None]:
    """Runs of `function` inside leave no trace, and find its tensors on the CPU. Without `contents` they are known to write into no
    real tensor."""
    held = list(reachable(function))
    undo = [u for found in held for u in _undo(found)]
    undo += [_content(f.value) for f in held if contents and isinstance(f.value, (Tensor, np.ndarray))]
    with settings_unchanged():
        try:
            for found in held:
                if isinstance(found.value, Tensor) and _is_plain(found.value) and is_elsewhere(found.value):
                    found.value.data = found.value.detach().to("cpu", copy=True)
            yield
        finally:
            for step in undo:
                step()


def is_elsewhere(tensor: Tensor) -> bool:
    """A module may lie on a GPU already."""
    return tensor.device.type not in ("cpu", "meta")


@contextlib.contextmanager
def settings_unchanged() -> Generator[None]:
    """Random numbers of torch, numpy and Python, and what torch computes in, are afterwards as they were."""
    dtype, grad, cpu = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state()
    python, arrays = random.getstate(), np.random.get_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_rng_state(cpu)
        random.setstate(python)
        np.random.set_state(arrays)
        if torch.are_deterministic_algorithms_enabled() is not deterministic:
            torch.use_deterministic_algorithms(deterministic)


def _undo(found: Reached) -> list[Undo]:
    """How what can change in an object is put back."""
    value = found.value
    match value:
        case Tensor():
            return [_tensor(value)]
        case FunctionType():
            cells = [_cell(c) for c in value.__closure__ or ()]
            return cells if is_foreign(value) else [*cells, _mapping(value.__globals__)]
        case MethodType():
            return []
        case CACHED():  # pyright: ignore[reportGeneralTypeIssues]
            return [_cache(value)]
        case dict():
            return [_mapping(value)]
        case list():
            return [_sequence(value)]
        case set():
            return [_members(value)]
        case ModuleType():
            return [] if is_foreign(value) else [_mapping(vars(value))]
        case type():
            return []
        case torch.nn.Module():
            inner = [x for x in vars(value).values() if isinstance(x, dict)]
            return [*_class(type(value)), _mapping(vars(value)), *(_mapping(d) for d in inner)]
        case _:
            own = getattr(value, "__dict__", None)
            return [*_class(type(value)), _mapping(own)] if isinstance(own, dict) else []


def _mapping(held: dict[Any, Any]) -> Undo:
    before = dict(held)

    def undo() -> None:
        for name in [n for n in held if n not in before]:
            del held[name]
        held.update((n, x) for n, x in before.items() if held.get(n, held) is not x)

    return undo


def _sequence(held: list[Any]) -> Undo:
    before = list(held)

    def undo() -> None:
        held[:] = before

    return undo


def _members(held: set[Any]) -> Undo:
    before = set(held)

    def undo() -> None:
        held.clear()
        held.update(before)

    return undo


def _cell(cell: CellType) -> Undo:
    try:
        before = cell.cell_contents
    except ValueError:  # not assigned
        return lambda: None

    def undo() -> None:
        cell.cell_contents = before

    return undo


def _class(kind: type) -> list[Undo]:
    """Attributes of classes, which no `dict` lets write."""
    return [_attributes(k) for k in kind.__mro__ if not is_foreign(k)]


def _attributes(kind: type) -> Undo:
    before = dict(vars(kind))

    def undo() -> None:
        for name, value in list(vars(kind).items()):
            if name not in before:
                delattr(kind, name)
            elif before[name] is not value and not name.startswith("__"):
                setattr(kind, name, before[name])

    return undo


def _cache(function: Any) -> Undo:
    """What was cached meanwhile holds symbols; what was there before is made again when it is asked for."""
    before = function.cache_info().misses

    def undo() -> None:
        if function.cache_info().misses != before:
            function.cache_clear()

    return undo


def _tensor(tensor: Tensor) -> Undo:
    """Which memory is its own, and its flag."""
    if not _is_plain(tensor):
        return lambda: None
    data, flag = tensor.detach(), tensor.requires_grad

    def undo() -> None:
        if tensor.data_ptr() != data.data_ptr():
            tensor.data = data
        if tensor.is_leaf and tensor.requires_grad is not flag:
            tensor.requires_grad_(flag)

    return undo


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and not tensor.is_inference() and tensor.layout is torch.strided


def _content(held: Tensor | np.ndarray[Any, Any]) -> Undo:
    """What the memory holds."""
    if isinstance(held, np.ndarray):
        array = held.copy()
        return lambda: np.copyto(held, array) if held.flags.writeable else None
    if not _is_plain(held):
        return lambda: None
    kept, version = held.detach().clone(), held._version

    def undo() -> None:
        if held._version != version:
            with torch.no_grad():
                held.copy_(kept)

    return undo
