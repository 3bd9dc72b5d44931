"""Values of terms: sizes as Python numbers, and computed captures as tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor

from cubridge.frontend.reference.algebra.functions import UNARY
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Index,
    Load,
    Poly,
    Reduce,
    Size,
    Sort,
    Symbol,
    Term,
    walk,
)
from cubridge.ir.diagnostics import InternalError

Number = int | float | bool

_NUMBERS: Final[dict[str, Callable[..., Any]]] = {
    "//": operator.floordiv,
    "&": operator.and_,
    "imin": min, "imax": max, "min": min, "max": max,
    "iabs": abs,
    "trunc": int,
    "real": float,
    "where": lambda c, a, b: a if c else b,
    ">=0": lambda x: x >= 0,
    "==0": lambda x: x == 0,
    "and": lambda *xs: all(xs),
    "or": lambda *xs: any(xs),
    "not": operator.not_,
    "<": operator.lt, "<=": operator.le, "==": operator.eq,
    "add": lambda *xs: sum(xs),
    "mul": lambda *xs: math.prod(xs),
    "pow": operator.pow, "power": operator.pow,
    "exp": math.exp,
    "log": math.log,
    **UNARY,
}  # fmt: skip


def evaluate_number(term: Term, sizes: Mapping[str, Number]) -> Number:
    """The value of a term of sizes and scalar arguments. `G` is Hq // Hk."""
    match term:
        case Const():
            return float(term.value) if term.sort is Sort.REAL else term.value  # pyright: ignore[reportReturnType]
        case Size(name="G"):
            return int(sizes["Hq"]) // int(sizes["Hk"])
        case Size():
            return sizes[term.name]
        case Load(indices=()):
            return sizes[term.tensor]
        case Poly():
            return sum(c * math.prod(int(evaluate_number(a, sizes)) for a in m) for m, c in term.monomials)
        case Apply():
            return _NUMBERS[term.op](*(evaluate_number(a, sizes) for a in term.args))
        case _:
            raise InternalError(f"{term!r} is no formula of sizes")


