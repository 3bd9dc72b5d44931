"""Captured values whose names mean something else in kernels: words of C++, fields of `Params`, regions, scopes of CuIR."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.compiled import compile_adapted
from cubridge.driver.kernels import FOLDER, choose_kernel
from cubridge.driver.lower import lower_kernel
from cubridge.ir.capture_names import capture_of, field_name
from cubridge.ir.diagnostics import CuError
from tests.small_cases.tools import KERNELS, adapted, attend, positions, random_inputs, run, scores


def attention(q, k, v, int, batch, exponent_scale, mask, row):
    _, j = positions(q, k)
    s = scores(q, k) * exponent_scale[:, None, None] + int[:, None, None, :] * row
    s = s.masked_fill(~mask[:, None, None, :] | (j >= batch[:, None, None, None]), -torch.inf)
    return attend(torch.softmax(s.float(), -1), q, v)


def extra_inputs(shape, device):
    generator = torch.Generator(device).manual_seed(shape.Lk)
    return {
        "int": torch.randn(shape.B, shape.Lk, generator=generator),
        "batch": torch.randint(1, shape.Lk + 1, (shape.B,), generator=generator),
        "exponent_scale": torch.linspace(0.5, 1.5, shape.Hq),
        "mask": torch.rand(shape.B, shape.Lk, generator=generator) > 0.2,
        "row": 0.75,
    }


@pytest.mark.parametrize("kernel", [pytest.param("sm80", marks=pytest.mark.slow), "sm90a"])
def test_adapted(kernel: str) -> None:
    for emulated in (False, True):
        assert run(attention, random_inputs(2, 2, 1, 70, 150), extra_inputs, kernel, emulated=emulated).right


@pytest.mark.parametrize("kernel", KERNELS)
def test_fields_say_what_they_hold(kernel: str) -> None:
    made = adapted(attention, extra_inputs, kernel)
    fields = {capture_of(f): f.name for f in made.target.params if not f.fixed and capture_of(f) is not None}
    assert fields == {
        "int": "captured_int",
        "batch": "captured_batch",
        "exponent_scale": "captured_exponent_scale",
        "mask": "mask",
    }
    assert "const float* captured_int;" in made.text.source.text
    assert "@captured int[B, Lk]" in made.text.source.text


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_the_shipped_kernels_declare_is_no_field(kernel: str) -> None:
    text = (FOLDER / kernel / "attention_forward.cu").read_text()
    text += "".join(path.read_text() for path in (FOLDER / "common").glob("*.cuh"))
    macros = re.findall(r"^ *#define (\w+)", text, re.MULTILINE)
    types = re.findall(r"^typedef .*?(\w+);", text, re.MULTILINE)
    fields = [f.name for f in choose_kernel(kernel).text.contract.params]
    assert {"DEVICE", "BLOCK_Q"} <= {*macros} and {"i64", "half_t"} <= {*types} and {"batch", "len_q"} <= {*fields}
    for name in (*macros, *types, *fields):
        assert field_name(name, adapted(attention, extra_inputs, kernel).lifted.kernel) == f"captured_{name}"


def test_a_field_that_the_text_has_is_refused() -> None:
    made = adapted(attention, extra_inputs)
    params = tuple(replace(f, name="o_row") if f.name == "captured_batch" else f for f in made.target.params)
    with pytest.raises(CuError, match="the kernel text has a field `o_row`") as raised:
        lower_kernel(made.kernel, made.lifted, replace(made.target, params=params), made.dtype, made.shape.D)
    assert raised.value.diagnostics[0].code == "CU604"


def odd(q, k, v, WARPS, SM_COUNT, R1, λ, μ):
    i, j = positions(q, k)
    s = WARPS * torch.tanh(scores(q, k) * R1[:, None, None] / WARPS) + (
        λ[:, None, None] - μ[:, None, None] * SM_COUNT
    ) * (j - i)
    return attend(torch.softmax(s.float(), -1), q, v)


def odd_inputs(shape, device):
    r, a, b = (torch.linspace(low, 1.0, shape.Hq, device=device) for low in (0.5, 0.1, 0.2))
    return {"WARPS": 9.0, "SM_COUNT": 0.5, "R1": r, "λ": a, "μ": b}


def test_names_that_cuir_has_no_room_for() -> None:
    for emulated in (False, True):
        assert run(odd, random_inputs(1, 2, 2, 33, 65), odd_inputs, "sm80", emulated=emulated).right
    names = {c.name for c in adapted(odd, odd_inputs).reference.attention.spec.captures}
    assert names == {"captured_R1", "captured_SM_COUNT", "captured_WARPS", "_", "captured"}


def short(q, k, v, keys: int):
    i, j = positions(q, k)
    return attend(torch.softmax(scores(q, k).masked_fill(j > i + keys, -torch.inf).float(), -1), q, v)


def test_a_number_that_is_called_as_a_record() -> None:
    assert run(short, random_inputs(1, 2, 2, 33, 65), lambda shape, device: {"keys": 5}, "sm80", emulated=False).right


def test_the_operator_takes_the_names_of_the_reference() -> None:
    device = PtxDevice(ONE_SCHEDULE)
    operator = compile_adapted(adapted(attention, extra_inputs), lambda _: device, check=False)
    q, k, v = random_inputs(1, 2, 2, 33, 65)
    extra = {
        "int": torch.ones(1, 65), "batch": torch.tensor([40]), "exponent_scale": torch.tensor([1.0, 2.0]),
        "mask": torch.arange(65)[None] % 3 != 1, "row": 2.0,
    }  # fmt: skip
    expected = attention(q.float(), k.float(), v.float(), **extra)
    torch.testing.assert_close(operator(q, k, v, **extra).float(), expected, rtol=2e-2, atol=2e-2)
