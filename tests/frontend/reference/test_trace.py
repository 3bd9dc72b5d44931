"""Tracing beyond the table: the oracle, captures, the comparison that guards every trace, budgets, other dtypes."""
# pyright: basic

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cubridge.frontend.reference.compare import compare
from cubridge.frontend.reference.explain import explain
from cubridge.frontend.reference.load import Reference, load_reference
from cubridge.frontend.reference.trace import trace
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import BoolLit
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Shape
from cubridge.ir.types import DType
from tests.support.variants import EXAMPLES

SHAPE = Shape(1, 4, 2, 9, 13, 8)


def repeated(x, q):
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)


def causal(q, k, v):
    s = q @ repeated(k, q).mT * q.shape[-1] ** -0.5
    s = s.masked_fill(torch.ones(q.shape[2], k.shape[2]).tril(-1) == 0, -math.inf)
    return s.softmax(-1) @ repeated(v, q), s.logsumexp(-1)


def inputs(shape: Shape, dtype=torch.float32):
    torch.manual_seed(0)
    q = torch.randn(shape.B, shape.Hq, shape.Lq, shape.D).to(dtype)
    k, v = (torch.randn(shape.B, shape.Hk, shape.Lk, shape.D).to(dtype) for _ in range(2))
    return q, k, v


