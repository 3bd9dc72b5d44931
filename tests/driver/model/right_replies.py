"""Ten right answers, and operators that spoil them, each in a way of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.driver.model.talk import cuir_reply, pipeline_reply


@dataclass(frozen=True, slots=True)
class Right:
    variant: str
    form: Callable[..., str]
    kernel: str = "sm80"

    @property
    def text(self) -> str:
        return self.form(self.variant, self.kernel)


RIGHT: Final = (
    Right("prefix_lm", pipeline_reply),
    Right("alibi", pipeline_reply),
    Right("sigmoid_causal", pipeline_reply),
    Right("documents_causal", pipeline_reply),
    Right("attention_sink", pipeline_reply),
    Right("prefix_lm", cuir_reply, "sm90a"),
    Right("sliding_window_causal", cuir_reply),
    Right("softcap", cuir_reply),
    Right("relu_causal", cuir_reply),
    Right("causal_bottom_right", cuir_reply, "sm90a"),
)


@dataclass(frozen=True, slots=True)
class Spoil:
    """`old` becomes `new`, once; `codes`: the reasons, one of which must be given; `said`: a part of it."""

    kind: str
    old: str
    new: str
    codes: tuple[str, ...]
    said: str = ""

    def apply(self, text: str) -> str | None:
        """None where the operator finds nothing to spoil."""
        return text.replace(self.old, self.new, 1) if self.old in text else None


SYNTAX = ("CU101", "CU102", "CU103", "CU503")
TYPES = ("CU202", "CU203", "CU204", "CU206", "CU507")
NAMES = ("CU201", "CU203", "CU208", "CU505", "CU506", "CU508")
STRUCTURE = ("CU270", "CU271", *(f"CU2{n:02}" for n in range(69)))
NUMBERS = ("CU316",)

SPOILS: Final = (
    Spoil("syntax", '{keep="', "{keep=", SYNTAX),
    Spoil("syntax", "rewrite-mask{", "rewrite-mask(", SYNTAX),
    Spoil("syntax", " <= ", " =< ", SYNTAX),
    Spoil("syntax", " & ", " and ", SYNTAX, "write `&`"),
    Spoil("syntax", "where(", "where((", SYNTAX),
    Spoil("syntax", "    lo = ", "  lo = ", SYNTAX),
    Spoil("syntax", "cuir(version=1)", "cuir(version=2)", SYNTAX),
    Spoil("types", 'keep="', 'keep="i + ', TYPES),
    Spoil("types", "row.l = 0.0", "row.l = i", TYPES),
    Spoil("types", "add_lanes(row.l)", "row.l", TYPES),
    Spoil("types", "s = where(j <= last, s", "s = where(j, s", TYPES),
    Spoil("types", "last = minimum(", "last = minimum(0.5, ", TYPES),
    Spoil("types", "maximum(s, 0.0)", "maximum(s, s, 0.0)", TYPES),
    Spoil("names", 'keep="(j', 'keep="(key', NAMES),
    Spoil("names", 'score="s', 'score="scores', NAMES),
    Spoil("names", 'bind-captured{capture="slopes",dtype="f32",extents="Hq"},', "", NAMES),
    Spoil("names", "p.exponent_scale", "p.exponent_scales", NAMES),
    Spoil("names", "last = minimum(", "last = e + minimum(", NAMES),
    Spoil("names", "tile.q_start + 1", "tile.q_end + 1", NAMES),
    Spoil("names", "where(l == 0.0, 0.0,", "where(total == 0.0, 0.0,", NAMES),
    Spoil("orchestration", "        block_sync()\n", "", STRUCTURE),
    Spoil("orchestration", "wait_group(1)", "wait_group(0)", STRUCTURE),
    Spoil("orchestration", "BLOCK_KV=", "STAGE=1, BLOCK_KV=", STRUCTURE),
    Spoil("orchestration", "tile.b = head // Hq", "tile.b = head % Hq", STRUCTURE),
    Spoil("orchestration", "zero(o)", "zero(s)", STRUCTURE),
    Spoil("orchestration", "swizzle=128", "swizzle=64", STRUCTURE),
    Spoil("orchestration", "row=tile.q_start, src=o", "row=0, src=o", STRUCTURE),
    Spoil("phase", "v_ring.phase)", "0)", STRUCTURE),
    Spoil("phase", "k_ring.phase ^ 1", "k_ring.phase", STRUCTURE),
    Spoil("phase", "ring_next(k_ring)", "ring_next(v_ring)", STRUCTURE),
    Spoil("phase", "work_ring.phase)", "work_ring.phase ^ 1)", STRUCTURE),
    Spoil("phase", "q_ring = Ring(Q_SLOTS)", "q_ring = Ring(1)", STRUCTURE),
    Spoil("mask dropped", "j <= last", "j < Lk", NUMBERS, "mask"),
    Spoil("mask dropped", "doc[b, j] == doc[b, i]", "True", NUMBERS),
    Spoil("mask dropped", " | (j < Lq // 4)", " | (j < Lk)", NUMBERS, "should be hidden"),
    Spoil("mask dropped", 'keep="j <= i"', 'keep="j <= Lk"', NUMBERS),
    Spoil("mask off by one", "j <= last", "j < last", NUMBERS, "mask"),
    Spoil("mask off by one", "j >= first", "j > first", NUMBERS, "mask"),
    Spoil("mask off by one", 'keep="j <= i"', 'keep="j <= i + 1"', NUMBERS),
    Spoil("mask dropped", 'keep="(j <= i) & (doc', 'keep="(j <= Lk) & (doc', NUMBERS, "should be hidden"),
    Spoil("mask off by one", "(j <= i)", "(j < i)", NUMBERS),
    Spoil("mask off by one", "Lq // 4 - 1)", "Lq // 4)", NUMBERS),
    Spoil("mask off by one", "tile.q_start + 1", "tile.q_start + 130", NUMBERS, "walked as full"),
    Spoil("mask off by one", "tile.q_start + BLOCK_Q", "tile.q_start", NUMBERS, "never visited"),
    Spoil("normalizer", "1.0 / l", "2.0 / l", NUMBERS),
    Spoil("normalizer", "row.l * row.o_scale + ", "", NUMBERS, "normalizer"),
    Spoil("normalizer", "maximum(s, 0.0)", "s", NUMBERS),
    Spoil("normalizer", "* LN2", "* LOG2E", NUMBERS, "lse"),
    Spoil("normalizer", 'weight="1 / (1 + exp(', 'weight="1 / (2 + exp(', NUMBERS),
    Spoil("normalizer", "R1 + exp(sinks[h] - m)", "R1", NUMBERS),
    Spoil("normalizer", "R1 = sum of exp(x - m)", "R1 = sum of x", NUMBERS, "normalizer"),
    Spoil("not a number", "    o = o * inv", "    o = o * nan", NUMBERS),
    Spoil("not a number", "lse = where(l == 0.0, -inf, ", "lse = where(l == l, nan, ", NUMBERS),
    Spoil("not a number", "    s = maximum(s, 0.0)", "    s = s - s + nan", NUMBERS),
    Spoil("not a number", 'finalize="acc / R1"', 'finalize="acc * nan"', NUMBERS),
    Spoil("not a number", 'finalize="acc"', 'finalize="acc - acc + nan"', NUMBERS),
    Spoil("not a number", "tanh_approx(", "log2(0.0 - 1.0) * tanh_approx(", ("CU301",)),
    Spoil("paths", 'capture="', 'capture="../../', ("CU508",)),
    Spoil("paths", "```pipeline", "```/etc/passwd", ("CU712",)),
    Spoil("paths", "cuir(version=1)", "cuir(version=1, file=\"../../x\")", SYNTAX),
    Spoil("paths", "hoist", "../hoist", SYNTAX),
    Spoil("paths", "@kernel(arch=", "@kernel(include=\"/etc/passwd\", arch=", SYNTAX),
    Spoil("paths", "def attention_forward():", "import os\n\ndef attention_forward():", SYNTAX),
    Spoil("fences", "```pipeline", "```pipeline\n```pipeline", ("CU711",)),
    Spoil("fences", "```cuir", "```cuir\n```python\n```\n", ("CU711", "CU712")),
    Spoil("fences", "dce\n```", "dce\n``", ("CU711",)),
    Spoil("fences", "```cuir", "````cuir", ("CU711",)),
    Spoil("fences", "```pipeline", "```pipeline\ndce\n```\n\n```pipeline", ("CU712",)),
)  # fmt: skip


def spoiled(spoil: Spoil) -> tuple[Right, str]:
    """The first right answer that an operator changes, and what it makes of it."""
    return next((r, t) for r in RIGHT if (t := spoil.apply(r.text)) is not None)
