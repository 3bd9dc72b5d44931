"""Integers that 32 bits hold at some sizes: the kernel has a parameter that fits there, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cubridge.ir.nodes import Kernel, Scalar
from cubridge.ir.parser import parse, parse_expr
from cubridge.ir.printer import print_expr, to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import AttentionSpec
from cubridge.judge.attention import full_attention
from cubridge.passes.pipeline import parse_text
from cubridge.passes.runner import run_pipeline
from cubridge.verify.size_limits import spec_limits
from cubridge.verify.verifier import verify
from tests.support.golden_texts import golden_kernel

PRODUCT = 'rewrite-mask{keep="i * Lk >= j * Lq"}'


def run(text: str) -> Kernel:
    return run_pipeline(golden_kernel("sm80"), parse_text(text))


def limits(kernel: Kernel) -> dict[str, str]:
    found = {f.name: f.type for f in kernel.params if not f.fixed}
    return {n: print_expr(t.host) for n, t in found.items() if isinstance(t, Scalar) and t.host and t.dtype.is_int}


def says(mask: str = "True", score: str = "s") -> AttentionSpec:
    return replace(full_attention().spec, mask=parse_expr(mask), score=parse_expr(score))


def test_a_parameter_holds_what_the_regions_rely_on() -> None:
    kernel = run(PRODUCT)
    assert limits(kernel) == {"largest": "Lk * Lq + 1024 * Lk + 1024", "largest_2": "Lk * Lq + 1024 * Lq + 1024"}
    assert not verify(kernel) and not verify(parse(SourceFile.from_text("k", to_text(kernel))))
    for name in limits(kernel):
        without = replace(kernel, params=tuple(f for f in kernel.params if f.name != name))
        assert [f.code for f in verify(without)] == ["CU224"]
    smaller = to_text(kernel).replace("1024 * Lk + 1024", "1023 * Lk")
    assert [f.code for f in verify(parse(SourceFile.from_text("k", smaller)))] == ["CU224"]


def test_dead_code_is_dropped_and_limits_stay() -> None:
    assert limits(run(f"{PRODUCT},dce")).keys() == {"largest", "largest_2"}
    assert limits(run(f"{PRODUCT},infer-kv-range,row-bounds,simplify,dce")) == {"largest": "Lk * Lq + 1024 * Lk + 1024"}
    assert limits(run(f'{PRODUCT},rewrite-mask{{keep="j <= i"}},dce')) == {}


@pytest.mark.parametrize(
    ("spec", "conditions"),
    [
        (says("i * Lk >= j * Lq"), ["Lk * Lq + 1024 * Lk + 1024", "Lk * Lq + 1024 * Lq + 1024"]),
        (says("(i * 4099 + j) % 3 != 0"), ["Lk + 4099 * Lq + 4199424"]),
        (says("Lq * Lk > 5 + j"), ["Lk * Lq + 1024"]),
        (says("i * 2147483 >= j"), []),
        (says("i - j <= 2000000000", "s / (Lq * Lk) + i * 0.5 * Lk"), []),
        (says(score="s + (b * Hq + h) * 65536"), ["65536 * B * Hq + 65536 * Hq + 1024"]),
    ],
)
def test_what_a_spec_asks_of_sizes(spec: AttentionSpec, conditions: list[str]) -> None:
    assert [print_expr(p.condition) for p in spec_limits(spec)] == [f"{c} <= 2147483647" for c in conditions]
