"""CUDA texts that lifting reads and that agree with their reference at every size and value of the checks, and not elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SEEN = "s[r][c] = j <= last ? "
_WEIGHT = "exp2_approx(s[r][c] * p.exponent_scale - row.m_exponent[r])"
_FACTOR = "exp2_approx((row.m[r] - m_safe) * p.exponent_scale)"
_SUM = "row.l[r] * row.o_scale[r] + partial_row_sum(s[r])"
_TANH = "tanh_approx(s[r][c] * p.score_scale)"
_LSE = "row.m[r] * p.exponent_scale + log2_approx(l)"


@dataclass(frozen=True, slots=True)
class WrongText:
    """The rules' text for a variant with `old` changed to `new`; `part` may not be proved of the CuIR that it reads as."""

    variant: str
    old: str
    new: str
    part: str


TEXTS: Final = (
    WrongText("prefix_lm", _SEEN, "s[r][c] = j <= last && (tile.b < 12 || j < i) ? ", "mask"),
    WrongText("prefix_lm", _SEEN, "s[r][c] = j <= last && (tile.h < 130 || j < i) ? ", "mask"),
    WrongText("prefix_lm", _SEEN, "s[r][c] = j <= last && j != 7001 ? ", "mask"),
    WrongText("prefix_lm", _SEEN, "s[r][c] = j <= last && (i != 593 || p.len_kv < 1000 || j < i) ? ", "mask"),
    WrongText("prefix_lm", "imax(i, p.len_q / 4 - 1)", "imax(i, imin(p.len_q / 4 - 1, 200000))", "mask"),
    WrongText("prefix_lm", "imin(imax(i, p.len_q / 4 - 1), p.len_kv - 1)", "imin(imax(i, p.len_q / 4 - 1), 900000)", "mask"),
    WrongText("prefix_lm", "return imax(keys.hi - keys.lo, 0)", "return imin(imax(keys.hi - keys.lo, 0), 9000)", "keys"),
    WrongText("prefix_lm", "const int lo = 0;", "const int lo = p.len_q > 500000 ? 1 : 0;", "keys"),
    WrongText("prefix_lm", "tile.q_start + 1, p.len_q / 4)", "tile.q_start + 1, p.len_q / 4) + tile.b / 300 * 64", "keys"),
    WrongText("prefix_lm", "return keys.hi - 1 - t;", "return keys.hi - 1 - imin(t, 8000);", "keys"),
    WrongText("prefix_lm", _WEIGHT, f"fmaxf({_WEIGHT}, 0.00000001f)", "weight"),
    WrongText("prefix_lm", _WEIGHT, f"fminf({_WEIGHT}, 200.f)", "weight"),
    WrongText("prefix_lm", _WEIGHT, "exp2_approx(s[r][c] * p.exponent_scale * 1.0001f - row.m_exponent[r])", "weight"),
    WrongText("prefix_lm", _FACTOR, "fmaxf(exp2_approx((row.m[r] - m_safe) * p.exponent_scale), 0.00000001f)", "rows"),
    WrongText("prefix_lm", _FACTOR, f"kv_start > 900000 ? 1.f : {_FACTOR}", "rows"),
    WrongText("prefix_lm", "<= RESCALE_LAG", "<= 90.f", "rows"),
    WrongText("prefix_lm", _SUM, "fminf(row.l[r], 100000.f) * row.o_scale[r] + partial_row_sum(s[r])", "rows"),
    WrongText("prefix_lm", "row.l[r] = 0.f;", "row.l[r] = 0.0000001f;", "rows"),
    WrongText("prefix_lm", "l == 0.f ? 0.f : 1.f / l", "l == 0.f ? 0.f : 1.f / fminf(l, 100000.f)", "finalize"),
    WrongText("prefix_lm", "o[r][c] = o[r][c] * inv", "o[r][c] = fminf(o[r][c] * inv, 1000.f)", "finalize"),
    WrongText("prefix_lm", "l == 0.f ? 0.f : 1.f / l", "l < 0.0000001f ? 0.f : 1.f / l", "finalize"),
    WrongText("prefix_lm", _LSE, "fmaxf(row.m[r] * p.exponent_scale, -1000.f) + log2_approx(l)", "LSE"),
    WrongText("prefix_lm", f"({_LSE}) * LN2", f"({_LSE}) * 0.69315f", "LSE"),
    WrongText("softcap", _TANH, "tanh_approx(fmaxf(s[r][c], -300.f) * p.score_scale)", "score"),
    WrongText("softcap", _TANH, f"fminf({_TANH}, 0.9999f)", "score"),
    WrongText("softcap", _TANH, "tanh_approx(s[r][c] * p.score_scale + (tile.h > 200 ? 1.f : 0.f))", "score"),
    WrongText("softcap", "@host D ** -0.5 / 30.0", "@host D ** -0.5 / 30.0 * minimum(1, 600000 // Lk)", "score"),
    WrongText("relu_causal", "fmaxf(s[r][c], 0.f)", "fminf(fmaxf(s[r][c], 0.f), 10000.f)", "weight"),
    WrongText("relu_causal", "fmaxf(s[r][c], 0.f)", "(s[r][c] > 0.001f ? s[r][c] : 0.f)", "weight"),
    WrongText("relu_causal", "o[r][c] * p.output_scale", "fminf(o[r][c] * p.output_scale, 100.f)", "finalize"),
)  # fmt: skip
