"""Calls of operators with arguments unlike those of the adaptation, and with values that change between calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adapted import Adapted
from cubridge.driver.compiled import compile_adapted
from cubridge.driver.report import Verdict
from cubridge.ir.diagnostics import CuError
from cubridge.judge.findings import Findings
from tests.backend.fake_device import FakeDevice

L = 40


def operator(
    reference: Callable[..., object], specialise: bool = False, **extra: Callable[..., object]
) -> AttentionOperator:
    """`extra`: each argument from a shape. `specialise`: are calls of another kind answered."""
    given = {"extra_inputs": lambda shape, _: {n: make(shape) for n, make in extra.items()}} if extra else {}
    device = PtxDevice(ONE_SCHEDULE)
    adapted = adapt_unchecked(reference, "sm80", **given)
    return compile_adapted(adapted, lambda _: device, check=False, specialise=specialise)


def qkv(lq: int = L, lk: int = L, heads: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(lq)
    return [torch.randn(2, heads, n, 64, generator=generator).bfloat16() for n in (lq, lk, lk)]


def check(run: AttentionOperator, reference: Callable[..., Tensor], inputs: list[Tensor], **extra: object) -> None:
    """Equal to the reference in fp64."""
    wide = {n: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for n, x in extra.items()}
    with torch.no_grad():
        right = reference(*(t.double() for t in inputs), **wide)
        torch.testing.assert_close(run(*inputs, **extra).double(), right, rtol=2e-2, atol=2e-2)


def refused(run: AttentionOperator, **extra: object) -> CuError:
    with pytest.raises(CuError) as caught, torch.no_grad():
        run(*qkv(), **extra)
    return caught.value


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5


def times(weights: Tensor, v: Tensor) -> Tensor:
    return weights.to(v.dtype) @ v.repeat_interleave(weights.shape[1] // v.shape[1], 1)


def biased(q, k, v, bias):
    s = scores(q, k)
    s = s.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else s + bias
    return times(s.softmax(-1), v)


def documents(q, k, v, doc):
    same = doc[: q.shape[2], None] - doc[None, : k.shape[2]] < 1
    return times(scores(q, k).masked_fill(~same, -torch.inf).softmax(-1), v)


# ---- kinds -----------------------------------------------------------------------------------------------------------


def test_another_kind_of_element_is_refused() -> None:
    run = operator(biased, bias=lambda s: torch.zeros(s.Lq, s.Lk))
    keep = torch.ones(L, L).tril() > 0
    mask = torch.zeros(L, L).masked_fill(~keep, -torch.inf)
    check(run, biased, qkv(), bias=mask)
    check(run, biased, qkv(), bias=mask.bfloat16())
    for other, said in ((keep, "torch.bool"), (keep.long(), "torch.int64"), (1.0, "`bias` is a float")):
        error = refused(run, bias=other)
        assert error.diagnostics[0].code == "CU824" and said in str(error)


def test_an_integer_of_another_width_is_refused() -> None:
    """uint8 wraps in torch, and int64 in a kernel does not."""
    run = operator(documents, doc=lambda s: torch.arange(max(s.Lq, s.Lk)) // 9)
    doc = torch.arange(L) // 9
    check(run, documents, qkv(), doc=doc)
    assert "torch.uint8; the kernel was adapted with torch.int64" in str(refused(run, doc=doc.to(torch.uint8)))


def test_another_rank_or_broadcast_is_refused() -> None:
    run = operator(biased, bias=lambda s: torch.linspace(0, 3, s.Lq)[:, None])
    bias = torch.linspace(-3, 3, L)
    check(run, biased, qkv(), bias=bias[:, None])
    for other in (bias, bias[None], bias[:, None].expand(L, L), bias[None, None, :, None], bias[:5, None]):
        error = refused(run, bias=other)
        assert error.diagnostics[0].code == "CU824" and "adapted with [Lq, 1], which is [40, 1] here" in str(error)


def test_another_kind_is_answered_by_another_specialisation() -> None:
    run = operator(biased, specialise=True, bias=lambda s: torch.linspace(0, 3, s.Lq)[:, None])
    bias = torch.linspace(-3, 3, L)
    table = torch.linspace(-3, 3, 2 * 2 * L * L).view(2, 2, L, L)
    keep = torch.arange(L * L).view(L, L) % 3 > 0
    for other in (bias, bias[:, None], table, table[:1, :1], table[0, 0], table[:, :, :1], keep, bias > 0):
        check(run, biased, qkv(), bias=other)


def capped(q, k, v, cap):
    return times((cap * torch.tanh(scores(q, k) / cap)).softmax(-1), v)


def test_a_number_may_be_a_tensor_and_a_tensor_a_number() -> None:
    run = operator(capped, specialise=True, cap=lambda s: 20.0)
    for cap in (20.0, 5, torch.tensor(2.0), torch.tensor([1.5])):
        check(run, capped, qkv(), cap=cap)
    error = refused(operator(biased, specialise=True, bias=lambda s: torch.zeros(s.Lk)), bias=0.5)
    assert error.diagnostics[0].code == "CU824" and "adapted to this call it is refused" in str(error)


@pytest.mark.parametrize(
    ("cap", "said"),
    [
        (np.float32(5), ""),
        (np.float64(5), ""),
        (np.array([5.0, 5.0]), "`cap` is a ndarray"),
        (10**40, "more than 64 bits"),
        (torch.ones(1, dtype=torch.complex64), "complex numbers"),
        (torch.ones(1, device="meta"), "a meta tensor"),
        (torch.ones(2, dtype=torch.complex64).conj().imag, "`cap` is negated when it is read"),
    ],
)
def test_what_passes_for_a_number(capping: AttentionOperator, cap: object, said: str) -> None:
    if not said:
        check(capping, capped, qkv(), cap=cap)
        return
    error = refused(capping, cap=cap)
    assert error.diagnostics[0].code == "CU821" and said in str(error)


@pytest.fixture(scope="module")
def capping() -> AttentionOperator:
    return operator(capped, cap=lambda s: 20.0)


def flagged(q, k, v, soft=False, table=None):
    s = scores(q, k) / 2 if soft else scores(q, k)
    return times((s if table is None else s + table).softmax(-1), v)


def test_fixed_arguments_take_what_is_equal_to_them_alone() -> None:
    run = operator(flagged)
    for soft in (False, np.bool_(False), 0):
        check(run, flagged, qkv(), soft=soft)
    for given in ({"soft": True}, {"soft": torch.tensor(False)}, {"soft": 0.0}, {"table": np.zeros(2)}):
        assert refused(run, **given).diagnostics[0].code == "CU821"


def attended_by(q, k, v, reach):
    far = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs() > reach
    return times(scores(q, k).masked_fill(far, -torch.inf).softmax(-1), v)


def test_a_flag_where_a_number_was_is_fixed_at_its_value() -> None:
    """Python's True is 1; the specialisation for flags holds for the one that it was made for."""
    run = operator(attended_by, specialise=True, reach=lambda s: 5)
    for reach in (5, True, torch.tensor(7), 5.5, True):
        check(run, attended_by, qkv(), reach=reach)
    assert refused(run, reach=False).diagnostics[0].code == "CU821"