def _fold(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: reduce(function, args)


TENSORS: Final[dict[str, Callable[..., Tensor]]] = {
    "//": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "&": torch.bitwise_and,
    "imin": _fold(torch.minimum), "imax": _fold(torch.maximum), "min": _fold(torch.minimum), "max": _fold(torch.maximum),
    "iabs": torch.abs,
    "trunc": lambda x: x.long(),
    "real": lambda x: x.double(),
    "where": torch.where,
    ">=0": lambda x: x >= 0,
    "==0": lambda x: x == 0,
    "and": _fold(torch.logical_and),
    "or": _fold(torch.logical_or),
    "not": torch.logical_not,
    "<": torch.lt, "<=": torch.le, "==": torch.eq,
    "add": _fold(torch.add),
    "mul": _fold(torch.mul),
    "pow": torch.pow, "power": torch.pow,
    "exp": torch.exp, "log": torch.log, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "sin": torch.sin, "cos": torch.cos,
    "erf": torch.erf, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil,
    "truncate": torch.trunc, "round": torch.round,
}  # fmt: skip
"""Operations of terms, on tensors."""


def _near_whole(x: Tensor) -> Tensor:
    """What is an integer but for the rounding of fp64 is one: buckets of logarithms of positions begin at such numbers, and
    terms compute them in another order than the reference."""
    whole = x.round()
    return torch.where((x - whole).abs() <= _ROUNDING * (1 + whole.abs()), whole, x)


_ROUNDING: Final = 2.0**-48
CPU: Final = torch.device("cpu")


class TensorEvaluator:
    """Evaluates terms over whole index ranges; axis n of a result is the n-th index in scope."""

    def __init__(
        self, sizes: Mapping[str, Number], tensors: Callable[[str], Tensor], device: torch.device | None = None
    ) -> None:
        self.sizes = sizes
        self.tensors = tensors
        self.device = CPU if device is None else device
        self._start = 0

    def over(self, term: Term, indices: tuple[Index, ...], first: range | None = None) -> Tensor:
        """The term at all values of `indices`, as a tensor with one axis for each; `first`: those of the first index."""
        scope = {x.name: n for n, x in enumerate(indices)}
        extents = [int(evaluate_number(x.extent, self.sizes)) for x in indices]
        self._start = 0
        if first is not None:
            self._start, extents[0] = first.start, len(first)
        found = self._value(term, scope, extents, {})
        return found.expand(extents) if extents else found.reshape(())

    def _value(self, term: Term, scope: dict[str, int], extents: list[int], memo: dict[Term, Tensor]) -> Tensor:
        if term not in memo:
            memo[term] = self._compute(term, scope, extents, memo)
        return memo[term]

    def _compute(self, term: Term, scope: dict[str, int], extents: list[int], memo: dict[Term, Tensor]) -> Tensor:
        value = lambda t: self._value(t, scope, extents, memo)  # noqa: E731
        match term:
            case Const():
                return self._number(float(term.value) if term.sort is Sort.REAL else term.value, _dtype(term))
            case Size():
                return self._number(evaluate_number(term, self.sizes))
            case Index():
                axis = scope[term.name]
                start = 0 if axis else self._start
                return torch.arange(start, start + extents[axis], device=self.device).view(
                    [-1 if n == axis else 1 for n in range(len(extents))]
                )
            case Poly():
                total = self._number(0)
                for monomial, c in term.monomials:
                    total = total + c * math.prod(map(value, monomial))
                return total
            case Load():
                tensor = self.tensors(term.tensor)
                axis = self._read_whole(term, tensor, scope, extents)
                if axis is None:
                    return self._load(term, tensor, [value(x) for x in term.indices])
                return _element_type(tensor, term).view([-1 if n == axis else 1 for n in range(len(extents))])
            case Apply(op="trunc") if not term.reads:
                return _near_whole(value(term.args[0])).long()
            case Apply():
                return TENSORS[term.op](*map(value, term.args))
            case Reduce():
                return self._reduce(term, scope, extents)
            case Symbol():
                raise InternalError(f"{term!r} has no value before the launch")
            case _:
                raise InternalError(type(term).__name__)

    def _number(self, value: Any, dtype: torch.dtype | None = None) -> Tensor:
        """A fill, which a CUDA graph can record as it cannot a copy from the host."""
        return torch.full((), value, dtype=dtype, device=self.device)

    def _load(self, term: Load, tensor: Tensor, indices: list[Tensor]) -> Tensor:
        if indices:
            places = torch.broadcast_tensors(*indices)
            inside = [
                p.clamp(0, n - 1) for p, n in zip(places, tensor.shape, strict=True)
            ]  # dead branches may be outside
            tensor = tensor[tuple(inside)]
        return _element_type(tensor, term)

    def _read_whole(self, term: Load, tensor: Tensor, scope: dict[str, int], extents: list[int]) -> int | None:
        """The axis of a vector that is read at each of its places."""
        match term.indices:
            case (Index(name=name),) if not self._start and tensor.shape == (extents[scope[name]],):
                return scope[name]
            case _:
                return None

    def _reduce(self, term: Reduce, scope: dict[str, int], extents: list[int]) -> Tensor:
        """One more axis, reduced away; subterms are computed again, for their shapes are of this scope."""
        width = int(evaluate_number(term.index.extent, self.sizes))
        inner = {**scope, term.index.name: len(extents)}
        found = self._value(term.body, inner, [*extents, width], {})
        found = (
            found.expand(*found.shape[:-1], width)
            if found.dim() == len(extents) + 1
            else found.expand(*[1] * len(extents), width)
        )
        match term.kind:
            case "sum":
                return found.sum(-1)
            case "any":
                return found.any(-1)
            case _:
                return found.amax(-1) if term.kind == "max" else found.amin(-1)


def _element_type(tensor: Tensor, term: Load) -> Tensor:
    return tensor.double() if term.sort is Sort.REAL else tensor if term.sort is Sort.BOOL else tensor.long()


_TRIED: Final = (
    {"B": 2, "Hq": 6, "Hk": 2, "Lq": 43, "Lk": 67, "D": 8},
    {"B": 3, "Hq": 4, "Hk": 4, "Lq": 70, "Lk": 29, "D": 16},
)


def never_negative(term: Term) -> bool:
    """Is an integer of positions alone >= 0 wherever it was tried?"""
    indices = free_indices(term)
    return all(bool((TensorEvaluator(sizes, _no_tensors).over(term, indices) >= 0).all()) for sizes in _TRIED)


def free_indices(term: Term) -> tuple[Index, ...]:
    """The free index variables of a term, in order of their names."""
    found = {x.name: x for x in walk(term) if isinstance(x, Index) and x.name in term.free}
    return tuple(found[name] for name in sorted(found))


def _no_tensors(name: str) -> Tensor:
    raise InternalError(f"no value for {name}")


def _dtype(term: Const) -> torch.dtype:
    return {Sort.REAL: torch.float64, Sort.INT: torch.int64, Sort.BOOL: torch.bool}[term.sort]
