"""Right answers that no rule would write: other algebra, other order, other names, other prose."""

from __future__ import annotations

from dataclasses import dataclass

from tests.driver.model.talk import cuir_reply


@dataclass(frozen=True, slots=True)
class Unusual:
    """`reply`: the answer, or "" for the rules' target with each of the changes made, everywhere."""

    name: str
    variant: str
    reply: str
    changes: tuple[tuple[str, str], ...] = ()
    kernel: str = "sm80"

    @property
    def text(self) -> str:
        text = self.reply or cuir_reply(self.variant, self.kernel)
        for old, new in self.changes:
            assert old in text, old
            text = text.replace(old, new)
        return text


def piped(name: str, variant: str, pipeline: str) -> Unusual:
    return Unusual(name, variant, f"```pipeline\n{pipeline}\n```")


def written(name: str, variant: str, *changes: tuple[str, str], kernel: str = "sm80") -> Unusual:
    return Unusual(name, variant, "", changes, kernel)


ALL_TILES = (
    "hi = ceil_div(minimum(Lk, maximum(tile.q_start + BLOCK_Q, Lq // 4)), BLOCK_KV)",
    "hi = ceil_div(Lk, BLOCK_KV)",
)
ALL_MASKED = ("return (n < keys.full_lo) | (n >= keys.full_hi)", "return (n < 0) | (n >= 0)")
FINAL_SCORE = ("s = tanh_approx(s * p.score_scale)", "s = tanh_approx(s * p.score_scale) * 30.0")
NO_LAG = ("m_new = where((m_max - row.m) * p.exponent_scale <= 8.0, row.m, m_max)", "m_new = m_max")
ALWAYS_RESCALED = ("    moved = row.o_scale != 1.0\n    if any_lane(moved):\n        o = o", "    o = o")
PI = "\r\n# a region, \N{GREEK SMALL LETTER PI} \r\n\r\n@region"
IN_PROSE = """I would write

```python
keep = (j <= i) | (j < Lq // 4)
```

~~~
notes
~~~

````pipeline

rewrite-mask { keep = "(j <= i) | (j < Lq // 4)" } ,

  infer-kv-range
````
which says it."""


def _pipelines() -> tuple[Unusual, ...]:
    bind = 'bind-captured{capture="%s",dtype="f32",extents="Hq"}'
    causal = 'rewrite-mask{keep="j <= i"}'
    return (
        piped("negated bound", "prefix_lm", 'rewrite-mask{keep="~(j > i) | (j < Lq // 4)"}'),
        piped(
            "disjoint cases", "prefix_lm", 'rewrite-mask{keep="((j > i) & (j < Lq // 4)) | (j <= i)"},infer-kv-range'
        ),
        piped(
            "a mask by where",
            "prefix_lm",
            'rewrite-mask{keep="where(j < Lq // 4, True, j <= i)"},infer-kv-range,row-bounds',
        ),
        piped("multiplied out", "prefix_lm", 'rewrite-mask{keep="(j <= i) | (4 * j < Lq - Lq % 4)"},infer-kv-range'),
        piped(
            "distances",
            "sliding_window_causal",
            'rewrite-mask{keep="(i + Lk - Lq - j >= 0) & (i + Lk - Lq - j < 128)"},infer-kv-range,row-bounds,hoist',
        ),
        piped(
            "a root for a power",
            "softcap",
            'rewrite-score{score="30 * tanh(s / (30 * sqrt(D)))"},fold-scale,rewrite-mask{keep="i >= j"},approximate',
        ),
        piped("exact functions", "softcap", f'rewrite-score{{score="tanh(s * D ** -0.5 / 30) * 30"}},{causal}'),
        piped(
            "mask first, cleaning twice",
            "alibi",
            f'dce,rewrite-mask{{keep="j - i <= Lk - Lq"}},{bind % "slopes"},'
            'rewrite-score{score="slopes[h] * (j - (i + (Lk - Lq))) + s / D ** 0.5"},fold-scale,dce,place-captured,dce',
        ),
        piped(
            "the scale in the weight",
            "relu_causal",
            f'rewrite-score{{score="s"}},{causal},'
            'rewrite-normalize{weight="where(x > 0, x, 0) * D ** -0.5 / Lk",finalize="acc"}',
        ),
        piped(
            "a sigmoid by the key count",
            "sigmoid_causal",
            f'rewrite-score{{score="s * D ** -0.5"}},fold-scale,{causal},'
            'rewrite-normalize{weight="1 / (1 + Lk * exp(-x))",finalize="acc"},infer-kv-range',
        ),
        piped(
            "other names",
            "attention_sink",
            f'{bind % "sinks"},{causal},rewrite-normalize{{weight="exp(x - m)",rows="denominator = sum of exp(x - m)",'
            'finalize="acc / (exp(sinks[h] - m) + denominator)",lse="log(exp(sinks[h] - m) + denominator) + m"},place-captured',
        ),
        Unusual("code of another language first", "prefix_lm", IN_PROSE),
    )


def _written() -> tuple[Unusual, ...]:
    in_line = ("    last = minimum(i + Lk - Lq, Lk - 1)\n", "")
    relu = ("    s = maximum(s, 0.0)", "    s = where(s < 0.0, 0.0, s)  # relu")
    oldest = (("    first = i", "    oldest = i"), ("j >= first", "j >= oldest"))
    scaled = ("s = maximum(s, 0.0)", "s = maximum(s * p.output_scale, 0.0)")
    return (
        written("locals renamed", "prefix_lm", ("last", "final_key"), ("full_lo", "whole_from")),
        written("every tile visited and masked", "prefix_lm", ALL_TILES, ALL_MASKED),
        written("keys from the left", "causal_bottom_right", ("keys.hi - 1 - t", "keys.lo + t"), kernel="sm90a"),
        written("a bound in line", "causal_bottom_right", in_line, ("j <= last", "(j < Lk) & (j - i <= Lk - Lq)")),
        written("the cap in the score", "softcap", FINAL_SCORE, ("host=30.0 * LOG2E", "host=LOG2E")),
        written("a reciprocal", "sliding_window_causal", ("1.0 / l", "rcp(l)"), *oldest),
        written("comments and line ends", "relu_causal", ("\n@region", PI), relu),
        written("scaled weights", "relu_causal", scaled, ("    o = o * p.output_scale\n", "")),
        written("no lag of the reference", "prefix_lm", NO_LAG),
        written("always rescaled", "sliding_window_causal", ALWAYS_RESCALED),
    )


UNUSUAL = (*_pipelines(), *_written())
