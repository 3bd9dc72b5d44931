"""Pipelines that give what the reference gives at every size and value of the checks, and not elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class WrongPipeline:
    """`part`: what may not be proved of its target."""

    variant: str
    pipeline: str
    part: str


def _mask(variant: str, keep: str) -> WrongPipeline:
    return WrongPipeline(variant, f'rewrite-mask{{keep="{keep}"}},infer-kv-range', "mask")


def _score(score: str) -> WrongPipeline:
    text = f'rewrite-score{{score="{score}"}},fold-scale,rewrite-mask{{keep="j <= i"}}'
    return WrongPipeline("softcap", text, "score")


def _weight(weight: str, finalize: str = "acc") -> WrongPipeline:
    normalize = f'rewrite-normalize{{weight="{weight}",finalize="{finalize}"}}'
    text = f'rewrite-score{{score="s * D ** -0.5"}},rewrite-mask{{keep="j <= i"}},{normalize}'
    return WrongPipeline("relu_causal", text, "weight" if finalize == "acc / Lk" else "finalize")


PIPELINES: Final = (
    _mask("prefix_lm", "((j <= i) | (j < Lq // 4)) & ((b < 12) | (j < i))"),
    _mask("prefix_lm", "((j <= i) | (j < Lq // 4)) & ((h < 130) | (j < i))"),
    _mask("prefix_lm", "(j <= i) | (j < Lq // 4) | ((j == i + 1) & (i == 99991))"),
    _mask("prefix_lm", "((j <= i) | (j < Lq // 4)) & (j != 7001)"),
    _mask("prefix_lm", "((j <= i) | (j < Lq // 4)) & ((i * 31 % 1021 != 5) | (j < i))"),
    _mask("prefix_lm", "(j <= i) | (j < minimum(Lq // 4, 200000))"),
    _mask("prefix_lm", "(j <= i) | (4 * j < Lq - Lq % 4 - Lq // 200000)"),
    _mask("prefix_lm", "(j <= i + i // 300007) | (j < Lq // 4)"),
    _mask("causal_top_left", "(j <= i) & (j >= i - 400000)"),
    _mask("causal_top_left", "(j <= i) | ((j - i == 1) & (i % 65537 == 65000))"),
    _mask("causal_top_left", "j <= maximum(i, Lk - 900000)"),
    _mask("causal_bottom_right", "j <= i + minimum(Lk - Lq, 300000)"),
    _mask("causal_bottom_right", "j <= i + Lk - Lq + B // 300"),
    _mask("sliding_window_causal", "(j <= i + Lk - Lq) & (j > i + Lk - Lq - 128 - i // 555555)"),
    _mask("sink_window", "(j <= i + Lk - Lq) & ((j < 4 + h // 200) | (j > i + Lk - Lq - 128))"),
    _score("30 * tanh(maximum(s, -300000) * D ** -0.5 / 30)"),
    _score("30 * tanh(s * D ** -0.5 / 30) + where(j > 200000, 1, 0)"),
    _score("minimum(30 * tanh(s * D ** -0.5 / 30), 29.9999)"),
    _score("30.0001 * tanh(s * D ** -0.5 / 30)"),
    _score("30 * tanh(s * D ** -0.5 / 30 + where(h > 200, 1, 0))"),
    _score("where(s > 100000, s, 30 * tanh(s * D ** -0.5 / 30))"),
    _score("30 * tanh(s * D ** -0.5 / 30) * (1 + b // 400)"),
    _weight("minimum(maximum(x, 0), 10000)", "acc / Lk"),
    _weight("where(x > 0.0001, x, 0)", "acc / Lk"),
    _weight("maximum(x, 0) * (1 + i // 700000)", "acc / Lk"),
    _weight("maximum(x, 0) + where(j > 300000, 1, 0)", "acc / Lk"),
    _weight("maximum(x, -0.00001)", "acc / Lk"),
    _weight("maximum(x, 0)", "acc / minimum(Lk, 500000)"),
    _weight("maximum(x, 0)", "acc / (Lk + Lk // 600000)"),
    _weight("maximum(x, 0)", "minimum(acc / Lk, 1000)"),
)  # fmt: skip
