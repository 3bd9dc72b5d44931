"""The operator of an adaptation, on the emulator: called like its reference, at other sizes, with other arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adapted import Adapted
from cubridge.driver.compiled import compile_adapted
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Shape
from cubridge.ir.types import DType
from cubridge.judge.plan import Case

SHAPE = Shape(1, 4, 2, 70, 130, 64)
TABLE = torch.linspace(-1.0, 1.0, 7)


def extra_inputs(shape, device):
    return {"slopes": torch.linspace(0.1, 0.4, shape.Hq, device=device), "cap": 20.0}


def attention(q, k, v, slopes, cap=30.0, causal=True):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = cap * torch.tanh(s / cap) + slopes[:, None, None] * (j - i) + TABLE[(i + j) % 7]
    if causal:
        s = s.masked_fill(j > i, -torch.inf)
    return (torch.softmax(s.float(), dim=-1) @ v.float()).to(q.dtype)


@pytest.fixture(scope="module")
def adapted() -> Adapted:
    return adapt_unchecked(attention, "sm80", SHAPE, extra_inputs=extra_inputs)


@pytest.fixture
def operator(adapted: Adapted) -> AttentionOperator:
    device = PtxDevice(ONE_SCHEDULE)
    return compile_adapted(adapted, lambda _: device, check=False)


def qkv(shape: Shape = SHAPE, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(shape.Lq)
    sides = ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    q, k, v = (torch.randn(shape.B, h, n, shape.D, generator=generator).to(dtype) for h, n in sides)
    return q, k, v


def close(got: Tensor, inputs: tuple[Tensor, Tensor, Tensor], *args: object, **kwargs: object) -> None:
    q, k, v = (t.float() for t in inputs)
    torch.testing.assert_close(got.float(), attention(q, k, v, *args, **kwargs), rtol=2e-2, atol=2e-2)


def test_it_computes_what_the_reference_computes(operator: AttentionOperator) -> None:
    slopes = torch.linspace(0.1, 0.4, 4)
    close(operator(*qkv(), slopes, 20.0), qkv(), slopes, 20.0)
    close(operator(*qkv(), slopes=slopes, causal=True), qkv(), slopes)


def test_other_sizes_types_and_arguments(operator: AttentionOperator) -> None:
    slopes = torch.tensor([0.5, 0.0, -0.25])
    shape = Shape(2, 3, 3, 33, 65, 64)
    close(operator(*qkv(shape, torch.float16), slopes, 5), qkv(shape, torch.float16), slopes, 5)
    slopes[1] = 0.75
    close(operator(*qkv(shape, torch.float16), slopes, 5), qkv(shape, torch.float16), slopes, 5)
    close(operator(*qkv(shape, torch.float16), slopes.clone(), 50.0), qkv(shape, torch.float16), slopes, 50.0)


def test_what_the_adaptation_does_not_cover_is_refused(operator: AttentionOperator) -> None:
    slopes = torch.linspace(0.1, 0.4, 4)
    with pytest.raises(CuError, match="`causal` is False; the kernel was adapted with True"):
        operator(*qkv(), slopes, causal=False)
    with pytest.raises(CuError, match="`slopes` is missing"):
        operator(*qkv())
    with pytest.raises(CuError, match=r"shape \[5\]"):
        operator(*qkv(), torch.ones(5))


def test_what_the_reference_writes_out_is_part_of_the_identity(adapted: Adapted, operator: AttentionOperator) -> None:
    def written_out(q, k, v):
        group = q.shape[1] // k.shape[1]
        s = q @ k.repeat_interleave(group, 1).mT + torch.tensor([0.0, 1.0, 0.5])[torch.arange(k.shape[2]) % 3].to(
            q.dtype
        )
        return torch.softmax(s, -1) @ v.repeat_interleave(group, 1)

    constants = compile_adapted(adapt_unchecked(written_out, "sm80", SHAPE), check=False).plan.constants
    assert [value.tolist() for value in constants.values() if isinstance(value, Tensor)] == [[0.0, 1.0, 0.5]]
    assert operator.plan.constants == {}
    assert compile_adapted(adapted, check=False).key == operator.key


def test_what_the_reference_keeps_is_read_at_each_call(operator: AttentionOperator) -> None:
    slopes = torch.linspace(0.1, 0.4, 4)
    before = operator(*qkv(), slopes, 20.0)
    try:
        TABLE.mul_(-3.0)
        after = operator(*qkv(), slopes, 20.0)
        close(after, qkv(), slopes, 20.0)
        assert not torch.equal(before, after)
    finally:
        TABLE.copy_(torch.linspace(-1.0, 1.0, 7))


def test_a_kernel_is_judged_once_before_its_first_result(adapted: Adapted, tmp_path: Path) -> None:
    cases: list[int] = []

    def few(spec, shape):
        cases.append(shape.D)
        return [Case("random", Shape(1, 2, 1, 33, 65, shape.D))]

    slopes = torch.linspace(0.1, 0.4, 4)
    for _ in range(2):
        device = PtxDevice(ONE_SCHEDULE)
        operator = compile_adapted(adapted, lambda _, device=device: device, cases=few, cache_dir=tmp_path)
        close(operator(*qkv(), slopes, 20.0), qkv(), slopes, 20.0)
    assert cases == [64] and len(list(tmp_path.glob("*.checked"))) == 1


def test_forms_of_one_machine_code_are_judged_each(adapted: Adapted, tmp_path: Path) -> None:
    """A contract that compiles fp16 as bf16."""

    def one(spec, shape):
        return [Case("random", Shape(1, 2, 1, 33, 65, shape.D))]

    contract = replace(adapted.text.contract, dtypes=((DType.BF16, ()), (DType.F16, ())))
    wrong = replace(adapted, text=replace(adapted.text, contract=contract))
    device = PtxDevice(ONE_SCHEDULE)
    operator = compile_adapted(wrong, lambda _: device, cases=one, cache_dir=tmp_path)
    operator(*qkv(), torch.ones(4))
    with pytest.raises(CuError, match="the compiled kernel is wrong"):
        operator(*qkv(dtype=torch.float16), torch.ones(4))


def test_an_element_type_in_which_the_reference_is_another_is_refused(tmp_path: Path) -> None:
    """-3.4e38 is a mask; what fp16 has for it is a bias."""

    def filled(q, k, v):
        s = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5
        later = torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None]
        s = s.masked_fill(later, torch.finfo(q.dtype).min)
        return torch.softmax(s, -1) @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)

    def one(spec, shape):
        return [Case("random", Shape(1, 2, 1, 33, 65, 64))]

    device = PtxDevice(ONE_SCHEDULE)
    run = compile_adapted(adapt_unchecked(filled), lambda _: device, cases=one, cache_dir=tmp_path)
    run(*qkv())
    with pytest.raises(CuError, match="in fp16 the reference computes something else") as caught:
        run(*qkv(dtype=torch.float16))
    assert caught.value.diagnostics[0].code == "CU824"


def test_a_wrong_kernel_gives_no_result(adapted: Adapted, tmp_path: Path) -> None:
    def one(spec, shape):
        return [Case("random", Shape(1, 2, 1, 33, 65, 64))]

    text = adapted.text.source.text.replace("store_tile(o_gmem", "zero(o); store_tile(o_gmem")
    wrong = replace(adapted, text=replace(adapted.text, source=SourceFile.from_text("kernel.cu", text)))
    device = PtxDevice(ONE_SCHEDULE)
    operator = compile_adapted(wrong, lambda _: device, cases=one, cache_dir=tmp_path)
    for _ in range(2):
        with pytest.raises(CuError, match="the compiled kernel is wrong") as caught:
            operator(*qkv(), torch.ones(4))
        assert caught.value.exit_code == 3 and not list(tmp_path.glob("*.checked"))


def test_integers_with_which_the_kernel_would_leave_32_bits_are_refused() -> None:
    def squares(q, k, v, n, shift):
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        i = torch.arange(q.shape[2])[:, None]
        return (q @ k.mT).masked_fill(n * n > i + shift, -torch.inf).softmax(-1) @ v

    def extra(shape, device):
        return {"n": torch.arange(shape.Lk) % 9, "shift": 4}

    adapted = adapt_unchecked(squares, "sm80", SHAPE, extra_inputs=extra)
    device = PtxDevice(ONE_SCHEDULE)
    run = compile_adapted(adapted, lambda _: device, check=False)
    q, k, v = qkv()
    got = run(q, k, v, torch.full((130,), -3), 4)
    torch.testing.assert_close(
        got.float(), squares(q.float(), k.float(), v.float(), 3, 4).nan_to_num(), rtol=2e-2, atol=2e-2
    )
    with pytest.raises(CuError, match="`n` holds integers beyond 32768") as caught:
        run(q, k, v, torch.full((130,), 50000), 4)
    assert caught.value.diagnostics[0].code == "CU490"
    with torch.inference_mode():
        torch.testing.assert_close(run(q, k, v, torch.full((130,), -3), 4), got)
    with pytest.raises(CuError, match="`shift` holds integers beyond 32768"):
        run(q, k, v, torch.full((130,), 3), 2**31 - 5)
