"""One row a function: over numbers, numpy arrays and torch tensors it has the same values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.functions import FUNCTIONS, Result
from cubridge.ir.nodes import Call, Name
from cubridge.ir.parser import parse_expr

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