def compute_captures(traced, shape: Shape, extra, qkv=None):
    return traced.captures(shape.sizes(), {**extra, **(qkv or {})})


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_the_oracle_is_the_reference_in_fp64() -> None:
    traced = trace(Reference.of(causal))
    q, k, v = inputs(SHAPE, torch.bfloat16)
    out, lse = traced.oracle(q, k, v, {})
    want, want_lse = causal(q.double(), k.double(), v.double())
    assert out.dtype == torch.float64
    torch.testing.assert_close(out[:, :, 1:], want[:, :, 1:], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(lse[:, :, 1:], want_lse[:, :, 1:], rtol=1e-12, atol=1e-12)


def test_rows_without_keys_are_zero_and_minus_infinity() -> None:
    traced = trace(Reference.of(causal))
    out, lse = traced.oracle(*inputs(SHAPE), {})
    assert bool((out[:, :, 0] == 0).all())
    assert bool((lse[:, :, 0] == -math.inf).all())
    assert any("reference gives NaN" in w.message for w in traced.spec.warnings)


def test_casts_inside_the_reference_become_fp64() -> None:
    def rounds(q, k, v):
        s = (q.float() @ repeated(k, q).float().mT).to(torch.bfloat16)
        return s.float().softmax(-1).to(v.dtype) @ repeated(v, q)

    traced = trace(Reference.of(rounds))
    q, k, v = (t.double() for t in inputs(SHAPE))
    want = (q @ repeated(k, q).mT).softmax(-1) @ repeated(v, q)
    torch.testing.assert_close(traced.oracle(q, k, v, {})[0], want, rtol=1e-12, atol=1e-12)


def test_constants_stay_as_the_reference_rounds_them() -> None:
    def rounded(q, k, v):
        return (q @ repeated(k, q).mT * torch.full((), 0.1, dtype=q.dtype)).softmax(-1) @ repeated(v, q)

    traced = trace(Reference.of(rounded))
    assert print_expr(traced.spec.score) == f"s * {float(torch.tensor(0.1, dtype=torch.bfloat16))}"


def test_the_half_precision_reference() -> None:
    traced = trace(Reference.of(lambda q, k, v: causal(q, k, v)[0]))
    q, k, v = inputs(SHAPE, torch.bfloat16)
    assert traced.half(q, k, v, {}).dtype == torch.bfloat16


@pytest.mark.parametrize("raised", [ValueError("no such luck"), BaseException("x"), GeneratorExit()], ids=repr)
def test_a_reference_that_fails_on_numbers_alone(raised: BaseException) -> None:
    faults: list[BaseException] = []

    def failing(q, k, v):
        if faults:
            raise faults[0]
        return causal(q, k, v)[0]

    traced = trace(Reference.of(failing))
    faults.append(raised)
    with pytest.raises(CuError, match=r"test_trace\.py:\d+:.*CU474.*" + type(raised).__name__):
        traced.half(*inputs(SHAPE, torch.bfloat16), {})
    faults[0] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        traced.half(*inputs(SHAPE, torch.bfloat16), {})


# ---- captures --------------------------------------------------------------------------------------------------------


def with_documents(q, k, v, starts, slope):
    doc = starts.cumsum(-1)
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = q.float() @ repeated(k, q).float().mT + slope[:, None, None] * (j - i)
    keep = (doc[:, : q.shape[2], None] == doc[:, None]) & (j <= i)
    return s.masked_fill(~keep[:, None], -math.inf).softmax(-1).to(v.dtype) @ repeated(v, q)


def documents_inputs(shape, device):
    return {"starts": (torch.arange(shape.Lk) % 4 == 0).repeat(shape.B, 1), "slope": torch.rand(shape.Hq)}


def test_captures_are_materialised_for_a_launch() -> None:
    shape = Shape(2, 4, 2, 11, 11, 8)
    traced = trace(Reference.of(with_documents, documents_inputs))
    extra = traced.extra(shape)
    found = compute_captures(traced, shape, extra)
    assert {n: (tuple(t.shape), t.dtype) for n, t in found.items()} == {
        "cumsum": ((2, 11), torch.int32),
        "slope": ((4,), torch.float32),
    }
    assert torch.equal(found["cumsum"], extra["starts"].cumsum(-1).int())


def test_the_bits_of_a_capture_are_those_of_its_own_type() -> None:
    def signed(q, k, v, w):
        sign = (w.view(torch.int32) >> 31).to(q.dtype)
        return (q @ repeated(k, q).mT + sign[:, None, None] * torch.arange(k.shape[2])).softmax(-1) @ repeated(v, q)

    traced = trace(Reference.of(signed, lambda shape, device: {"w": torch.linspace(-1, 1, shape.Hq)}))
    w = torch.tensor([-1.0, 0.5, 2.0, -0.0])
    assert torch.equal(compute_captures(traced, SHAPE, {"w": w})["view"], w.view(torch.int32))


def test_factors_of_q_and_k_need_q_and_k() -> None:
    def cosine(q, k, v):
        q, k = torch.nn.functional.normalize(q, dim=-1), torch.nn.functional.normalize(k, dim=-1)
        return (q @ repeated(k, q).mT * 10).softmax(-1) @ repeated(v, q)

    traced = trace(Reference.of(cosine))
    q, k, v = inputs(SHAPE)
    found = compute_captures(traced, SHAPE, {}, {"q": q, "k": k, "v": v})
    torch.testing.assert_close(found["k_factor"], 1 / k.norm(dim=-1))


def test_a_negative_subscript_is_refused_at_the_launch() -> None:
    def gathers(q, k, v, table, place):
        return (q.float() @ repeated(k, q).float().mT + table[place]).softmax(-1).to(v.dtype) @ repeated(v, q)

    def extra(shape, device):
        return {"table": torch.rand(7), "place": torch.arange(shape.Lk) % 7}

    traced = trace(Reference.of(gathers, extra))
    given = traced.extra(SHAPE)
    compute_captures(traced, SHAPE, given)
    with pytest.raises(CuError, match="CU490") as caught:
        compute_captures(traced, SHAPE, {**given, "place": given["place"] - 1})
    assert "table[place]" in str(caught.value)


def test_a_capture_whose_extent_follows_no_size_may_only_be_computed_from() -> None:
    def lengths(shape, device):
        return {"ends": torch.arange(3, shape.Lk, 5 + shape.Lq % 3)}

    def bucketized(q, k, v, ends):
        doc = torch.bucketize(torch.arange(k.shape[2]), ends, right=True)
        return (q @ repeated(k, q).mT).masked_fill(doc % 2 == 1, -math.inf).softmax(-1) @ repeated(v, q)

    assert [c.name for c in trace(Reference.of(bucketized, lengths)).spec.captures] == ["bucketize"]

    def read_directly(q, k, v, ends):
        return (q @ repeated(k, q).mT * ends[torch.arange(k.shape[2]) % 2]).softmax(-1) @ repeated(v, q)

    with pytest.raises(CuError, match="CU488"):
        trace(Reference.of(read_directly, lengths))


# ---- the comparison --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("mask", "j < i + 1"),
        ("mask", "j <= i - 2"),
        ("mask", "j < i + Lk - Lq"),
        ("score", "s"),
        ("score", "s * D ** -0.5 + 0.001 * j"),
        ("finalize", "acc"),
        ("lse", "(m + log(R1)) / LN2"),
        ("kv_head", "h % Hk"),
    ],
)
def test_a_wrong_reading_is_refused(part: str, text: str) -> None:
    traced = trace(Reference.of(causal))
    assert compare(traced).mask == traced.spec.mask
    wrong = replace(traced, spec=replace(traced.spec, **{part: parse_expr(text)}))
    with pytest.raises(CuError, match="CU487"):
        compare(wrong)