def test_an_index_that_only_fake_tensors_take_is_refused() -> None:
    def keyed(q, k, v, table, place):
        return times((scores(q, k) + table[place]).softmax(-1), v)

    run = operator(keyed, specialise=True, table=lambda s: torch.zeros(9), place=lambda s: torch.arange(s.Lk) % 9)
    place = torch.arange(L) % 9
    check(run, keyed, qkv(), table=torch.arange(9.0), place=place.int())
    for dtype in (torch.int8, torch.int16):
        error = refused(run, table=torch.arange(9.0), place=place.to(dtype))
        assert error.diagnostics[0].code == "CU824" and "the reference fails" in str(error)


# ---- values ----------------------------------------------------------------------------------------------------------


def test_values_that_change_without_a_count_are_read() -> None:
    run = operator(biased, bias=lambda s: torch.linspace(0, 3, s.Lk))
    array = np.linspace(0, 3, L, dtype="float32")
    bias = torch.from_numpy(array)
    check(run, biased, qkv(), bias=bias)
    bias.data.neg_()
    check(run, biased, qkv(), bias=bias)
    array *= -2
    check(run, biased, qkv(), bias=bias)


# ---- gradients -------------------------------------------------------------------------------------------------------


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.linspace(-1, 1, 64))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return times((scores(q, k) + self.sink[torch.arange(k.shape[2]) % 64]).softmax(-1), v)


