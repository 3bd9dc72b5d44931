"""Kernels that are right at every length that a run has, and wrong at longer ones."""
# pyright: basic

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest
import torch

from cubridge.driver.adapt import adapt, adapt_unchecked
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.reference import read_reference
from cubridge.driver.transfer import transfer, transfer_unverified
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import AttentionSpec, Shape
from cubridge.judge import long_keys
from cubridge.judge.attention import full_attention
from cubridge.judge.long_lengths import long_fault, run_long_lengths
from cubridge.passes.pipeline import parse_text
from tests.judge.proof.targets import changed, spec, target
from tests.judge.proof.wrong import WRONG, Wrong
from tests.support.command import fails
from tests.support.readings import reading
from tests.support.specs import softmax_spec
from tests.support.variants import EXAMPLES, VARIANTS

KERNELS = ("sm80", "sm90a")


@cache
def source(kernel: str) -> Kernel:
    return lift_kernel(choose_kernel(kernel), "bf16", 64).kernel


def spec_of(variant: str) -> AttentionSpec:
    return reading(variant).attention.spec


def edited_text(kernel: str, *changes: tuple[str, str]) -> Kernel:
    """The CuIR of a packaged text after changes of parts that occur once."""
    chosen = choose_kernel(kernel)
    text = chosen.text.source.data.decode()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return lift_kernel(chosen, "bf16", 64, SourceFile("edited.cu", text.encode())).kernel


def edited(kernel: Kernel, old: str, new: str) -> Kernel:
    text = to_text(kernel)
    assert text.count(old) == 1, text
    return parse(SourceFile("edited.cuir", text.replace(old, new).encode()))


def found(kernel: Kernel, spec: AttentionSpec) -> Diagnostic:
    fault = long_fault(kernel, spec)
    assert fault is not None
    assert fault.code == "CU317", fault
    assert all(part in fault.message for part in ("b=", "h=", "Lq=", "Lk=", "Hq="))
    return fault


def line(fault: Diagnostic) -> str:
    return fault.span.file.line(fault.span.location[0])


EACH_ON_ONE = [
    pytest.param(variant, kernel, marks=() if (n + at) % 2 else pytest.mark.slow)
    for n, variant in enumerate(VARIANTS)
    for at, kernel in enumerate(KERNELS)
]
"""Every variant, on one of the kernels; on the other in the slow set."""


@pytest.mark.parametrize(("variant", "kernel"), EACH_ON_ONE)
def test_right_targets_pass(variant: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_keys, "of_the_reference", nullcontext)  # no size is passed over
    spec = spec_of(variant)
    assert long_fault(transfer_unverified(source(kernel), spec), spec) is None


@pytest.mark.parametrize("kernel", KERNELS)
def test_sources_pass(kernel: str) -> None:
    assert long_fault(source(kernel), full_attention().spec) is None


SCALARS = {
    "lag": ("<= RESCALE_LAG ?", "<= 120.f ?", "row_update", "where sums hold 2^64"),
    "lag of 80": ("<= RESCALE_LAG ?", "<= 80.f ?", "row_update", "where sums hold 2^64"),
    "first reference": ("row.m[r] = -INFINITY;", "row.m[r] = -1e4f;", "row_update", "has the weight 0"),
    "largest reference": ("row_max(s[r]));", "fminf(row_max(s[r]), 2000.f));", "row_update", "has the weight nan"),
    "least exponent": ("- row.m_exponent[r]);", "- fmaxf(row.m_exponent[r], -23.f));", "row_", "has the weight"),
    "largest sum": ("add_lanes(row.l[r])", "fminf(add_lanes(row.l[r]), 1e4f)", "row_finalize", "has the weight"),
    "largest of the sums": (
        "add_lanes(row.l[r])",
        "fminf(add_lanes(row.l[r]), 1e6f)",
        "row_finalize",
        "has the weight",
    ),
    "least weight": (
        "exp2_approx(s[r][c] * p.exponent_scale - row.m_exponent[r])",
        "fmaxf(exp2_approx(s[r][c] * p.exponent_scale - row.m_exponent[r]), 1e-9f)",
        "row_probs",
        "and in the reference 0",
    ),
}
"""Numbers of the row regions that matter for scores that no small run has."""