def test_a_mask_that_only_long_sequences_meet_is_compared() -> None:
    def windowed(q, k, v):
        lag = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
        return (q @ repeated(k, q).mT).masked_fill(lag.abs() > 400, -math.inf).softmax(-1) @ repeated(v, q)

    traced = trace(Reference.of(windowed))
    assert print_expr(traced.spec.mask) == "abs(i - j) < 401"
    with pytest.raises(CuError, match="CU487"):
        compare(replace(traced, spec=replace(traced.spec, mask=BoolLit(True))))


# ---- sizes, budgets, dtypes ------------------------------------------------------------------------------------------


def test_a_given_shape_is_favoured() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, q, k, v):
            outs = [(q[:, h] @ k[:, h].mT).softmax(-1) @ v[:, h] for h in range(q.shape[1])]
            return torch.stack(outs, 1)

    traced = trace(Reference.of(Fixed()), Shape(1, 4, 4, 128, 128, 64))
    assert [print_expr(p.condition) for p in traced.spec.preconditions] == ["Hk == 4", "Hq == Hk"]


def test_a_module_of_fixed_heads_finds_its_head_count() -> None:
    class Slopes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("slopes", torch.rand(12))

        def forward(self, q, k, v):
            s = q @ repeated(k, q).mT + (self.slopes[:, None, None] * torch.arange(k.shape[2])).to(q.dtype)
            return s.softmax(-1) @ repeated(v, q)

    traced = trace(Reference.of(Slopes()))
    assert print_expr(traced.spec.preconditions[-1].condition) == "Hq == 12"


def test_a_loop_over_positions_ends_in_time() -> None:
    def loop(q, k, v):
        keep = torch.zeros(q.shape[2], k.shape[2], dtype=torch.bool)
        for i in range(q.shape[2]):
            for j in range(k.shape[2]):
                keep[i, j] = j <= i
        return (q @ repeated(k, q).mT).masked_fill(~keep, -math.inf).softmax(-1) @ repeated(v, q)

    with pytest.raises(CuError, match="CU489") as caught:
        trace(Reference.of(loop))
    assert "torch.arange" in str(caught.value)


def test_fp16_cannot_hold_the_fill() -> None:
    def filled(q, k, v):
        s = q @ repeated(k, q).mT
        return s.masked_fill(torch.ones_like(s).tril() == 0, -1e9).softmax(-1) @ repeated(v, q)

    assert not trace(Reference.of(filled), dtype=torch.bfloat16).spec.warnings
    messages = [w.message for w in trace(Reference.of(filled), dtype=torch.float16).spec.warnings]
    assert messages == ["the reference itself overflows: fp16 cannot hold -1e+09"]


def test_smallest_half_is_a_bias_and_smallest_float_a_mask() -> None:
    def filled(q, k, v):
        s = q @ repeated(k, q).mT
        return s.masked_fill(torch.ones_like(s).tril() == 0, torch.finfo(q.dtype).min).softmax(-1) @ repeated(v, q)

    assert print_expr(trace(Reference.of(filled), dtype=torch.bfloat16).spec.mask) == "j <= i"
    half = trace(Reference.of(filled), dtype=torch.float16).spec
    assert print_expr(half.score) == "where(j <= i, s, -65504)"
    assert "is a bias, not a mask" in half.warnings[0].message


