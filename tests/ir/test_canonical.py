"""The canonical form: what becomes one, and above all what does not."""

from __future__ import annotations

import pytest

from cubridge.ir.canonical import canonical
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile
from tests.support.golden_texts import GOLDEN_NAMES, golden_file, golden_kernel

_SCORE = "def score(s, kv_start, tile):\n    pass"


def with_score(body: str) -> Kernel:
    text = golden_file("sm80").text
    assert _SCORE in text
    lines = body.replace("\n", "\n    ")
    return parse(SourceFile.from_text("k", text.replace(_SCORE, f"def score(s, kv_start, tile):\n    {lines}")))


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_kernels_are_canonical(name: str) -> None:
    assert canonical(golden_kernel(name)) is golden_kernel(name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s = s * 2", "s = s * 2.0"),
        ("s = s * -(2.0)", "s = s * -2.0"),
        ("s = maximum(s, 0)", "s = maximum(s, 0.0)"),
        ("s = where(j < i + (2 + 3), s, 0)", "s = where(j < i + 5, s, 0.0)"),
        ("s = exp2(1) * s", "s = exp2(1.0) * s"),
        ("s = s * 0.1", "s = s * 0.10000000149011612"),
        ("x = 3.0\ns = s + x * 2", "x = 3.0\ns = s + x * 2.0"),
        ("s = 0", "s = 0.0"),
    ],
)
def test_same(one: str, other: str) -> None:
    assert canonical(with_score(one)) == canonical(with_score(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s = s * 2.0", "s = 2.0 * s"),
        ("s = s * 2.0 * 3.0", "s = s * 6.0"),
        ("s = s + 0.5 + 0.5", "s = s + 1.0"),
        ("s = s * 0.1", "s = s * 0.1000001"),
        ("s = -s", "s = s"),
        ("s = s + 0.0", "s = s"),
        ("s = s - s", "s = 0.0"),
        ("s = f32(7 // 2) * s", "s = 3.5 * s"),
        ("s = s * f32(2147483647 + 1)", "s = s * 2147483648.0"),
        ("s = f32(i + 1) * s", "s = (f32(i) + 1.0) * s"),
        ("x = 1\ns = s", "x = 1.0\ns = s"),
        ("s = where(j <= i, s, -inf)", "s = where(j < i, s, -inf)"),
    ],
)
def test_different(one: str, other: str) -> None:
    assert canonical(with_score(one)) != canonical(with_score(other))
