"""Extra inputs: the values that `extra_inputs` builds, and their extents as formulas of the sizes.

The builder is called at several shapes; a formula is what fits all of them. An extent that fits none gets a size of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.places import error_span
from cubridge.frontend.reference.quiet import off_stdout
from cubridge.frontend.reference.refusal import fail
from cubridge.frontend.reference.unchanged import unchanged
from cubridge.ir.diagnostics import CuError
from cubridge.ir.numbers import plain
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.spec import Shape

SizesOf = dict[str, Any]
Scalar = int | float | bool


@dataclass(frozen=True, slots=True)
class Extent:
    """One extent of an argument. `compute` gives it from the sizes; None: it follows no size, and is `own`."""

    example: int
    compute: Callable[[SizesOf], Any] | None
    own: str = ""

    def symbolic(self, dims: SizesOf, make: Callable[[str, int, bool], Any]) -> Any:
        return self.compute(dims) if self.compute is not None else make(self.own, self.example, False)


def _formulas() -> Iterator[Callable[[SizesOf], Any]]:
    """Candidates, simplest first."""
    names = ("Lk", "Lq", "Hq", "Hk", "B", "D", "G")
    for times, plus in ((1, 0), (2, 0), (2, -1), (2, 1), (1, 1), (1, -1)):
        for n in names:
            yield lambda d, n=n, times=times, plus=plus: times * d[n] + plus
    for plus in (0, -1, 1):
        yield lambda d, plus=plus: d["Lq"] + d["Lk"] + plus
    for times, plus in ((1, 0), (2, 0), (2, -1), (2, 1), (1, 1)):
        yield lambda d, times=times, plus=plus: times * torch.sym_max(d["Lq"], d["Lk"]) + plus
    for divisor in (2, 4, 8, 16, 32, 64, 128):
        for n in names:
            yield lambda d, n=n, divisor=divisor: d[n] // divisor
            yield lambda d, n=n, divisor=divisor: (d[n] + divisor - 1) // divisor
    for at, n in enumerate(names):
        for m in names[at:]:
            yield lambda d, n=n, m=m: d[n] * d[m]


CANDIDATES: Final = tuple(_formulas())


def sizes_of(shape: Shape) -> SizesOf:
    return {**shape.sizes(), "G": shape.Hq // shape.Hk}


def call_extra_inputs(reference: Reference, shape: Shape) -> dict[str, Tensor | Scalar]:
    """The dict that `extra_inputs` builds at `shape`, parameters only. Errors: CU473."""
    if reference.extra_inputs is None:
        return {}
    try:
        with off_stdout(), unchanged(reference.extra_inputs):
            values = reference.extra_inputs(shape, "cpu")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's code raises
        fail("CU473", f"`extra_inputs` fails: {type(error).__name__}: {error}", _place(error, reference))
    if not isinstance(values, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        fail("CU473", f"`extra_inputs` returns {type(values).__name__}, not a dict", reference.builder_span)
    values = {name: plain(value) for name, value in values.items()}
    for name, value in values.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            fail("CU473", f"`extra_inputs` has the key {name!r}, which is no name", reference.builder_span)
        what = _unreadable(value)
        if what:
            message = f"`extra_inputs` gives {what} for `{name}`, not a tensor or a number"
            fail("CU473", message, reference.builder_span)
    return {name: value for name, value in values.items() if reference.takes(name)}


def _unreadable(value: object) -> str:
    """What the value is, where no kernel can read it, or ""."""
    if not isinstance(value, (Tensor, bool, int, float)):
        return type(value).__name__
    if not isinstance(value, Tensor):
        return "an integer of more than 64 bits" if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else ""
    if value.is_complex():
        return "a tensor of complex numbers"
    if value.is_nested or value.is_quantized or value.is_meta:
        return "a nested tensor" if value.is_nested else "a quantized tensor" if value.is_quantized else "a meta tensor"
    return "" if value.layout is torch.strided else f"a {str(value.layout).removeprefix('torch.')} tensor"


def _place(error: BaseException, reference: Reference) -> Span:
    span = error_span(error.__traceback__)
    return span if span is not NOWHERE else reference.builder_span


@cache
def probe_shapes(shape: Shape) -> tuple[Shape, ...]:
    """Shapes whose sizes differ from `shape` and from each other, equal where `shape` has equal lengths or heads."""
    equal_lengths, equal_heads = shape.Lq == shape.Lk, shape.Hq == shape.Hk

    def like(B: int, Hq: int, Hk: int, Lq: int, Lk: int, D: int) -> Shape:
        return Shape(B, Hk if equal_heads else Hq, Hk, Lq, Lq if equal_lengths else Lk, D)

    b, g, k, lq, lk, d = shape.B, shape.Hq, shape.Hk, shape.Lq, shape.Lk, shape.D
    return (
        like(b + 1, 28, 7, 71, 97, 48), like(b + 1, 22, 11, 139, 102, 80), like(b + 1, 24, 8, 256, 384, 128),
        like(b + 1, 2 * g, 2 * k, 2 * lq, 2 * lk, d), like(b + 1, 2 * g, 2 * k, lq, lk, d),
        like(b + 1, g, k, 71, 97, d), like(b + 1, g, k, 2 * lq, 4 * lk, d), like(b + 2, g, k, lq, lk, d),
        like(b, 2 * g, 2 * k, 71, 97, d), like(b, g, k, 71, 97, d), like(b, 2 * g, 2 * k, lq, lk, d),
    )  # fmt: skip


def extra_values(
    reference: Reference, shape: Shape
) -> tuple[dict[str, tuple[Tensor, tuple[Extent, ...]]], dict[str, Scalar], dict[str, tuple[Extent, ...]]]:
    """(tensors with extents, scalars, extents by name). Errors: CU473 where a value changes kind between shapes."""
    here = call_extra_inputs(reference, shape)
    if not here:
        return {}, {}, {}
    shapes, others = _probes(reference, shape)
    tensors: dict[str, tuple[Tensor, tuple[Extent, ...]]] = {}
    scalars: dict[str, Scalar] = {}
    for name, value in here.items():
        change = next((c for o in others if (c := _change(value, o.get(name)))), "")
        if change:
            fail("CU473", f"`{name}` {change}", reference.builder_span)
        if not isinstance(value, Tensor):
            scalars[name] = value
            continue
        samples = [(shape, value), *((s, o[name]) for s, o in zip(shapes, others, strict=True))]
        extents = tuple(
            _extent(name, axis, [(sizes_of(s), int(v.shape[axis])) for s, v in samples if isinstance(v, Tensor)])
            for axis in range(value.dim())
        )
        tensors[name] = (value, extents)
    return tensors, scalars, {name: extents for name, (_, extents) in tensors.items()}


_PROBES: Final = 2


def _probes(reference: Reference, shape: Shape) -> tuple[list[Shape], list[dict[str, Tensor | Scalar]]]:
    """The first shapes at which the builder works, and what it builds there; fewer where it works at few."""
    shapes: list[Shape] = []
    built: list[dict[str, Tensor | Scalar]] = []
    for probe in probe_shapes(shape):
        try:
            values = call_extra_inputs(reference, probe)
        except CuError:
            continue
        shapes.append(probe)
        built.append(values)
        if len(shapes) == _PROBES:
            break
    return shapes, built


def _change(value: Tensor | Scalar, other: Tensor | Scalar | None) -> str:
    """How an argument is another at another shape, or ""."""
    if other is None:
        return "is not given at every shape"
    if not isinstance(value, Tensor) or not isinstance(other, Tensor):
        return "" if type(value) is type(other) else "changes its type with the shape"
    if value.dim() != other.dim():
        return "changes its rank with the shape"
    return "" if value.dtype is other.dtype else "changes its type with the shape"


def _extent(name: str, axis: int, samples: list[tuple[SizesOf, int]]) -> Extent:
    example = samples[0][1]
    if all(value == example for _, value in samples):
        return Extent(example, lambda _: example)
    for formula in CANDIDATES:
        if all(formula(sizes) == value for sizes, value in samples):
            return Extent(example, formula)
    return Extent(example, None, f"{name}.{axis}")