def test_what_cannot_be_read_for_any_number_of_heads_is_read_for_those_asked() -> None:
    """Slopes for the next power of two, of which every second comes first."""

    def alibi(q, k, v):
        heads = q.shape[1]
        power = 2 ** math.ceil(math.log2(heads))
        slopes = (2.0 ** -(torch.arange(1, power + 1) * (8 / power))).view(1, power, 1, 1)
        if power != heads:
            slopes = torch.cat([slopes[:, 1::2], slopes[:, ::2]], dim=1)[:, :heads]
        return ((q @ repeated(k, q).mT).float() + torch.arange(k.shape[2]) * slopes).softmax(-1).to(v.dtype) @ repeated(
            v, q
        )

    spec = trace(Reference.of(alibi), Shape(2, 6, 2, 40, 56, 64)).spec
    assert {"Hk == 2", "Hq == 6"} <= {print_expr(p.condition) for p in spec.preconditions}


def test_a_reference_for_one_length_only() -> None:
    mask = torch.ones(40, 40, dtype=torch.bool).tril()

    def fixed(q, k, v):
        return (q @ repeated(k, q).mT).masked_fill(~mask, -math.inf).softmax(-1) @ repeated(v, q)

    for shape in (None, Shape(1, 4, 2, 40, 40, 64)):
        spec = trace(Reference.of(fixed), shape).spec
        assert {print_expr(p.condition) for p in spec.preconditions} == {"Lq == 40", "Lk == 40"}
    assert any("40" in r.message and "Lq" in r.message for r in spec.specialised), "both lengths are named"


# ---- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["prefix_lm", "alibi", "sliding_window_two_sided", "attention_sink"])
def test_explain(name: str) -> None:
    path = EXAMPLES / f"{name}.py"
    found = explain(trace(load_reference(path))).replace(str(path), f"{name}.py")
    expected = Path(__file__).parent / "explained" / f"{name}.txt"
    assert found == expected.read_text()


def test_every_trace_of_one_reference_is_the_same() -> None:
    first, second = (trace(load_reference(EXAMPLES / "share_question.py")) for _ in range(2))
    assert first.spec == second.spec
    assert explain(first) == explain(second)


# ---- the function itself ---------------------------------------------------------------------------------------------


def test_a_branch_on_a_length_of_one_becomes_a_precondition() -> None:
    def decoding(q, k, v):
        s = q @ repeated(k, q).mT
        if q.shape[2] != 1:
            s = s.masked_fill(torch.ones_like(s).tril() == 0, -math.inf)
        return s.softmax(-1) @ repeated(v, q)

    spec = trace(Reference.of(decoding)).spec
    assert [print_expr(p.condition) for p in spec.preconditions] == ["Lq >= 2"]


def test_one_head_for_all_queries_is_read_alike() -> None:
    def repeats_if_needed(q, k, v):
        if q.shape[1] != k.shape[1]:
            k, v = repeated(k, q), repeated(v, q)
        return (q @ k.mT).softmax(-1) @ v

    assert not trace(Reference.of(repeats_if_needed)).spec.preconditions


def test_a_function_that_changes_from_call_to_call_is_refused() -> None:
    calls: list[int] = []

    def counting(q, k, v):
        calls.append(1)
        return (q @ repeated(k, q).mT * len(calls)).softmax(-1) @ repeated(v, q)

    with pytest.raises(CuError, match="CU487") as caught:
        trace(Reference.of(counting))
    assert "than the run that was recorded" in str(caught.value)


@pytest.mark.parametrize(
    ("doubles", "message"),
    [
        (lambda q: q.dtype == torch.float32, "something else in float32 than in bfloat16, in which it was read"),
        (lambda q: q.is_contiguous(), "something else for q, k and v of other strides than it was read with"),
        (lambda q: q.stride(1) < q.stride(2), "something else for q, k and v of other strides"),
        (lambda q: torch.is_grad_enabled(), "something else where `is_grad_enabled` is True than it was read with"),
        (lambda q: torch.is_autocast_enabled("cpu"), "something else where `is_autocast_enabled` is True"),
    ],
)
def test_a_branch_on_type_strides_or_modes_is_refused(doubles, message: str) -> None:
    def branches(q, k, v):
        return (q @ repeated(k, q).mT * (2 if doubles(q) else 1)).softmax(-1) @ repeated(v, q)

    with pytest.raises(CuError, match="CU487") as caught:
        trace(Reference.of(branches))
    assert message in str(caught.value)


