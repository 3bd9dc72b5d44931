"""Random calls of operators: values of the adapted kind are never refused, half of all are answered, and every answer is the
reference's, also after what captured tensors hold was changed without a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from torch import Tensor

from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.compiled import compile_adapted
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Shape
from tests.properties.calls import CHANGES, READS, SAME_KIND, Value, calls

Operator = Callable[..., Tensor]
FEW = ("mask_or_bias", "documents", "summed")
REFUSALS = {"CU490", "CU821", "CU823", "CU824"}


@cache
def operator(name: str) -> Operator:
    read, device = READS[name], PtxDevice(ONE_SCHEDULE)
    adapted = adapt_unchecked(read.reference, "sm80", extra_inputs=lambda shape, _: read.extra(shape))
    return compile_adapted(adapted, lambda _: device, check=False)


def qkv(shape: Shape) -> list[Tensor]:
    generator = torch.Generator().manual_seed(shape.Lq)
    sides = ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    return [torch.randn(shape.B, h, n, shape.D, generator=generator).bfloat16() for h, n in sides]


def changed(value: Value, how: str) -> Value:
    if isinstance(value, Tensor):
        return CHANGES[how](value)
    if how in SAME_KIND:
        return value / 2 if isinstance(value, float) else value + 1
    return torch.tensor(value)


def right_answer(name: str, inputs: list[Tensor], values: dict[str, Value]) -> Tensor | None:
    """None where the reference fails."""
    wide = {n: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in values.items()}
    try:
        return READS[name].reference(*(t.double() for t in inputs), **wide).nan_to_num()
    except (RuntimeError, TypeError, IndexError, AttributeError, ValueError):
        return None


def run_calls(names: tuple[str, ...], examples: int, find: Callable[[str], Operator]) -> Counter[str]:
    """How many calls were answered, and why others were refused. Raises where one breaks the rules."""
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=examples,
        derandomize=True,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(calls(names))
    def property(call: tuple[str, Shape, dict[str, str]]) -> None:
        name, shape, how = call
        inputs, values = qkv(shape), {n: changed(v, how[n]) for n, v in READS[name].extra(shape).items()}
        for again in (False, True):
            if again:
                for value in values.values():
                    if isinstance(value, Tensor) and value.dim():
                        value.data.copy_(value.flip(-1).clone())
            note(f"{name} {shape} {how} {'changed in place' if again else ''}")
            outcomes[judged(find(name), name, inputs, values, all(h in SAME_KIND for h in how.values()))] += 1

    property()
    return outcomes


def judged(run: Operator, name: str, inputs: list[Tensor], values: dict[str, Value], is_same_kind: bool) -> str:
    right = right_answer(name, inputs, values)
    try:
        got = run(*inputs, **values)
    except CuError as error:
        assert not is_same_kind, error
        assert error.diagnostics[0].code in REFUSALS, error
        return error.diagnostics[0].code
    assert right is not None, "the reference fails, and the operator answers"
    torch.testing.assert_close(got.double(), right, rtol=2e-2, atol=3e-2)
    return "answered"


def test_calls_of_some_references() -> None:
    outcomes = run_calls(FEW, 15, operator)
    assert outcomes["answered"] * 2 >= outcomes.total(), outcomes


@pytest.mark.slow
def test_calls_of_all_references() -> None:
    assert len(READS) >= 12
    outcomes = run_calls(tuple(READS), 300, operator)
    print(outcomes)
    assert outcomes["answered"] * 2 >= outcomes.total(), outcomes


def test_an_operator_that_keeps_stale_captures_fails() -> None:
    def stale(name: str) -> Operator:
        """Keeps a copy for each tensor and version, as a cache does that trusts version counters."""
        kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

        def snapshot(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return kept.setdefault((id(value), value._version), (value, value.clone()))[1]

        run = operator(name)
        return lambda q, k, v, **values: run(q, k, v, **{n: snapshot(x) for n, x in values.items()})

    stale = cache(stale)
    with pytest.raises(AssertionError, match="not close"):
        run_calls(FEW, 15, stale)
