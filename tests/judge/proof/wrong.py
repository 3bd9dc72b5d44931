"""Kernels that agree with their reference at every size and value that runs reach, and not elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SCALE = "row.o_scale = exp2((row.m - m_safe) * p.exponent_scale)"
_PROBS = "s = exp2(s * p.exponent_scale - row.m_exponent)"
_SUM = "row.l = row.l * row.o_scale + partial_rowsum(s)"
_BOUND = "return keys.hi - 1 - t"
_COUNT = "return maximum(keys.hi - keys.lo, 0)"


@dataclass(frozen=True, slots=True)
class Wrong:
    """`part`: what may not be proved of the target of `case` with `old` changed to `new`. `at`: what the counterexample says.
    `points`: do points of long problems show it too."""

    case: str
    old: str
    new: str
    part: str
    at: str = ""
    points: bool = True


MASKS: Final = (
    Wrong("prefix", "j <= last", "(j <= last) & ((tile.b < 12) | (j < i))", "mask", "b = 12"),
    Wrong("prefix", "j <= last", "(j <= last) & ((tile.h < 130) | (j < i))", "mask", "h = 130"),
    Wrong("prefix", "j <= last", "(j <= last) & (j != 7001)", "mask", "j = 7001"),
    Wrong("prefix", "j <= last", "(j <= last) & ((i * 31 % 1021 != 5) | (j < i))", "mask", points=False),
    Wrong("prefix", "j <= last", "(j <= last) | ((j == i + 1) & (i == 99991))", "mask", "i = 99991"),
    Wrong("documents", "tile.doc_i == doc_j", "doc_j % 262144 == tile.doc_i % 262144", "mask", "j ="),
    Wrong("documents", "tile.doc_i == doc_j", "(doc_j == tile.doc_i) | (doc_j == 1000003)", "mask", "j ="),
    Wrong("full", "where(j < Lk, s, -inf)", "where(j < Lk, minimum(s, 1000.0), -inf)", "mask"),
    Wrong("full", "where(j < Lk, s, -inf)", "where(j < Lk, s, -1000.0)", "mask"),
    Wrong("full", "where(j < Lk, s, -inf)", "where(f32(j) * 8191.0 + 0.5 < f32(Lk) * 8191.0, s, -inf)", "mask", points=False),
    Wrong("full", "where(j < Lk, s, -inf)", "where(f32(j * 64) < f32(Lk * 64), s, -inf)", "mask", points=False),
)  # fmt: skip

KEYS: Final = (
    Wrong("prefix", _BOUND, "return keys.hi - 1 - where(t < 100, t, 100)", "keys"),
    Wrong("prefix", _COUNT, "return minimum(maximum(keys.hi - keys.lo, 0), 500)", "keys"),
    Wrong("prefix", "full_lo = 0", "full_lo = where(Lq > 100000, -1, 0)\n    lo = where(Lq > 100000, 1, 0)", "keys", "Lq"),
    Wrong("causal top left", "tile.q_start + 1", "tile.q_start + 1 + where(Lq > 9999, 64, 0)", "keys"),
    Wrong("window causal", "lo = maximum(0, ", "lo = where(tile.b > 300, 64, 0) + maximum(0, ", "keys", "b = 301"),
    Wrong("documents causal", "& (j <= i), B)", "& (j < i), B)", "keys", "j ="),
    Wrong("documents causal", "& (j <= i), B)", "& (j <= i + where(Lq > 99999, 1, 0)), B)", "keys", "Lq", points=False),
    Wrong("documents causal", "return t < keys.masked", "return t + 1 < keys.masked", "keys"),
    Wrong("documents causal", "count = p.tiles[list, 0]", "count = minimum(p.tiles[list, 0], 500)", "keys", points=False),
    Wrong("documents causal", "host=BLOCK_Q * ceil_div(B * ceil_div", "host=64 * ceil_div(B * ceil_div", "keys"),
    Wrong("full", "if t + 1 < count:\n            copy_async(smem.k", "if t + 1 < 50:\n            copy_async(smem.k", "keys",
          points=False),
    Wrong("full", "key_tile(keys, t + 1) * BLOCK_KV)\n        commit()\n        s =",
          "key_tile(keys, t) * BLOCK_KV)\n        commit()\n        s =", "keys", points=False),
)  # fmt: skip

SCORES: Final = (
    Wrong("softcap", "tanh_approx(s * p.score_scale)", "tanh_approx(maximum(s, -300.0) * p.score_scale)", "score"),
    Wrong("softcap", "tanh_approx(s * p.score_scale)", "minimum(tanh_approx(s * p.score_scale), 0.9999)", "score"),
    Wrong("alibi", "f32(j - i_key)", "f32(maximum(j - i_key, -100000))", "score"),
    Wrong("alibi", "p.slope[tile.h]", "p.slope[minimum(tile.h, 100)]", "score"),
    Wrong("relative table", "maximum(minimum(i - j, 16), -16)", "maximum(minimum(i - j, 15), -16)", "score"),
    Wrong("relative", "f32(i - j)", "f32((i - j) * 1000) * 0.001", "score", points=False),
    Wrong("sigmoid", "exp2(s * p.exponent_scale - p.weight_bias)", "exp2(maximum(s * p.exponent_scale - p.weight_bias, -50.0))",
          "weight", points=False),
    Wrong("sigmoid", "s = w - w * w", "s = w", "weight"),
    Wrong("relu", "maximum(s, 0.0)", "minimum(maximum(s, 0.0), 1000.0)", "weight"),
    Wrong("relu causal", "maximum(s, 0.0)", "where(s < 0.0001, 0.0, s)", "weight", points=False),
    Wrong("full", _PROBS, f"{_PROBS} * (s / s)", "weight"),
    Wrong("full", _PROBS, "s = maximum(exp2(s * p.exponent_scale - row.m_exponent), 0.00001)", "weight"),
    Wrong("full", "host=D ** -0.5 * LOG2E", "host=D ** -0.5 * LOG2E * where(Lk > 100000, 2.0, 1.0)", "weight"),
    Wrong("scalar cap", "host=cap", "host=where(cap > 99.0, 99.0, cap)", "score"),
)  # fmt: skip

ROWS: Final = (
    Wrong("prefix", "<= 8.0", "<= where(kv_start > 1000, 100000.0, 8.0)", "rows"),
    Wrong("prefix", "<= 8.0", "<= 100.0", "rows", points=False),
    Wrong("prefix", _SCALE, "row.o_scale = where(kv_start > 5000, 1.0, exp2((row.m - m_safe) * p.exponent_scale))", "rows"),
    Wrong("prefix", _SCALE, "row.o_scale = maximum(exp2((row.m - m_safe) * p.exponent_scale), 0.0001)", "rows"),
    Wrong("prefix", _SUM, "row.l = row.l * row.o_scale + partial_rowsum(where(s > 0.000001, s, 0.0))", "rows", points=False),
    Wrong("prefix", _SUM, "row.l = minimum(row.l, 100000.0) * row.o_scale + partial_rowsum(s)", "rows"),
    Wrong("prefix", "row.l = 0.0", "row.l = 0.0001", "rows", points=False),
    Wrong("prefix", "o = o * row.o_scale", "o = minimum(o * row.o_scale, 100.0)", "rows"),
    Wrong("clamped", "row.l = row.l + partial_rowsum(s)", "row.l = row.l + partial_rowsum(minimum(s, 9.0))", "rows"),
    Wrong("scaled by largest", "maximum(row.top, ", "maximum(row.top * 0.999, ", "rows"),
    Wrong("softpick", "u = exp2(-row.m_exponent)", "u = exp2(-minimum(row.m_exponent, 100.0))", "weight", points=False),
    Wrong("softpick", "row.m = 0.0", "row.m = -1000.0", "rows"),
    Wrong("softpick", "row.l * row.o_scale", "row.l", "rows"),
    Wrong("softpick", "abs(w - u)", "maximum(w - u, 0.0)", "rows"),
)  # fmt: skip

ENDS: Final = (
    Wrong("prefix", "    o = o * inv", "    o = minimum(o * inv, 100.0)", "finalize"),
    Wrong("prefix", "1.0 / l)", "minimum(1.0 / l, 1.0))", "finalize", points=False),
    Wrong("prefix", "inv = where(l == 0.0", "inv = where(l < 0.00001", "finalize", points=False),
    Wrong("prefix", "    o = o * inv", "    o = where(i < 100000, o * inv, o)", "finalize"),
    Wrong("prefix", "* LN2)", "* 0.693)", "LSE"),
    Wrong("prefix", "lse = where(l == 0.0, -inf", "lse = where(l == 0.0, 0.0", "LSE"),
    Wrong("sink", "p.z[tile.h]", "p.z[minimum(tile.h, 100)]", "finalize"),
    Wrong("off by one", "total = l + exp2(-top)", "total = l + exp2(-minimum(top, 100.0))", "finalize", points=False),
    Wrong("softpick", "exp2(-top) * 1e-06", "exp2(-top) * 2e-06", "finalize"),
    Wrong("softpick of a maximum", "maximum(r, 0.0)", "r", "finalize", points=False),
    Wrong("relu squared", "f32(i + 1)", "f32(minimum(i + 1, 50000))", "finalize"),
    Wrong("alibi", "slope=Captured(f32, Hq)", "slope=Captured(f32, minimum(Hq, 200))", "captures"),
    Wrong("prefix per batch", "prefix=Captured(i32, B)", "prefix=Captured(i32, Hk)", "captures"),
    Wrong("alibi", "slope=Captured(f32, Hq)", "slope=Captured(f32, Hq + 1)", "captures"),
    Wrong("alibi", "p.slope[tile.h]", "p.slope[tile.h + 1]", "captures"),
    Wrong("relative table", "maximum(minimum(i - j, 16), -16)", "maximum(minimum(i - j, 17), -16)", "captures"),
    Wrong("documents", "pad=128", "pad=1", "captures"),
)  # fmt: skip

WRONG: Final = (*MASKS, *KEYS, *SCORES, *ROWS, *ENDS)