def test_a_branch_on_the_other_half_type_or_the_device_is_a_warning() -> None:
    def branches(q, k, v):
        if not q.is_contiguous() or q.is_cuda:
            q = q.contiguous()
        return (q @ repeated(k, q).mT * (2 if q.dtype is torch.float16 else 1)).softmax(-1) @ repeated(v, q)

    assert [w.message for w in trace(Reference.of(branches)).spec.warnings] == [
        "in float16 the function gives something else than in bfloat16, in which it was read",
        "the function was read on a CPU, where `is_cuda` is False",
    ]
    with pytest.raises(CuError, match="something else in float32 than in float16"):
        trace(Reference.of(branches), dtype=torch.float16)


def test_a_flag_that_is_neither_0_nor_1_is_refused_at_the_launch() -> None:
    def padded(q, k, v, mask):
        s = q @ repeated(k, q).mT + (1.0 - mask[:, None, None, :].to(q.dtype)) * -1e9
        return s.softmax(-1) @ repeated(v, q)

    traced = trace(Reference.of(padded, lambda shape, device: {"mask": torch.ones(shape.B, shape.Lk)}))
    assert [a.message for a in traced.spec.assumptions if "mask" in a.message][-1] == "`mask` holds 0 and 1 alone"
    with pytest.raises(CuError, match="holds other values"):
        compute_captures(traced, SHAPE, {"mask": torch.full((SHAPE.B, SHAPE.Lk), 0.5)})


def test_integers_past_32_bits_and_floats_for_integers_are_refused_at_the_launch() -> None:
    def documents(q, k, v, ids, width):
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
        keep = (ids[:, None, None, :] == ids[:, None, :1, None]) & ((i - j).abs() < width)
        return (q @ repeated(k, q).mT).masked_fill(~keep, -torch.inf).softmax(-1) @ repeated(v, q)

    extra = lambda shape, device: {"ids": torch.zeros(shape.B, shape.Lk, dtype=torch.long), "width": 9}  # noqa: E731
    traced = trace(Reference.of(documents, extra))
    ids = torch.full((SHAPE.B, SHAPE.Lk), 5)
    for _ in range(2):
        assert compute_captures(traced, SHAPE, {"ids": ids, "width": 9})["ids"].dtype == torch.int32
    ids += 1 << 31  # the same tensor, changed
    with pytest.raises(CuError, match="`ids` holds integers that 32 bits do not hold"):
        compute_captures(traced, SHAPE, {"ids": ids, "width": 9})
    for narrow in (torch.int16, torch.uint32, torch.uint64):
        ids = torch.ones(SHAPE.B, SHAPE.Lk, dtype=narrow)
        assert compute_captures(traced, SHAPE, {"ids": ids, "width": 9})["ids"].dtype == torch.int32
    for past in (torch.uint32, torch.uint64):
        ids = torch.full((SHAPE.B, SHAPE.Lk), torch.iinfo(past).max, dtype=past)
        with pytest.raises(CuError, match="`ids` holds integers that 32 bits do not hold"):
            compute_captures(traced, SHAPE, {"ids": ids, "width": 9})
    with pytest.raises(CuError, match=r"`width` is torch\.float64, and was an integer"):
        compute_captures(traced, SHAPE, {"ids": ids * 0, "width": 7.5})


def test_a_sum_of_integers_is_an_integer() -> None:
    def documents(q, k, v, cuts):
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[:, None]
        of_row, of_key = (((x >= cuts) * (1 << 24)).sum(-1) for x in (i, j))
        s = (q @ repeated(k, q).mT).masked_fill(of_row[:, None] != of_key, -torch.inf)
        return s.softmax(-1) @ repeated(v, q)

    traced = trace(Reference.of(documents, lambda shape, device: {"cuts": torch.tensor([0, 7, 11])}))
    assert {c.dtype for c in traced.spec.captures} == {DType.I32}
    found = compute_captures(traced, SHAPE, {"cuts": torch.tensor([0, 7, 11])})
    assert {int(x) for x in found["computed2"]} == {n << 24 for n in (1, 2, 3)}


def test_an_output_of_another_type_than_q_is_told() -> None:
    def wide(q, k, v):
        return causal(q, k, v)[0].float()

    told = "the reference returns float32, the operator the element type of q"
    assert [told in [r.message for r in trace(Reference.of(f)).spec.specialised] for f in (wide, causal)] == [
        True,
        False,
    ]
