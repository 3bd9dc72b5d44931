"""Specs written by hand, for tests that need one without a reference."""

from __future__ import annotations

from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, Capture, RowReduction


def softmax_spec(
    score: str = "s * D ** -0.5", mask: str = "j <= i", captures: tuple[Capture, ...] = ()
) -> AttentionSpec:
    """Softmax attention with this score and mask."""
    visible, weight = parse_expr(mask), parse_expr("exp(x - m)")
    return AttentionSpec(
        score=parse_expr(score),
        mask=visible,
        weight=weight,
        rows=(RowReduction("l", "sum", visible, weight),),
        finalize=parse_expr("acc / l"),
        shift=True,
        lse=parse_expr("m + log(l)"),
        kv_head=parse_expr("h // (Hq // Hk)"),
        captures=captures,
    )