@pytest.mark.parametrize("name", SCALARS)
def test_scores_of_any_size(name: str) -> None:
    old, new, region, says = SCALARS[name]
    fault = found(edited_text("sm80", (old, new)), full_attention().spec)
    assert says in fault.message and region in line(fault)


def test_a_lag_that_sums_hold() -> None:
    assert long_fault(edited_text("sm80", ("<= RESCALE_LAG ?", "<= 40.f ?")), full_attention().spec) is None


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "keep", ["(j <= i) | (i > 3000)", "(j <= i) & (j > i - 100000)", "(j <= i) & (Lk < 5000)", "(j <= i) & (i // 300000 == 0)",
             "(j <= i) & ((h < 100) | (j < i))", "(j <= i) | ((b == 7) & (j == 4000))"]
)  # fmt: skip
def test_a_mask_that_differs_further_on(keep: str, kernel: str) -> None:
    pipeline = parse_text(f'rewrite-mask{{keep="{keep}"}},infer-kv-range')
    with pytest.raises(CuError) as error:
        transfer(source(kernel), softmax_spec(mask="j <= i"), pipeline)
    (fault,) = error.value.diagnostics
    assert fault.code == "CU317"
    assert error.value.exit_code == 3
    assert "key j=" in fault.message


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("ceil_div(p.len_kv, BLOCK_KV)", "imin(ceil_div(p.len_kv, BLOCK_KV), 64)", "KeySequence"),
        ("tile.h = head % p.heads_q;", "tile.h = imin(head % p.heads_q, 40);", "tile.h ="),
        ("tile.b = head / p.heads_q;", "tile.b = imin(head / p.heads_q, 3);", "tile.b ="),
        ("@host D ** -0.5 * LOG2E", "@host where(Lk > 4000, 1.0, D ** -0.5) * LOG2E", "exponent_scale"),
    ],
)
def test_a_text_that_differs_further_on(old: str, new: str, at: str, kernel: str) -> None:
    assert at in line(found(edited_text(kernel, (old, new)), full_attention().spec))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("region", "new", "at"),
    [
        ("score", "s = s + where(i - j > 5000, 0.5, 0.0)", "s = s +"),
        ("score", "s = where(tile.h >= 77, 0.9 * s, s)", "s = where"),
        ("mask", "s = where((j < Lk) & ((Lk < 5000) | (j != Lk - 2)), s, -inf)", "s = where"),
    ],
)
def test_a_region_that_differs_further_on(region: str, new: str, at: str, kernel: str) -> None:
    head = f"def {region}(s, kv_start, tile):\n    "
    old = {"score": "pass", "mask": "s = where(j < Lk, s, -inf)"}[region]
    assert at in line(found(edited(source(kernel), head + old, head + new), full_attention().spec))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("partial_rowsum(s)", "partial_rowsum(where(j < 70000, s, 0.0))"),
        ("    o = o * inv", "    o = o * where(i < 20000, inv, 1.0)"),
        ("+ log2(l)) * LN2", "+ log2(l)) * where(Lk < 5000, LN2, 1.0)"),
        ("return keys.hi - 1 - t", "return maximum(keys.hi - 1 - t, keys.hi - 1000)"),
        ("tile.hk = tile.h // (Hq // Hk)", "tile.hk = minimum(tile.h // (Hq // Hk), 6)"),
        ("tile.q_start = (p.q_blocks - 1 -", "tile.q_start = (minimum(p.q_blocks, 500) - 1 -"),
    ],
)
def test_other_parts_that_differ_further_on(old: str, new: str) -> None:
    fault = long_fault(edited(source("sm80"), old, new), full_attention().spec)
    assert fault is not None
    assert fault.code == "CU317"


