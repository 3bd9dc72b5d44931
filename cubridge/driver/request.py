"""What a caller of `adapt` asks for: arguments of Python as they are meant, or refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cubridge.driver.reference import TracedReference
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.spec import Shape
from cubridge.ir.types import DTYPES
from cubridge.passes.own import all_passes
from cubridge.passes.pipeline import Pipeline, parse_text

if TYPE_CHECKING:
    Reference = Callable[..., object] | Path | str | TracedReference


@dataclass(frozen=True, slots=True)
class Request:
    """`shape`: example sizes; None takes some that fit the reference. `pipeline`: None has one proposed."""

    reference: Reference
    kernel: str
    shape: Shape | None
    dtype: str
    function: str | None
    extra_inputs: Callable[..., object] | None
    pipeline: Pipeline | None = None

    @staticmethod
    def of(
        reference: object,
        kernel: object,
        shape: object,
        dtype: object,
        function: object,
        extra_inputs: object,
        pipeline: object = None,
    ) -> Request:
        """Errors: CU111 for an argument that is not understood, CU809 for an element type."""
        if function is not None and not isinstance(function, str):
            raise _not_understood("function", function, "the name of a function of the file")
        if extra_inputs is not None and not callable(extra_inputs):
            raise _not_understood("extra_inputs", extra_inputs, "a function `extra_inputs(shape, device)`")
        meant = cast("Reference", Path(reference) if isinstance(reference, (str, os.PathLike)) else reference)
        return Request(
            meant, as_kernel(kernel), as_shape(shape), as_dtype(dtype), function, extra_inputs, as_pipeline(pipeline)
        )


def as_kernel(kernel: object) -> str:
    """Errors: CU110 for a text that is not there, CU111."""
    if not isinstance(kernel, (str, os.PathLike)):
        raise _not_understood("kernel", kernel, '"sm80", "sm90a" or the path of a .cu')
    name = str(kernel)
    if name.endswith(".cu") and not Path(name).is_file():
        raise CuError(Diagnostic("CU110", f"cannot read {name}: no such file"))
    return name


def as_shape(shape: object) -> Shape | None:
    """A Shape, six sizes, or their text. Errors: CU111."""
    sizes: list[object]
    match shape:
        case None:
            return None
        case Shape():
            sizes = list(shape.sizes().values())
        case str():
            sizes = [int(part) if part.strip().isdecimal() else part for part in shape.split(",")]
        case tuple() | list():
            sizes = list(cast("Sequence[object]", shape))
        case _:
            sizes = []
    numbers = [n for n in sizes if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    if len(numbers) != 6 or len(sizes) != 6:
        raise _not_understood("shape", shape, "cubridge.Shape(B, Hq, Hk, Lq, Lk, D), six sizes from 1")
    found = Shape(*numbers)
    if found.Hq % found.Hk:
        raise _not_understood("shape", shape, f"a number of query heads that {found.Hk} key heads divide")
    return found


def as_dtype(dtype: object) -> str:
    """By its name here or in torch. Errors: CU809."""
    name = str(dtype).removeprefix("torch.")
    meant = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(name, name)
    if meant not in DTYPES:
        help_ = "one of " + ", ".join(f'"{n}"' for n in DTYPES)
        raise CuError(Diagnostic("CU809", f"`{dtype}` is no element type of the kernels", help=help_))
    return meant


def as_pipeline(pipeline: object) -> Pipeline | None:
    """A pipeline, or its text. Errors: CU111; those of parsing it."""
    if pipeline is None or isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, str):
        return parse_text(pipeline, all_passes())
    raise _not_understood("pipeline", pipeline, "a Pipeline, or its text")


def _not_understood(argument: str, value: object, meant: str) -> CuError:
    return CuError(Diagnostic("CU111", f"`{argument}` is {value!r}", help=f"give {meant}"), exit_code=2)
