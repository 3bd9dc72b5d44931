"""Runs the reference itself beside its recorded calls. Recording takes every size as at least 2 and one way through the code:
a branch on a size of 1, or on something that is no size, shows only here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np
import torch
from torch import Tensor

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.predicates import at_least_zero
from cubridge.frontend.reference.algebra.terms import Term, const, size
from cubridge.frontend.reference.quiet import quiet
from cubridge.frontend.reference.reach import names_in
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.traced import Traced
from cubridge.frontend.reference.unchanged import unchanged
from cubridge.frontend.reference.visibility import filled_rows
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Remark, Shape

TOLERANCE: Final = 0.05
"""Of float32 runs in which the reference may round to half precision: enough to tell one branch from another."""


def check_run(traced: Traced, shape: Shape) -> tuple[Remark, ...]:
    """What a branch on the element type or the device leaves open. Errors: CU487 where the function gives something else
    than its recorded calls."""
    asked = traced.assembled.lifter.recording.asked
    if _agrees(traced, shape, again=True) is False:
        if "dtype" in asked and traced.dtype is not torch.float32 and _agrees(traced, shape, traced.dtype):
            _differs(traced, f"in float32 than in {_name(traced.dtype)}, in which it was read", _TYPES)
        _differs(traced, f"at shape {shape} than the run that was recorded at {traced.shape}", _STATE)
    if "requires_grad" in asked and _agrees(traced, shape, requires_grad=True) is False:
        _differs(traced, "for q, k and v that require a gradient than it was read with", "compute the same for both")
    if "strides" in asked and _agrees(traced, shape, strided=True) is False:
        _differs(traced, "for q, k and v of other strides than it was read with", "compute the same for all strides")
    for asks in sorted(_MODES.keys() & names_in(traced.reference.function)):
        if _agrees(traced, shape, mode=_MODES[asks]) is False:
            _differs(
                traced, f"where `{asks}` is True than it was read with", "compute the same in every mode of PyTorch"
            )
    return tuple(_open(traced, shape, asked))


def _open(traced: Traced, shape: Shape, asked: frozenset[str]) -> Iterator[Remark]:
    if "dtype" in asked and _agrees(traced, shape, traced.dtype):
        for dtype in (torch.bfloat16, torch.float16):
            if dtype is not traced.dtype and _agrees(traced, shape, dtype) is False:
                message = f"in {_name(dtype)} the function gives something else than in {_name(traced.dtype)}, in which it was read"
                yield Remark(message, traced.reference.span)
    if "is_cuda" in asked:
        yield Remark("the function was read on a CPU, where `is_cuda` is False", traced.reference.span)


def _differs(traced: Traced, where: str, help_: str) -> NoReturn:
    refuse("CU487", f"the function gives something else {where}", traced.reference.span, help_)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_MODES: Final[dict[str, Callable[[], AbstractContextManager[object]]]] = {
    "is_grad_enabled": torch.enable_grad,
    "is_inference_mode_enabled": torch.inference_mode,
    "is_autocast_enabled": partial(torch.autocast, "cpu", torch.bfloat16),
}
"""What a function may ask about how it is called."""
_TYPES: Final = "let it compute the same in every element type, up to rounding"
_STATE: Final = "keep what it computes free of branches on values, counters, random numbers and global state"


def _called(
    traced: Traced, inputs: tuple[Tensor, ...], kept: Mapping[str, object], requires_grad: bool, number: int
) -> tuple[object, bool]:
    """The output, and whether random numbers were drawn, which are others in each call."""
    random.seed(number)
    np.random.seed(number)
    before = _random_states()
    found = traced.reference.function(*(t.clone().requires_grad_(requires_grad) for t in inputs), **kept)
    return found[0] if isinstance(found, tuple | list) else found, _random_states() != before


def _random_states() -> tuple[object, ...]:
    of_numpy: Any = np.random.get_state()
    return random.getstate(), of_numpy[1].tobytes(), of_numpy[2:]


def conditions_on_ones(traced: Traced, shape: Shape) -> Iterator[Term]:
    """`size >= 2` for each size that the reference treats otherwise where it is 1. `shape` meets the preconditions."""
    for name, single in _with_one(traced, shape):
        agrees = _agrees(traced, single)
        if (
            agrees is None and traced.dtype is not torch.float32
        ):  # a mask of half precision goes with q of its type alone
            agrees = _agrees(traced, single, traced.dtype)
        if agrees is not True:
            yield at_least_zero(integers.sub(size(name), const(2)))


def _with_one(traced: Traced, shape: Shape) -> Iterator[tuple[str, Shape]]:
    small = replace(shape, Lq=5 if shape.Lq != shape.Lk else 7, Lk=7)
    options = {
        "Lq": (replace(small, Lq=1), replace(small, Lq=1, Lk=1)),
        "Lk": (replace(small, Lk=1), replace(small, Lq=1, Lk=1)),
        "B": (replace(small, B=1), replace(shape, B=1)),
        "G": (replace(small, Hq=small.Hk), replace(shape, Hq=shape.Hk)),
    }
    for name, shapes in options.items():
        fit = next((s for s in shapes if traced.meets_preconditions(s)), None)
        if fit is not None:
            yield name, fit


def _agrees(
    traced: Traced,
    shape: Shape,
    dtype: torch.dtype = torch.float32,
    strided: bool = False,
    again: bool = False,
    requires_grad: bool = False,
    mode: Callable[[], AbstractContextManager[object]] = torch.no_grad,
) -> bool | None:
    """None where the function or its recorded calls do not run on inputs of this shape. `strided`: rows lie before heads.
    `again`: what counts is a second call, which sees what the first one kept. `mode`: of PyTorch. Errors: CU487 where random
    numbers of Python or numpy make two calls differ."""
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(shape.B, shape.Hq, shape.Lq, shape.D, generator=generator).to(dtype)
    k, v = (torch.randn(shape.B, shape.Hk, shape.Lk, shape.D, generator=generator).to(dtype) for _ in range(2))
    if strided:
        q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
    try:
        extra = traced.extra(shape)
    except CuError:
        return True  # no arguments for this shape, so nothing to compare
    kept = {n: x.clone() if isinstance(x, Tensor) else x for n, x in extra.items()}
    try:
        with unchanged(traced.reference.function), torch.no_grad(), mode(), quiet():
            calls = [_called(traced, (q, k, v), kept, requires_grad, n) for n in range(2 if again else 1)]
    except KeyboardInterrupt:
        raise
    except BaseException:  # whatever the user's code raises: it does not run here
        return None
    (first, drawn), (out, _) = calls[0], calls[-1]
    if drawn and isinstance(out, Tensor) and isinstance(first, Tensor) and not torch.equal(first, out):
        refuse("CU487", "the function draws random numbers of Python or numpy", traced.reference.span, _STATE)
    try:
        captures = traced.captures(shape.sizes(), {**extra, "q": q, "k": k, "v": v}, wide=True)
        unlike = traced.empty_rows(shape.sizes(), captures) | filled_rows(traced.spec, shape.sizes(), captures)
        want, _ = traced.oracle(q, k, v, extra)
    except (RuntimeError, IndexError, ValueError, ArithmeticError):  # recorded calls that a size of 1 does not fit
        return None
    if not isinstance(out, Tensor) or out.shape != want.shape:
        return False
    out = out.detach()
    overflow = ~out.isfinite()  # exponentials without a shift pass float32's range before fp64's
    difference = (out.double() - want).abs().masked_fill(unlike[..., None] | overflow, 0.0)
    return bool((difference <= TOLERANCE * (1 + want.abs())).all())