def seen(wrong: Wrong) -> bool:
    try:
        return long_fault(changed(wrong.case, (wrong.old, wrong.new)), spec(wrong.case)) is not None
    except CuError:
        return True


@pytest.mark.parametrize("wrong", [w for w in WRONG if w.points], ids=lambda w: f"{w.part}: {w.new[:60]}")
def test_what_runs_do_not_show(wrong: Wrong) -> None:
    """Limits of sizes, marks of literals, scores far from 0, rising scores, large sums and values, captures past 1 and lengths."""
    assert seen(wrong)


FURTHER = {
    "a last tile of one key": ("mask", "where(j < Lk, s, -inf)", "where((j < Lk) & ((Lk % 128 != 1) | (j < Lk - 1)), s, -inf)"),
    "a mark that is a float": ("mask", "where(j < Lk, s, -inf)", "where((j < Lk) & (f32(j) != 7001.0), s, -inf)"),
    "what fp32 rounds": ("mask", "where(j < Lk, s, -inf)", "where(f32(j) * 128.0 < f32(Lk - 1) * 128.0 + 0.5, s, -inf)"),
    "scores that fp32 rounds": ("score", "    pass", "    s = (s + f32(j) * 16.0) - f32(j) * 16.0"),
    "weights that overflow in fp32": ("row_update", "<= 8.0", "<= 130.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", FURTHER)
def test_further_faults(name: str) -> None:
    region, old, new = FURTHER[name]
    head = f"def {region}("
    before, after = to_text(source("sm80")).split(head)
    assert old in after
    wrong = parse(SourceFile("edited.cuir", (before + head + after.replace(old, new, 1)).encode()))
    assert long_fault(wrong, full_attention().spec) is not None


def test_a_difference_of_exponentials() -> None:
    """Near a score of 0 fp32 keeps few digits of it; a kernel that is off by more is found."""
    case = "softpick of a maximum"
    assert long_fault(target(case), spec(case)) is None
    assert seen(Wrong(case, "u = exp2(-row.m_exponent)", "u = exp2(-row.m_exponent) * 1.0001", "weight"))


def test_a_counter_of_tiles() -> None:
    """Right for the first 15 key tiles of a row."""
    counted = changed(
        "full",
        ("row_state(\n", "row_state(\n    seen=Row(f32),\n"),
        ("    row.m = -inf\n", "    row.m = -inf\n    row.seen = 0.0\n"),
        ("    row.m = m_new\n", "    row.m = m_new\n    row.seen = row.seen + 1.0\n"),
        ("partial_rowsum(s)", "partial_rowsum(where(row.seen < 16.0, s, 0.0))"),
    )
    assert long_fault(counted, spec("full")) is not None


def test_points_are_counted() -> None:
    test = run_long_lengths(source("sm80"), full_attention().spec)
    assert test.fault is None
    assert test.points > 100_000


def test_reading_past_a_captured_tensor_further_on() -> None:
    spec = spec_of("relative_position_table")
    target = transfer_unverified(source("sm80"), spec)
    wrong = edited(target, "by_distance=Captured(f32, Hq, ", "by_distance=Captured(f32, minimum(Hq, 100), ")
    fault = long_fault(wrong, spec)
    assert fault is not None
    assert fault.code == "CU312"
    assert "Lk=" in fault.notes[-1].message


def test_run_refuses_an_edited_target(tmp_path: Path) -> None:
    spec = spec_of("causal_top_left")
    target = to_text(transfer_unverified(source("sm80"), spec))
    old = next(line for line in target.splitlines() if "s = where(j <=" in line)
    new = old.replace("s = where(j <=", "s = where((i > 3000) | (j <=").replace(", s, -inf", "), s, -inf")
    file = tmp_path / "target.cuir"
    file.write_text(target.replace(old, new))
    ended = fails(["run", file, EXAMPLES / "causal_top_left.py"], "CU317", 3)
    assert "key j=" in ended.err


def test_adapting_by_a_pipeline_that_is_wrong_further_on() -> None:
    pipeline = parse_text('rewrite-mask{keep="(j <= i) | (i > 3000)"},infer-kv-range')
    with pytest.raises(CuError, match="key j=") as error:
        adapt(EXAMPLES / "causal_top_left.py", pipeline=pipeline)
    assert error.value.exit_code == 3


def test_adapting_a_text_that_is_wrong_further_on(tmp_path: Path) -> None:
    text = choose_kernel("sm80").text
    (headers,) = text.include_dirs
    contract = (headers / "sm80" / "attention_forward.toml").read_text()
    (tmp_path / "attention_forward.toml").write_text(contract.replace('include = ".."', f'include = "{headers}"'))
    wrong = text.source.data.decode().replace("tile.b = head / p.heads_q", "tile.b = imin(head / p.heads_q, 3)")
    (tmp_path / "attention_forward.cu").write_text(wrong)
    with pytest.raises(CuError, match="batch b=4 is produced 0 times"):
        adapt_unchecked(EXAMPLES / "full.py", str(tmp_path / "attention_forward.cu"))


def test_captured_booleans_choose_and_mask() -> None:
    def extra_inputs(shape, device):
        return {"alive": torch.arange(shape.Lq).expand(shape.B, -1) % 13 > 0}

    def attention(q, k, v, alive):
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        s = torch.where(alive[:, None, :, None], q @ k.mT, 0.5 * (q @ k.mT))
        keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril() ^ alive[:, None, :, None]
        return s.masked_fill(~keep, -torch.inf).softmax(-1) @ v

    spec = read_reference(attention, extra_inputs=extra_inputs).attention.spec
    assert long_fault(transfer_unverified(source("sm80"), spec), spec) is None


def test_a_captured_divisor_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_keys, "of_the_reference", nullcontext)

    def extra_inputs(shape, device):
        return {"chunk": torch.arange(shape.Lq) % 5 + 3}

    def attention(q, k, v, chunk):
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
        keep = j // chunk[:, None] <= i // chunk[:, None]
        return (q @ k.mT).masked_fill(~keep, -torch.inf).softmax(-1) @ v

    spec = read_reference(attention, extra_inputs=extra_inputs).attention.spec
    assert long_fault(transfer_unverified(source("sm80"), spec), spec) is None


