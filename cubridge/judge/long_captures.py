"""Captured values of long problems, made up: small, as large as lengths, and past them; those of a mask in runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from cubridge.engine.values.gather import MadeUp
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Binary, Call, Expr, Index, Name
from cubridge.ir.spec import AttentionSpec, Capture, Shape
from cubridge.ir.walk import children, free_names, walk
from cubridge.verify.ranges import LARGEST

if TYPE_CHECKING:
    from cubridge.ir.nodes import Node

    Captures = Mapping[str, int | float | MadeUp]

_RUN: Final = 700
"""Elements of a captured tensor that are the same: several tiles, and not whole ones."""
_SPANS: Final = (1.0, 16.0, 1.0, 512.0)
"""How large floats are, from problem to problem."""
_EXPONENT: Final = 16.0
"""Of weights that decay or grow over a whole row, and the largest below an exponential of captures alone: fp32 holds exp(88)."""
_STEPS: Final = 5
_PAST_LENGTHS: Final = 1 << 22


def made_up_captures(
    spec: AttentionSpec, shape: Shape, seed: int, steps: Sequence[int] = (), bound: int = LARGEST
) -> Captures:
    """A value for every capture. Integers are in turn small, as large as lengths, and multiples of one of `steps`, past the
    lengths; those that index something are 0 or 1, those that divide something are positive. Floats that multiply a distance in an
    exponent are small beside lengths. Those of a mask come in runs from the third problem on. `bound`: what a launch takes of
    integers."""
    indices, divisors, rates = _used_as_index(spec), _used_as_divisor(spec), _used_as_rate(spec)
    in_mask = {n.base.id for n in walk(spec.mask) if isinstance(n, Index) and isinstance(n.base, Name)}
    exponents = _used_as_exponent(spec)
    random = Random(seed)
    found: dict[str, int | float | MadeUp] = {}
    for n, capture in enumerate(spec.captures):
        span = _EXPONENT / max(shape.Lq, shape.Lk) if capture.name in rates else _SPANS[seed % len(_SPANS)]
        low, high, step = (0, 2, 1) if capture.name in indices else _integers(capture, shape, seed, steps)
        step = max(1, min(step, bound // (high - 1)))
        high = min(high, max(2, bound + 1))
        low = max(low, 1) if capture.name in divisors else low
        is_float, is_flag = capture.dtype == "f32", capture.dtype == "bool"
        size = min(span, _EXPONENT) if capture.name in exponents else span
        if capture.extents:
            extents = tuple(int(evaluate_number(e, shape.sizes())) for e in capture.extents)  # pyright: ignore
            run = _RUN if seed >= 2 and capture.name in in_mask else 1
            found[capture.name] = MadeUp(
                extents, 31 * seed + n, low, high, is_float, is_flag, run=run, step=step, span=size
            )
        else:
            number = (0.25 + random.random()) * size if is_float else random.randrange(max(low, 1), high) * step
            found[capture.name] = bool(number) if is_flag else number
    return found


def _integers(capture: Capture, shape: Shape, seed: int, steps: Sequence[int]) -> tuple[int, int, int]:
    """Lowest and end of what is multiplied by the third number."""
    if capture.dtype == "bool":
        return 0, 2, 1
    if seed % 3 == 2:
        return 0, _STEPS, steps[seed // 3 % len(steps)] if steps else _PAST_LENGTHS
    return (-1, 4, 1) if seed % 3 == 0 else (0, max(shape.Lq, shape.Lk) + 1, 1)


def _used_as_index(spec: AttentionSpec) -> set[str]:
    inside = (i for node in _read_per_key(spec) if isinstance(node, Index) for i in node.indices)
    return {n.base.id for i in inside for n in walk(i) if isinstance(n, Index) and isinstance(n.base, Name)}


def _used_as_divisor(spec: AttentionSpec) -> set[str]:
    below = (node.right for node in _read_per_key(spec) if isinstance(node, Binary) and node.op in ("/", "//", "%"))
    return {n.id for divisor in below for n in walk(divisor) if isinstance(n, Name)}


def _used_as_rate(spec: AttentionSpec) -> set[str]:
    exponents = (node.args[0] for node in _read_per_key(spec) if isinstance(node, Call) and node.fn in ("exp", "exp2"))
    factors = (n for e in exponents for n in walk(e) if isinstance(n, Binary) and n.op == "*" and _is_of_places(n))
    captured = {c.name for c in spec.captures}
    return {n.id for factor in factors for n in walk(factor) if isinstance(n, Name) and n.id in captured}


def _is_of_places(expr: Expr) -> bool:
    """Does it read i or j itself, not as a subscript alone?"""
    match expr:
        case Name(name):
            return name in ("i", "j")
        case Index():
            return False
        case _:
            return any(_is_of_places(x) for x in children(expr) if isinstance(x, Expr))


def _used_as_exponent(spec: AttentionSpec) -> set[str]:
    """In an exponential that the row's reference does not bound."""
    found = (free_names(n) for n in _read_per_key(spec) if isinstance(n, Call) and n.fn in ("exp", "expm1"))
    return {name for names in found if names.isdisjoint(("s", "x")) for name in names}


def _read_per_key(spec: AttentionSpec) -> Iterable[Node]:
    parts: list[Expr] = [spec.score, spec.mask, spec.weight, *(r.over for r in spec.rows)]
    return (node for part in parts for node in walk(part))
