"""Arguments that Python programs give to `adapt` and to operators: taken as meant, or refused with a code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import cubridge
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.compiled import compile_adapted
from cubridge.driver.request import Request, as_dtype, as_kernel, as_pipeline, as_shape
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Shape

SHAPE = Shape(2, 4, 2, 128, 130, 64)


def attention(query, key, value, bias):
    group = query.shape[1] // key.shape[1]
    s = query @ key.repeat_interleave(group, 1).mT * query.shape[-1] ** -0.5 + bias
    return s.softmax(-1).to(value.dtype) @ value.repeat_interleave(group, 1)


def test_what_is_meant_is_taken() -> None:
    for shape in (SHAPE, (2, 4, 2, 128, 130, 64), [2, 4, 2, 128, 130, 64], "2,4,2,128,130,64"):
        assert as_shape(shape) == SHAPE
    assert as_dtype(torch.bfloat16) == as_dtype("bf16") == "bf16" and as_dtype(torch.float16) == "fp16"
    pipeline = as_pipeline("dce")
    assert pipeline is not None and pipeline.to_text() == "dce" and as_pipeline(pipeline) is pipeline
    assert as_kernel("sm80") == "sm80"


SHAPES = (
    (2, 4),
    "2,4",
    {"B": 2},
    7,
    (2, 4, 2, 128, 130, 64.0),
    (2, 4, 2, 128, 0, 64),
    (2, 4, 2, -1, 8, 64),
    (True,) * 6,
)


@pytest.mark.parametrize("shape", [*SHAPES, Shape(2, 5, 2, 128, 130, 64), Shape(2, 4, 2, 128, 0, 64)])
def test_another_shape_is_a_usage_error(shape: object) -> None:
    with pytest.raises(CuError, match="`shape` is") as caught:
        as_shape(shape)
    assert caught.value.diagnostics[0].code == "CU111" and caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kernel": 80}, "CU111"),
        ({"kernel": Path("none.cu")}, "CU110"),
        ({"dtype": 3}, "CU809"),
        ({"dtype": torch.float32}, "CU809"),
        ({"function": 3}, "CU111"),
        ({"extra_inputs": {"bias": 1.0}}, "CU111"),
        ({"pipeline": 3}, "CU111"),
        ({"pipeline": "dcee"}, "CU501"),
    ],
)
def test_other_arguments_are_refused(change: dict[str, object], code: str) -> None:
    usual: dict[str, object] = {"reference": attention, "kernel": "sm80", "shape": None, "dtype": "bf16"}
    usual |= {"function": None, "extra_inputs": None}
    with pytest.raises(CuError) as caught:
        Request.of(**{**usual, **change})
    assert caught.value.diagnostics[0].code == code


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(CuError, match="cannot read") as caught:
        cubridge.load("/nonexistent")
    assert caught.value.diagnostics[0].code == "CU842"


# ---- calls -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run():
    device = PtxDevice(ONE_SCHEDULE)
    adapted = adapt_unchecked(attention, extra_inputs=lambda s, _: {"bias": nn.Parameter(torch.zeros(s.Lk))})
    return compile_adapted(adapted, lambda _: device, check=False)


X = torch.linspace(-1, 1, 2 * 40 * 64).view(1, 2, 40, 64).bfloat16()
BIAS = torch.linspace(-1, 1, 40)


def test_inputs_are_given_by_the_names_of_the_reference(run) -> None:
    right = run(X, X, X, BIAS)
    assert torch.equal(run(query=X, key=X, value=X, bias=BIAS), right)
    assert torch.equal(run(X, X, value=X, bias=BIAS), right)
    torch.testing.assert_close(right, attention(X, X, X, BIAS).bfloat16(), rtol=2e-2, atol=2e-2)


def test_an_example_may_be_a_parameter_and_a_call_may_not_train_it(run) -> None:
    parameter = nn.Parameter(BIAS.clone())
    with torch.no_grad():
        assert torch.equal(run(X, X, X, parameter), run(X, X, X, BIAS))
    with pytest.raises(CuError, match="`bias` requires a gradient"):
        run(X, X, X, parameter)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((X[0], X[0], X[0]), "3 axes"),
        ((None, X, X), "is a NoneType, not a tensor"),
        ((X.float().numpy(), X, X), "is a ndarray, not a tensor"),
        ((X.to_sparse(), X, X), "sparse_coo"),
        ((X, X), "`value` is missing"),
        ((X.int(), X, X), "torch.int32"),
    ],
)
def test_inputs_that_are_none(run, inputs: tuple[Tensor, ...], said: str) -> None:
    with pytest.raises(CuError, match=said) as caught:
        run(*inputs, bias=BIAS)
    assert caught.value.diagnostics[0].code == "CU821"


def test_a_head_dim_that_is_refused_is_not_said_to_be_compiled(run, caplog: pytest.LogCaptureFixture) -> None:
    run(X, X, X, BIAS)
    wide = torch.zeros(1, 2, 40, 96).bfloat16()
    with pytest.raises(CuError, match="no form for bf16 and head dim 96"):
        run(wide, wide, wide, BIAS)
    assert "compiled again" not in caplog.text