def test_a_captured_factor_is_one_that_a_launch_takes() -> None:
    def attention(q, k, v, stride):
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        far = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])) * stride > 60
        return (q @ k.mT).masked_fill(far, -torch.inf).softmax(-1) @ v

    spec = read_reference(attention, extra_inputs=lambda shape, device: {"stride": 3}).attention.spec
    assert long_fault(transfer_unverified(source("sm80"), spec), spec) is None


def test_a_captured_exponent_is_one_that_fp32_holds() -> None:
    slopes = torch.zeros(4)

    def attention(q, k, v):
        far = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs()
        return (q @ k.mT - torch.exp(slopes)[:, None, None] * far).softmax(-1) @ v

    spec = read_reference(attention, shape=Shape(1, 4, 4, 40, 50, 64)).attention.spec
    assert long_fault(transfer_unverified(source("sm80"), spec), spec) is None


def test_a_size_where_the_reference_has_no_value_is_passed_over() -> None:
    spec = softmax_spec(mask="j <= i // (Lk - 8192)")
    assert long_fault(transfer_unverified(source("sm80"), spec), spec) is None


def test_constants_of_fp32_may_move_large_scores() -> None:
    """A captured factor of q.k makes scores of 10^5 at some point, and sums of such that are small."""
    a_table, g = torch.linspace(0, 1, 500), torch.tensor(0.3)

    def attention(q, k, v, b):
        return torch.softmax((q @ k.mT * g) + a_table[: k.shape[2]] + b, -1).to(v.dtype) @ v

    adapt_unchecked(attention, extra_inputs=lambda shape, device: {"b": torch.randn(shape.Lk)})