def test_a_learned_parameter_inside_the_reference_is_refused_like_an_argument() -> None:
    reference = Learned()
    run = operator(reference)
    check(run, reference, qkv())
    with pytest.raises(CuError, match="requires a gradient") as caught:
        run(*qkv())
    assert caught.value.diagnostics[0].code == "CU822"
    reference.requires_grad_(False)
    run(*qkv())


# ---- subscripts ------------------------------------------------------------------------------------------------------


def gathered(q, k, v, table, index):
    return times((scores(q, k) + table[index]).softmax(-1), v)


@pytest.fixture(scope="module")
def gathering() -> AttentionOperator:
    return operator(gathered, table=lambda s: torch.zeros(9), index=lambda s: torch.zeros(s.Lq, s.Lk, dtype=torch.long))


@pytest.mark.parametrize(("index", "said"), [(-1, "is negative"), (9, "is 9, and there are 9 elements")])
def test_a_subscript_out_of_range_is_refused(gathering: AttentionOperator, index: int, said: str) -> None:
    indices = torch.arange(L * L).view(L, L) % 9
    check(gathering, gathered, qkv(), table=torch.arange(9.0), index=indices)
    indices[-1, -1] = index
    error = refused(gathering, table=torch.arange(9.0), index=indices)
    assert error.diagnostics[0].code == "CU490" and said in str(error)


def test_a_subscript_is_checked_whatever_the_size(
    monkeypatch: pytest.MonkeyPatch, gathering: AttentionOperator
) -> None:
    monkeypatch.setattr("cubridge.frontend.reference.requirements.CHECKED_AT_ONCE", 3 * L + 1)
    indices = torch.arange(L * L).view(L, L) % 9
    check(gathering, gathered, qkv(), table=torch.arange(9.0), index=indices)
    for row in (0, 3, L - 1):
        wrong = indices.clone()
        wrong[row, 7] = 9
        assert "is 9, and there are 9" in str(refused(gathering, table=torch.arange(9.0), index=wrong))


def test_a_kernel_reads_inside_of_a_table_whatever_an_index_holds(gathering: AttentionOperator) -> None:
    """A launcher checks no values; the emulator stops at a read outside."""
    launcher, table = gathering.launcher(torch.device("cpu")), torch.arange(9.0)
    index = torch.randint(-(2**31), 2**31 - 1, (L, L), generator=torch.Generator().manual_seed(0))
    got = launcher(*qkv(), {"table": table, "index": index.int()})
    assert isinstance(got, Tensor)
    right = gathered(*(t.double() for t in qkv()), table.double(), index.clamp(0, 8))
    torch.testing.assert_close(got.double(), right, rtol=2e-2, atol=2e-2)


# ---- tensors of one element ------------------------------------------------------------------------------------------


def tempered(q, k, v, temperature, reach):
    far = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs() > reach
    return times((scores(q, k) / temperature.exp()).masked_fill(far, -torch.inf).softmax(-1), v)


def test_a_tensor_of_one_element_is_read_by_the_kernel_and_not_by_the_host() -> None:
    run = operator(tempered, temperature=lambda s: torch.tensor(0.1), reach=lambda s: torch.tensor([9]))
    assert {f.name for f in run.plan.text.contract.captured} == {"temperature", "reach"}
    for temperature, reach in ((0.1, 9), (-1.0, 30), (0.7, 100)):
        check(run, tempered, qkv(), temperature=torch.tensor(temperature), reach=torch.tensor([reach]))


# ---- on the device ---------------------------------------------------------------------------------------------------


