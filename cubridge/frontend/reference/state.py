"""What a reference keeps between calls: tensors, which each call reads by the way to them; modules and Python numbers are fixed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Final, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.module import (
    _global_forward_hooks,  # pyright: ignore[reportPrivateUsage]
    _global_forward_pre_hooks,  # pyright: ignore[reportPrivateUsage]
)

from cubridge.frontend.reference.fixed import Fixed, fixed_values
from cubridge.frontend.reference.reach import Reached, Route, follow, is_foreign, reachable
from cubridge.frontend.reference.refusal import refuse
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.source import Span

MAX_HEADS: Final = 256


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A parameter, a buffer, a tensor of the closure or the globals, with its kind when the reference was read.
    `path`: as the user's code writes it."""

    root: object
    route: Route
    path: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    span: Span

    @property
    def name(self) -> str:
        """The last word of the path, with its subscripts."""
        return re.sub(r"\W+", "_", self.path.rpartition(".")[2], flags=re.ASCII).strip("_")

    def tensor(self) -> Tensor:
        """What lies there now; floats of every width are one kind. Errors: CU490 where it is no tensor of this kind any more."""
        try:
            found = follow(self.root, self.route)
        except (AttributeError, LookupError, TypeError):
            self._refuse("is there no more")
        if isinstance(found, np.ndarray):
            found = torch.from_numpy(found)
        if not isinstance(found, Tensor):
            self._refuse(f"is {type(found).__name__}")
        both_floats = found.dtype.is_floating_point and self.dtype.is_floating_point
        if (found.dtype is not self.dtype and not both_floats) or tuple(found.shape) != self.shape:
            self._refuse(f"is {_kind(found.dtype, tuple(found.shape))}")
        return found

    def _refuse(self, what: str) -> NoReturn:
        was = _kind(self.dtype, self.shape)
        refuse("CU490", f"`{self.path}` {what}, and was {was} when the reference was read", self.span, _AGAIN)


_AGAIN: Final = "adapt the reference again"


def _kind(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"


@dataclass(frozen=True, slots=True)
class StateNumber:
    """A number that the reference read from a tensor by one of its methods, as `item`: fixed, for the kernel was made with it."""

    source: StateTensor
    method: str
    value: object
    span: Span

    def fault(self) -> Diagnostic | None:
        """CU490 where it is another number now; reading it waits for the tensor's device."""
        with torch.no_grad():
            now = getattr(self.source.tensor().detach(), self.method)()
        if now == self.value:
            return None
        message = f"`{self.source.path}` is {now!r}, and was {self.value!r} when the reference was read"
        return Diagnostic("CU490", message, self.span, help=f"{_AGAIN}, or let it stay a tensor there")


@dataclass(frozen=True, slots=True)
class StateModule:
    """A module, and what ran when it was called as the reference was read."""

    root: object
    route: Route
    path: str
    ran: tuple[object, ...]
    span: Span

    def module(self) -> torch.nn.Module | None:
        """The one that lies there now."""
        try:
            found = follow(self.root, self.route)
        except (AttributeError, LookupError, TypeError):
            return None
        return found if isinstance(found, torch.nn.Module) else None

    def check(self) -> None:
        """Errors: CU490 where something else would run now."""
        found = self.module()
        if found is None or _runs(found) != self.ran:
            message = f"`{self.path}` has another `forward`, or other hooks, than when the reference was read"
            refuse("CU490", message, self.span, _AGAIN)


def _runs(module: torch.nn.Module) -> tuple[object, ...]:
    own = module.__dict__
    everywhere = (*_global_forward_pre_hooks.values(), *_global_forward_hooks.values())
    hooks = (*everywhere, *own["_forward_pre_hooks"].values(), *own["_forward_hooks"].values())
    return (type(module).forward, own.get("forward"), *hooks)


@dataclass(frozen=True, slots=True)
class State:
    """The tensors and modules of a reference as they lie before it runs, and what a recording takes as fixed."""

    tensors: tuple[tuple[Tensor, StateTensor], ...]
    modules: tuple[StateModule, ...]
    fixed: tuple[Fixed, ...]

    @staticmethod
    def of(function: object, span: Span) -> State:
        held = list(reachable(function))
        modules = (
            StateModule(function, r.route, r.label or "self", _runs(r.value), span)
            for r in held
            if isinstance(r.value, torch.nn.Module)
        )
        return State(tuple(_tensors(function, held, span)), tuple(modules), tuple(fixed_values(function)))

    def find(self, tensor: Tensor) -> StateTensor | None:
        """Where a tensor lies: itself, or one of the same memory (`.data`, an array of numpy)."""
        for known, state in self.tensors:
            if known is tensor:
                return state
        return next((state for known, state in self.tensors if _is_same_memory(known, tensor)), None)

    def extents(self) -> frozenset[int]:
        """Those that may be counts of heads."""
        return frozenset(n for tensor, _ in self.tensors for n in tensor.shape if 1 < n <= MAX_HEADS)


def _tensors(function: object, held: Iterable[Reached], span: Span) -> Iterator[tuple[Tensor, StateTensor]]:
    for found in held:
        value = found.value
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.flags.writeable:
            value = torch.from_numpy(value)
        if isinstance(value, Tensor):
            yield value, StateTensor(function, found.route, found.label, value.dtype, tuple(value.shape), span)


def _is_same_memory(one: Tensor, other: Tensor) -> bool:
    if one.layout is not torch.strided or other.layout is not torch.strided or one.dtype is not other.dtype:
        return False
    same_form = one.shape == other.shape and one.stride() == other.stride()
    return same_form and other.numel() > 0 and one.data_ptr() == other.data_ptr()


_LEAST: Final = 3


def integers_of(function: object) -> list[int]:
    """Integers that the code and its variables hold; the least are axes and factors rather than sizes."""
    found = [r.value for r in reachable(function) if type(r.value) is int]
    codes = (
        r.value.__code__ for r in reachable(function) if isinstance(r.value, FunctionType) and not is_foreign(r.value)
    )
    return [n for n in (*found, *(n for code in codes for n in code.co_consts)) if type(n) is int and n > _LEAST]
