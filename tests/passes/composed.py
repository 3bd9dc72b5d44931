"""Specs composed of any score with any mask with any normalizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch

from cubridge.ir.algebra.exprs import both
from cubridge.ir.nodes import Expr
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, Shape
from tests.passes.specs import CASES, SCALED, elementwise, normalised, softmax

SCORES: Final = [
    SCALED, "s * 0.1", "s * -0.1", f"{SCALED} + a[h] * (j - i)", f"20 * tanh({SCALED} / 20)",
    f"15 * tanh(({SCALED} + c[b, j]) / 15)",
    f"{SCALED} + c[b, j] * a[h] - log(Lk)", f"({SCALED} + d[i]) * 0.5", f"{SCALED} + g[h, maximum(minimum(i - j, 8), -8) + 8]",
    f"where(j < i, {SCALED}, {SCALED} * 0.5)", f"{SCALED} + e * abs(i - j) / Lk", f"{SCALED} * (1 + d[i]) + i / (j + 1)",
]  # fmt: skip
NORMALIZERS: Final = {
    "softmax": softmax(),
    "sigmoid": elementwise("1 / (1 + exp(-(x - log(Lk))))"),
    "relu": elementwise("maximum(x, 0) / Lk"),
    "gelu": elementwise("x * (1 + erf(x * 0.7)) / 2", "acc / (i + 1)"),
    "sink": CASES["sink lse"].spec,
    "off by one": CASES["off by one"].spec,
    "clamped": CASES["clamped"].spec,
    "weighted": normalised("exp(x - m) * a[h]", {"l": "sum exp(x - m)", "n": "sum 1"}, "acc / l + 0 * n"),
    "by key": normalised("exp(x - m)", {"l": "sum exp(x - m) * (1 + c[b, j] * c[b, j])"}, "acc / l"),
    "entropy": normalised(
        "exp(x - m)", {"l": "sum exp(x - m)", "t": "sum x * exp(x - m)"}, "acc / (l + 0.001 * abs(t))"
    ),
}
DATA: Final = [None, "doc[b, i] == doc[b, j]", "(doc[b, j] < 2) | (j <= i)", "j <= i + f[b]"]
CAPTURES: Final = softmax(
    captures="a f32 Hq; c f32 B, Lk; d f32 Lq; g f32 Hq, 17; e f32; f i32 B; doc i32 B, maximum(Lq, Lk); z f32 Hq"
).captures


def values_of(shape: Shape) -> dict[str, torch.Tensor | float]:
    length = max(shape.Lq, shape.Lk)
    return {
        "a": torch.linspace(0.05, 0.4, shape.Hq),
        "c": torch.cos(torch.arange(shape.B * shape.Lk)).view(shape.B, shape.Lk),
        "d": torch.sin(torch.arange(shape.Lq)) * 0.3,
        "g": torch.sin(torch.arange(shape.Hq * 17)).view(shape.Hq, 17),
        "e": -0.5,
        "f": torch.arange(shape.B, dtype=torch.int32) * 30 - 10,
        "doc": (torch.arange(length)[None, :] // 45 + torch.arange(shape.B)[:, None]).int(),
        "z": torch.linspace(-1.0, 2.0, shape.Hq),
    }


def composed(score: str, mask: Expr, data: str | None, normalizer: AttentionSpec) -> AttentionSpec:
    visible = mask if data is None else both(mask, parse_expr(data))
    rows = tuple(replace(r, over=visible) for r in normalizer.rows)
    return replace(normalizer, score=parse_expr(score), mask=visible, rows=rows, captures=CAPTURES)