def everywhere(q, k, v, bias, doc, temperature):
    """Captures handed on, converted, computed from tensors, of one element, and of sizes alone."""
    i, j = torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)
    bucket = (torch.log((i - j).abs().float() + 1) * 3).long()
    s = scores(q, k) / temperature + bias[j] + torch.cumsum(bias, 0)[j] * 2.0**-6 + bucket * 2.0**-4
    return times(s.masked_fill(doc[: q.shape[2], None] != doc[j], -torch.inf).softmax(-1), v)


@pytest.fixture(scope="module")
def reading_everywhere() -> Adapted:
    given = {
        "bias": lambda s: torch.linspace(0, 1, max(s.Lq, s.Lk)),
        "doc": lambda s: (torch.arange(max(s.Lq, s.Lk)) // 9).int(),
        "temperature": lambda s: torch.tensor(1.5),
    }
    return adapt_unchecked(
        everywhere, "sm80", extra_inputs=lambda shape, _: {n: make(shape) for n, make in given.items()}
    )


def test_captures_of_every_source(reading_everywhere: Adapted) -> None:
    device = PtxDevice(ONE_SCHEDULE)
    run = compile_adapted(reading_everywhere, lambda _: device, check=False)
    bias, doc = torch.linspace(-1, 1, L), (torch.arange(L) // 7).int()
    for temperature in (torch.tensor(1.5), torch.tensor(0.5)):
        check(run, everywhere, qkv(), bias=bias, doc=doc, temperature=temperature)
        bias.neg_()


def test_a_call_reads_no_tensor_on_the_host(reading_everywhere: Adapted) -> None:
    """Tensors on the device `meta` have no values: whoever asks for one fails."""
    meta = torch.device("meta")
    device = FakeDevice(torch_device=meta)
    run = compile_adapted(reading_everywhere, lambda _: device, check=False)
    q, k, v = (t.to(meta) for t in qkv())
    captured = {"bias": torch.linspace(-1, 1, L), "doc": (torch.arange(L) // 7).int(), "temperature": torch.tensor(1.5)}
    for _ in range(2):
        assert run(q, k, v, **{n: x.to(meta) for n, x in captured.items()}).shape == q.shape
    assert len(device.launches) == 2


# ---- sizes -----------------------------------------------------------------------------------------------------------


def hashed(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    return times(scores(q, k).masked_fill((i * 2000003 + j * 17) % 3 == 0, -torch.inf).softmax(-1), v)


def test_sizes_at_which_integers_leave_32_bits_are_refused() -> None:
    adapted, device = adapt_unchecked(hashed, "sm80"), PtxDevice(ONE_SCHEDULE)
    run = compile_adapted(adapted, lambda _: device, check=False)
    most = "17 * Lk + 2000003 * Lq + 2048021504"
    assert f"requires   {most} <= 2147483647    [line " in adapted.reference.explain()
    assert f"{most} <= 2147483647" in adapted.report(Findings((), (), (), Verdict.INTERPRETED, ())).found.preconditions
    check(run, hashed, qkv(49, L))
    with pytest.raises(CuError, match="the call has Lq = 50") as caught:
        run(*qkv(50, L))
    assert caught.value.diagnostics[0].code == "CU823" and "compare quotients" in str(caught.value)
    assert caught.value.diagnostics[0].span.text.startswith("scores(q, k).masked_fill")
    bare = compile_adapted(adapted, lambda _: device, check=False)
    bare.plan = replace(bare.plan, preconditions=())
    with pytest.raises(CuError, match="does not fit the `int` parameter `largest`"):
        bare(*qkv(50, L))


def divided(q, k, v):
    i, j, more = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2]), k.shape[2] - q.shape[2]
    s = (scores(q, k) * (3.0 / more)).masked_fill(j > i + 3 * (k.shape[2] // more), -torch.inf)
    return times(s.softmax(-1), v)


def test_sizes_at_which_a_divisor_is_0_are_refused() -> None:
    run = operator(divided)
    for lq, lk in ((40, 70), (90, 130)):
        check(run, divided, qkv(lq, lk))
    with pytest.raises(CuError, match=r"holds only where Lk != Lq; the call has Lq = 40, Lk = 40") as caught:
        run(*qkv())
    assert caught.value.diagnostics[0].code == "CU823"


# ---- powers ----------------------------------------------------------------------------------------------------------


def retention(q, k, v, gamma):
    lag = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    decay = torch.where(lag >= 0, gamma[:, None, None] ** lag, 0.0)
    return times(scores(q, k).float() * decay / 8, v)


def test_powers_of_captured_numbers_are_exponentials_and_these_must_be_positive() -> None:
    run = operator(retention, gamma=lambda s: 1 - 2.0 ** (-5 - torch.arange(s.Hq) % 8))
    check(run, retention, qkv(L, 70), gamma=torch.tensor([0.9, 1 - 2.0**-13]))
    for base in (0.0, -0.5):
        error = refused(run, gamma=torch.tensor([0.9, base]))
        assert error.diagnostics[0].code == "CU490" and "power of a captured number that is not positive" in str(error)


# ---- fills -----------------------------------------------------------------------------------------------------------


def unscaled(q, k, v, bias):
    return times((q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT + bias).softmax(-1), v)


def test_the_least_number_of_fp32_is_a_fill_of_a_captured_mask() -> None:
    """Its product with LOG2E is no fp32 number any more, also where a row sees nothing else yet."""
    run = operator(unscaled, bias=lambda s: torch.zeros(s.Lq, s.Lk))
    q, k, v = qkv(lk=200)
    bias = torch.full((L, 200), torch.finfo(torch.float32).min).triu(1)
    check(run, unscaled, [q * 0.125, k, v], bias=bias)


# ---- modes of PyTorch ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain() -> AttentionOperator:
    return operator(lambda q, k, v: times(scores(q, k).softmax(-1), v))


def test_under_autocast_inputs_are_cast_as_those_of_sdpa_are(plain: AttentionOperator) -> None:
    wide = [t.float() for t in qkv()]
    with pytest.raises(CuError, match=r"torch\.float32"):
        plain(*wide)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(plain(*wide), plain(*qkv()))
        sdpa = torch.nn.functional.scaled_dot_product_attention(*wide)
    assert sdpa.dtype is torch.bfloat16
    torch.testing.assert_close(plain(*qkv()), sdpa, rtol=2e-2, atol=2e-2)


def test_vmap_says_that_there_is_no_rule(plain: AttentionOperator) -> None:
    with pytest.raises(CuError, match="no rule for vmap"):
        torch.vmap(plain)(*(t[:, None] for t in qkv()))


def test_a_call_past_the_dispatcher_gives_what_the_operator_of_pytorch_gives(gathering: AttentionOperator) -> None:
    table, index = torch.arange(9.0), torch.arange(L * L).view(L, L) % 9
    bare = getattr(torch.ops.cubridge, gathering.name.split("::")[1])
    assert torch.equal(bare(*qkv(), [table, index], [], [True, True]), gathering(*qkv(), table, index))


# ---- no keys ---------------------------------------------------------------------------------------------------------


def with_sink(q, k, v, sink):
    s = torch.cat((scores(q, k), sink.view(1, -1, 1, 1).expand(*q.shape[:3], 1).to(q.dtype)), -1)
    return times(s.softmax(-1)[..., :-1], v), torch.logsumexp(s, -1)


def test_without_keys_the_lse_of_a_sink_is_refused_and_others_are_minus_infinity(plain: AttentionOperator) -> None:
    run = operator(with_sink, sink=lambda s: torch.linspace(-1, 1, s.Hq))
    sink, (q, k, v) = torch.linspace(-1, 1, 2), qkv()
    out, lse = run(q, k, v, sink)
    right = with_sink(*(t.double() for t in (q, k, v)), sink.double())
    torch.testing.assert_close(out.double(), right[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse.double(), right[1], rtol=1e-4, atol=1e-4)
    with pytest.raises(CuError, match="there are no keys") as caught:
        run(q, k[:, :, :0], v[:, :, :0], sink)
    assert caught.value.diagnostics[0].code == "CU826"
    assert not plain(q, k[:, :, :0], v[:, :, :0]).any()
