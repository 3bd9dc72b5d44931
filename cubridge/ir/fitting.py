"""Sizes that meet preconditions: those that are wanted, changed as little as needed.

A search from the wanted sizes: of the first condition that fails, one size is changed so that it holds, and so on. What a size is
changed to comes from the conditions themselves: their numbers, multiples of these, and formulas of the other sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Binary, Expr, IntLit, Name
from cubridge.ir.spec import AttentionSpec, Shape
from cubridge.ir.walk import free_names, walk

_PREFERRED: Final = ("Lk", "Hq", "Lq", "Hk", "B")
"""Sizes in the order in which they are changed; the head dim is the kernel's."""
_CHANGES: Final = 7
_TRIED: Final = 1_500
_NEAREST: Final = 4
_GROUPED: Final = Binary("==", Binary("%", Name("Hq"), Name("Hk")), IntLit(0))


def fitting_shapes(spec: AttentionSpec, wanted: Iterable[Shape]) -> list[Shape]:
    """`wanted`, each changed as little as the preconditions ask; without repeats, and without those that cannot fit."""
    conditions = (_GROUPED, *(p.condition for p in spec.preconditions))
    found: list[Shape] = []
    for shape in wanted:
        fit = _fitted(conditions, shape)
        if fit is not None and fit not in found:
            found.append(fit)
    return found


def fits(spec: AttentionSpec, shape: Shape) -> bool:
    """Does `shape` meet the preconditions that read nothing but sizes?"""
    return all(_holds(p.condition, shape) for p in spec.preconditions)


def _fitted(conditions: tuple[Expr, ...], wanted: Shape) -> Shape | None:
    level, seen = [wanted], {wanted}
    for _ in range(_CHANGES + 1):
        below: list[Shape] = []
        for shape in level:
            failing = next((c for c in conditions if not _holds(c, shape)), None)
            if failing is None:
                return shape
            below += [s for s in _repairs(failing, conditions, shape, wanted) if s not in seen]
            seen.update(below)
        if len(seen) > _TRIED:
            return None
        level = below
    return None


def _repairs(failing: Expr, conditions: tuple[Expr, ...], shape: Shape, wanted: Shape) -> Iterator[Shape]:
    """`shape` with one size changed so that `failing` holds, near to what is wanted."""
    names = free_names(failing)
    for name in (n for n in _PREFERRED if n in names):
        want = wanted.sizes()[name]
        values = sorted({n for n in _values(name, conditions, shape) if n >= 1}, key=lambda n: abs(n - want))
        changed = (replace(shape, **{name: n}) for n in values)
        holding = (s for s in changed if _holds(failing, s))
        yield from (s for s, _ in zip(holding, range(_NEAREST), strict=False))


def _values(name: str, conditions: tuple[Expr, ...], shape: Shape) -> Iterator[int]:
    """What a size might be."""
    now = shape.sizes()[name]
    numbers = {abs(n.value) for c in conditions for n in walk(c) if isinstance(n, IntLit)} - {0}
    others = [n for other, n in shape.sizes().items() if other != name]
    yield from (now - 1, now + 1, 2 * now, math.isqrt(now) ** 2, (math.isqrt(now) + 1) ** 2)
    for n in numbers:
        yield from (n - 1, n, n + 1, now // n * n, now // n * n + n, now // n * n + 1)
    for other in others:
        yield other
        yield from (value for n in others for value in (other + n, other - n, other * n))
        for n in numbers:
            yield from (other * n, other // n, -(-other // n), other + n, other - n, n - other)


def _holds(condition: Expr, shape: Shape) -> bool:
    try:
        return bool(evaluate_number(condition, shape.sizes()))
    except CuError:
        return bool(free_names(condition) - shape.sizes().keys())  # captured scalars, which the launch checks
