"""One row a function: over numbers, numpy arrays and torch tensors it has the same values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from cubridge.ir.algebra.derivative import derivative
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.functions import FUNCTIONS, Result
from cubridge.ir.nodes import Call, Name
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr

FLOATS = (-2.5, -0.5, 0.0, 0.5, 1.0, 3.25)
INTS = (-7, -2, 3, 10)
ELEMENTWISE = [name for name, f in FUNCTIONS.items() if f.number is not None]


def draws(name: str) -> Iterator[tuple[float, ...]]:
    """Arguments of a function, in columns."""
    match FUNCTIONS[name]:
        case info if info.result is Result.SELECT:
            yield from ((c, a, b) for c in (True, False) for a, b in zip(FLOATS, reversed(FLOATS), strict=True))
        case info if info.arity == 2:
            values = INTS if info.result is Result.INT else FLOATS
            yield from ((a, b) for a in values for b in values)
        case _:
            yield from ((x,) for x in (INTS if name == "f32" else FLOATS))


def value(name: str, args: tuple[Any, ...]) -> Any:
    names = [Name(f"x{n}") for n in range(len(args))]
    return evaluate_number(Call(name, tuple(names)), {x.id: a for x, a in zip(names, args, strict=True)})


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_arrays_have_the_values_of_numbers(name: str, library: str) -> None:
    expected: list[tuple[tuple[float, ...], float]] = []
    for args in draws(name):
        with suppress(CuError):  # where a number has no value, arrays have nan or inf
            expected.append((args, value(name, args)))
    columns = [np.array(c) for c in zip(*(args for args, _ in expected), strict=True)]
    arrays = columns if library == "numpy" else [torch.from_numpy(c) for c in columns]
    if library == "numpy" and not hasattr(np, name) and name in ("rsqrt", "erf", "erfc"):
        with pytest.raises(CuError):
            value(name, tuple(arrays))
        return
    with np.errstate(invalid="ignore"):
        found = np.asarray(value(name, tuple(arrays)), dtype=np.float64)
    np.testing.assert_allclose(found, [float(x) for _, x in expected], rtol=1e-6)


def test_a_number_beside_arrays() -> None:
    for made in (np.array([1, 5]), torch.tensor([1, 5])):
        found = evaluate_number(parse_expr("maximum(minimum(x, 3), 2) + ceil_div(x, 2)"), {"x": made})
        assert found.tolist() == [3, 6]  # pyright: ignore[reportAttributeAccessIssue]
    chosen = evaluate_number(parse_expr("where(True, x, 0)"), {"x": torch.tensor([1, 5])})
    assert chosen.tolist() == [1, 5]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ELEMENTWISE])
def test_functions_of_tiles_have_no_elementwise_meaning(name: str) -> None:
    with pytest.raises(CuError) as error:
        value(name, (torch.ones(2),))
    assert error.value.diagnostics[0].code == "CU301"


# ---- derivatives -----------------------------------------------------------------------------------------------------

WITHOUT_DERIVATIVE = {"ceil_div", "floor_div", "floor_mod"}
"""Of integers."""


def test_each_function_of_numbers_has_its_derivative_or_is_known_to_have_none() -> None:
    assert {name for name in ELEMENTWISE if not FUNCTIONS[name].derivative} == WITHOUT_DERIVATIVE
    assert all(len(f.derivative) in (0, f.arity) for f in FUNCTIONS.values())


def by_torch(name: str, args: tuple[float, ...], at: int) -> float | None:
    """PyTorch's derivative by one argument; None where the function has no finite value."""
    leaves = [
        torch.tensor(a, dtype=torch.float64, requires_grad=n == at) if isinstance(a, float) else a
        for n, a in enumerate(args)
    ]
    found = value(name, tuple(leaves))
    if not found.isfinite():
        return None
    return (
        float(torch.autograd.grad(found, leaves[at], allow_unused=True, materialize_grads=True)[0])
        if found.requires_grad
        else 0.0
    )


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if name not in WITHOUT_DERIVATIVE])
def test_a_derivative_is_that_of_torch(name: str) -> None:
    """At ties and at 0 too: of two equal numbers each has half, and `abs` has none."""
    call = Call(name, tuple(Name(f"x{n}") for n in range(FUNCTIONS[name].arity)))
    compared = 0
    for args in draws(name):
        values = {f"x{n}": a for n, a in enumerate(args)}
        for at, argument in enumerate(args):
            expected = by_torch(name, args, at) if isinstance(argument, float) else None
            if expected is not None and np.isfinite(expected):
                slope = derivative(call, f"x{at}")
                assert float(evaluate_number(slope, values)) == pytest.approx(expected, rel=1e-12), print_expr(slope)
                compared += 1
    assert compared >= 3 or name == "f32"


@pytest.mark.parametrize(
    ("tie", "torch_function"),
    [(0.0, torch.relu), (1.0, lambda x: x.clamp(min=0)), (0.5, lambda x: torch.maximum(x, 0 * x.detach()))],
)
def test_a_bound_is_that_of_the_operation(tie: float, torch_function: Any) -> None:
    slope = derivative(parse_expr("maximum(x, 0)"), "x", tie)
    for at in (-1.0, 0.0, 1.0):
        leaf = torch.tensor(at, requires_grad=True)
        torch_function(leaf).backward()
        assert evaluate_number(slope, {"x": at}) == leaf.grad
