"""What a check runs: for each way to run a kernel, problems small enough for it that show what that way can show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from cubridge.ir.spec import AttentionSpec


@dataclass(frozen=True, slots=True)
class Case:
    """`inputs`: a kind of `inputs.KINDS`; a shape of head dim 0 stands for one with the head dim of the kernel."""

    inputs: str
    shape: Shape
    seed: int = 0


SMALL: Final = Shape(1, 4, 2, 200, 330, 0)
"""What a kernel without a reference is first run on: several tiles both ways, grouped heads, partial tiles."""

_VALUE_CASES: Final = (
    Case("steep", Shape(1, 4, 2, 200, 450, 0), 1),
    Case("index-coded V", Shape(2, 2, 2, 129, 127, 0), 2),
    Case("large scores", Shape(1, 2, 1, 192, 257, 0), 3),
    Case("one-hot V", Shape(1, 2, 1, 65, 64, 0), 4),
    Case("constant V", Shape(1, 2, 1, 1, 63, 0), 5),
    Case("random", Shape(1, 1, 1, 1, 1, 0), 6),
    Case("rising scores", Shape(1, 2, 1, 128, 512, 0), 12),
    Case("level scores", Shape(1, 2, 2, 65, 190, 0), 13),
)
_EMULATOR_CASES: Final = (
    Case("index-coded V", Shape(1, 4, 2, 200, 300, 0), 7),
    Case("steep", Shape(1, 3, 1, 129, 449, 0), 8),
    Case("random", Shape(1, 1, 1, 1, 65, 0), 9),
    Case("rising scores", Shape(1, 2, 1, 128, 384, 0), 14),
)
_MUTANT_CASES: Final = (
    Case("index-coded V", Shape(1, 4, 2, 200, 330, 0), 10),
    Case("large scores", Shape(1, 4, 2, 330, 200, 0), 11),
)
_GRADIENT_CASES: Final = (
    Case("random", Shape(1, 1, 1, 1, 1, 0), 0),
    Case("index-coded V", Shape(2, 4, 2, 130, 150, 0), 1),
    Case("large scores", Shape(1, 6, 3, 257, 1000, 0), 2),
    Case("random", Shape(2, 2, 2, 513, 192, 0), 3),
    Case("index-coded V", Shape(1, 8, 1, 640, 640, 0), 4),
)
_EMULATED_GRADIENT_CASES: Final = (Case("index-coded V", Shape(1, 2, 1, 70, 150, 0), 3),)
LONGEST_RUN: Final = 8192
"""Largest number that the emulator goes past."""
_LONGEST_SQUARE: Final = 1200
GPU_LENGTHS: Final = (1, 63, 64, 65, 127, 128, 129, 192, 257, 1000)
"""Lengths around the borders of every tile, and one of several tiles."""


def value_cases(spec: AttentionSpec, shape: Shape) -> list[Case]:
    """The user's shape with random data, then edges."""
    return _fit(spec, (Case("random", shape), *_VALUE_CASES), shape.D)


def emulator_cases(spec: AttentionSpec, head_dim: int) -> list[Case]:
    return _fit(spec, _EMULATOR_CASES, head_dim)


def past(spec: AttentionSpec, number: int, head_dim: int) -> list[Case]:
    """At lengths past a number: both, or where that takes long, one after the other."""
    length = number + 65
    square, lines = [Shape(1, 1, 1, length, length, 0)], [Shape(1, 1, 1, 65, length, 0), Shape(1, 1, 1, length, 65, 0)]
    shapes = square if length <= _LONGEST_SQUARE else lines
    return _fit(spec, tuple(Case("index-coded V", shape, number) for shape in shapes), head_dim)


def mutant_cases(spec: AttentionSpec, shape: Shape) -> list[Case]:
    """The user's shape where it is all that the preconditions leave."""
    own = tuple(Case(case.inputs, shape, case.seed) for case in _MUTANT_CASES)
    return _fit(spec, _MUTANT_CASES, shape.D) or _fit(spec, own, shape.D)


def gpu_cases(spec: AttentionSpec, shape: Shape) -> list[Case]:
    """Equal and unequal lengths over `GPU_LENGTHS`, grouped heads, every kind of input; then the user's shape."""
    kinds = ("random", "steep", "index-coded V", "large scores", "one-hot V", "rising scores", "level scores")
    pairs = [(n, n) for n in GPU_LENGTHS] + [(1, n) for n in GPU_LENGTHS] + [(257, 1000), (1000, 257), (2048, 512)]
    cases = [Case(kinds[x % len(kinds)], Shape(2, 6, 3, lq, lk, 0), x) for x, (lq, lk) in enumerate(pairs)]
    return _fit(spec, (*cases, Case("random", shape)), shape.D)


def gradient_cases(spec: AttentionSpec, head_dim: int) -> list[Case]:
    """Of a backward pass on a GPU."""
    return _fit(spec, _GRADIENT_CASES, head_dim)


def emulated_gradient_cases(spec: AttentionSpec, head_dim: int) -> list[Case]:
    return _fit(spec, _EMULATED_GRADIENT_CASES, head_dim)


def _fit(spec: AttentionSpec, cases: tuple[Case, ...], head_dim: int) -> list[Case]:
    """The cases at shapes that the spec takes, without repeats."""
    found: list[Case] = []
    for case in cases:
        for shape in fitting_shapes(spec, [replace(case.shape, D=head_dim)]):
            fitted = replace(case, shape=shape)
            if fitted not in found:
                found.append(fitted)
    return found
