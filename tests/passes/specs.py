"""Attention specs written as text, one for each definition in the table of variants, with other numbers than the examples."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch

from cubridge.ir.nodes import BoolLit, Expr
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, Capture, Precondition, RowReduction, Shape

SCALED = "s * D ** -0.5"
CAUSAL = "j <= i + Lk - Lq"

_OUTER_COMMA = re.compile(r",(?![^(]*\))")
Tensors = Callable[[Shape], dict[str, torch.Tensor | int | float]]


@dataclass(frozen=True, slots=True)
class Case:
    """`captures`: name, dtype, extents. `values`: what they hold at a shape. `square`: needs Lq == Lk."""

    spec: AttentionSpec
    values: Tensors = lambda shape: {}
    square: bool = False


def _expr(text: str) -> Expr:
    return BoolLit(True) if text == "True" else parse_expr(text)


def _captures(text: str) -> tuple[Capture, ...]:
    """`slope f32 Hq; doc i32 B, Lk`."""
    found: list[Capture] = []
    for part in (p.strip() for p in text.split(";") if p.strip()):
        name, dtype, *extents = part.split(" ", 2)
        axes = tuple(parse_expr(e) for e in _OUTER_COMMA.split(extents[0])) if extents else ()
        found.append(Capture(name, "argument", axes, dtype))  # pyright: ignore[reportArgumentType]
    return tuple(found)


def softmax(score: str = SCALED, mask: str = "True", captures: str = "") -> AttentionSpec:
    visible = _expr(mask)
    weight = _expr("exp(x - m)")
    rows = (RowReduction("l", "sum", visible, weight),)
    lse = _expr("m + log(l)")
    heads = _expr("h // (Hq // Hk)")
    return AttentionSpec(
        _expr(score), visible, weight, rows, _expr("acc / l"), True, lse, heads, captures=_captures(captures)
    )


def elementwise(
    weight: str, finalize: str = "acc", score: str = SCALED, mask: str = "True", captures: str = ""
) -> AttentionSpec:
    heads = _expr("h // (Hq // Hk)")
    return AttentionSpec(
        _expr(score), _expr(mask), _expr(weight), (), _expr(finalize), False, None, heads, captures=_captures(captures)
    )


def normalised(
    weight: str,
    rows: dict[str, str],
    finalize: str,
    lse: str | None = None,
    score: str = SCALED,
    mask: str = "True",
    captures: str = "",
) -> AttentionSpec:
    visible = _expr(mask)
    reductions = tuple(_reduction(name, text, visible) for name, text in rows.items())
    return AttentionSpec(
        _expr(score), visible, _expr(weight), reductions, _expr(finalize), "m" in weight, None if lse is None else _expr(lse),
        _expr("h // (Hq // Hk)"), captures=_captures(captures),
    )  # fmt: skip


def _softpick(unit: str, mask: str = "True", **rows: str) -> AttentionSpec:
    """With an epsilon in this unit."""
    difference, total = "exp(x - m) - exp(-m)", f"(l + 1e-06 * {unit})"
    sums = {"l": f"sum abs({difference})", **rows}
    return normalised(f"maximum({difference}, 0.0)", sums, f"acc / {total}", f"m + log({total})", mask=mask)


def _reduction(name: str, text: str, visible: Expr) -> RowReduction:
    """`sum exp(x - m)`, or `sum exp(x - m) over j < i`."""
    kind, _, rest = text.partition(" ")
    body, _, over = rest.partition(" over ")
    return RowReduction(name, kind, _expr(over) if over else visible, _expr(body))  # pyright: ignore[reportArgumentType]


def _slopes(shape: Shape) -> dict[str, torch.Tensor | int | float]:
    return {"slope": 2.0 ** (-8.0 * (torch.arange(shape.Hq) + 1) / shape.Hq)}


def _documents(shape: Shape) -> dict[str, torch.Tensor | int | float]:
    length = max(shape.Lq, shape.Lk)
    cuts = torch.tensor([length // 7, length // 3, length // 2])
    batch = 3 * torch.arange(shape.B)[:, None, None]
    return {"doc": (torch.arange(length)[None, :, None] >= cuts + batch).sum(-1).int()}


def _shared(shape: Shape) -> dict[str, torch.Tensor | int | float]:
    position = torch.arange(shape.Lk)
    half = max(1, shape.Lk // 2)
    sample = torch.where(position < shape.Lk - shape.Lk // 9, position // half, -1)
    return {
        "sample": sample.int().expand(shape.B, -1).contiguous(),
        "answer": (position % half // (half // 4 + 1)).int().expand(shape.B, -1).contiguous(),
    }


def _table(shape: Shape) -> dict[str, torch.Tensor | int | float]:
    return {"table": torch.sin(torch.arange(shape.Hq)[:, None] + 0.3 * torch.arange(33)[None, :])}


_DOC = "doc[b, i] == doc[b, j]"
_DOC_CAPTURE = "doc i32 B, maximum(Lq, Lk)"

CASES: Final[dict[str, Case]] = {
    "full": Case(softmax()),
    "causal top left": Case(softmax(mask="j <= i")),
    "causal bottom right": Case(softmax(mask=CAUSAL)),
    "prefix": Case(softmax(mask="(j <= i) | (j < Lk // 3)")),
    "window causal": Case(softmax(mask=f"({CAUSAL}) & (j > i + Lk - Lq - 100)")),
    "window two sided": Case(softmax(mask="(j >= i + Lk - Lq - 70) & (j <= i + Lk - Lq + 20)")),
    "global window": Case(softmax(mask="(j < 20) | (i < 20) | (abs(i - j) < 90)")),
    "sink window": Case(softmax(mask=f"({CAUSAL}) & ((j < 5) | (j > i + Lk - Lq - 80))")),
    "blockwise": Case(softmax(mask="(j <= i) & ((i // 96 == j // 96) | (i >= Lq - Lq // 4))")),
    "chunks": Case(softmax(mask="i // 64 == j // 64")),
    "share question": Case(
        replace(
            softmax(
                mask="(j <= i) & (sample[b, i] == sample[b, j]) & (sample[b, i] >= 0) & ((answer[b, j] == 0) | "
                "(answer[b, i] == answer[b, j]))",
                captures="sample i32 B, Lk; answer i32 B, Lk",
            ),
            preconditions=(Precondition(parse_expr("Lq == Lk")),),
        ),
        _shared,
        square=True,
    ),
    "documents": Case(softmax(mask=_DOC, captures=_DOC_CAPTURE), _documents),
    "documents causal": Case(softmax(mask=f"({_DOC}) & (j <= i)", captures=_DOC_CAPTURE), _documents),
    "relative": Case(softmax(f"{SCALED} + (i - j)")),
    "relative table": Case(
        softmax(f"{SCALED} + table[h, maximum(minimum(i - j, 16), -16) + 16]", captures="table f32 Hq, 33"), _table
    ),
    "alibi": Case(softmax(f"{SCALED} + slope[h] * (j - i - Lk + Lq)", CAUSAL, "slope f32 Hq"), _slopes),
    "alibi two sided": Case(softmax(f"{SCALED} - slope[h] * abs(i + Lk - Lq - j)", captures="slope f32 Hq"), _slopes),
    "softcap": Case(softmax(f"20 * tanh({SCALED} / 20)", CAUSAL)),
    "bias before scale": Case(softmax("(s + (i - j)) * 0.25", "j <= i")),
    "negative scale": Case(softmax("s * -0.2", "j <= i")),
    "unscaled": Case(softmax("s")),
    "alibi softcap documents": Case(
        softmax(f"25 * tanh(({SCALED} + slope[h] * (j - i)) / 25)", f"({_DOC}) & (j <= i)", f"{_DOC_CAPTURE}; slope f32 Hq"),
        lambda shape: {**_documents(shape), **_slopes(shape)},
    ),
    "sigmoid": Case(elementwise("1 / (1 + exp(-(x - log(Lk))))")),
    "sigmoid causal": Case(elementwise("1 / (1 + exp(-(x - log(Lk))))", mask="j <= i")),
    "relu": Case(elementwise("maximum(x, 0) / Lk")),
    "relu causal": Case(elementwise("maximum(x, 0)", "acc / Lk", mask="j <= i")),
    "relu squared": Case(elementwise("maximum(x, 0) ** 2", "acc / (i + 1)", mask="j <= i")),
    "silu": Case(elementwise("x / (1 + exp(-x))", mask="j <= i")),
    "comb": Case(
        elementwise("1 / (1 + exp(-(x - log(Lk))))", score=f"20 * tanh({SCALED} / 20)", mask="(j <= i) | (j < Lq // 4)")
    ),
    "relu window documents": Case(
        elementwise("maximum(x, 0) / Lk", mask=f"({_DOC}) & (j <= i) & (j > i - 60)", captures=_DOC_CAPTURE),
        _documents,
    ),
    "sink": Case(
        normalised("exp(x - m)", {"l": "sum exp(x - m)"}, "acc / (l + exp(z[h] - m))", mask=CAUSAL, captures="z f32 Hq"),
        lambda shape: {"z": torch.linspace(-2.0, 4.0, shape.Hq)},
    ),
    "sink lse": Case(
        normalised(
            "exp(x - m)", {"l": "sum exp(x - m)"}, "acc / (l + exp(z[h] - m))", "m + log(l + exp(z[h] - m))",
            mask=f"({CAUSAL}) & (j > i + Lk - Lq - 50)", captures="z f32 Hq",
        ),
        lambda shape: {"z": torch.linspace(-2.0, 4.0, shape.Hq)},
    ),
    "off by one": Case(normalised("exp(x - m)", {"l": "sum exp(x - m)"}, "acc / (l + exp(-m))", mask="j <= i")),
    "clamped": Case(normalised("maximum(x, 0)", {"l": "sum maximum(x, 0)"}, "acc / maximum(l, 0.01)", mask="j <= i")),
    "absolute sum": Case(normalised("x", {"a": "sum abs(x)"}, "acc / (a + 1)", mask="j <= i")),
    "small denominator": Case(
        normalised("exp(x)", {"l": "sum exp(x)"}, "acc / (l + 0.001)", "log(l + 0.001)", score="s", mask="j <= i")
    ),
    "bounded denominator": Case(
        normalised("exp(x)", {"l": "sum exp(x)"}, "2 * acc / maximum(l, Lk)", score="s", mask="j <= i")
    ),
    "scaled exponents": Case(
        normalised(
            "where(j < i, exp(x * 0.3 - m * 0.3 + 0.5), exp(0.3 * (x - m)))",
            {"l": "sum where(j < i, exp(x * 0.3 - m * 0.3 + 0.5), exp(0.3 * (x - m)))"},
            "acc / l", "m * 0.3 + log(l)", score="s", mask="j <= i",
        )
    ),
    "all keys below": Case(
        normalised("exp(x - m)", {"l": "sum exp(x - m) over j < Lk"}, "acc / l", mask="j <= i")
    ),
    "softpick": Case(_softpick("exp(-m)", mask=CAUSAL)),
    "softpick of a maximum": Case(_softpick("exp(maximum(r, 0.0) - m)", r="max x")),
    "scaled by largest": Case(normalised("maximum(x, 0)", {"top": "max x"}, "acc / (1 + maximum(top, 0))", mask="j <= i")),
    "scalar cap": Case(
        softmax(f"cap * tanh({SCALED} / cap)", "j < i + window", "cap f32; window i32"), lambda s: {"cap": 12.0, "window": 40}
    ),
    "bool keys": Case(
        softmax(mask="keep[b, j] & (j <= i)", captures="keep bool B, Lk"),
        lambda s: {"keep": (torch.arange(s.Lk) % 3 != 1).expand(s.B, -1).contiguous()},
    ),
    "dense bias": Case(
        softmax(f"{SCALED} + bias[h, i, j]", captures="bias f32 Hq, Lq, Lk"),
        lambda s: {"bias": torch.sin(torch.arange(s.Hq * s.Lq * s.Lk).float()).view(s.Hq, s.Lq, s.Lk)},
    ),
    "prefix per batch": Case(
        softmax(mask="(j <= i) | (j < prefix[b])", captures="prefix i32 B"),
        lambda s: {"prefix": (torch.arange(s.B) * 37 + 5).int()},
    ),
}  # fmt: skip
