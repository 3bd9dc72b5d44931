"""FlashAttention's own packages as peers, where they can say a variant: FlashAttention-3's forward pass (`pip install fa3-fwd`) and
FlashAttention-4 (`pip install flash-attn-4`). Both take and give [B, L, H, D]; they get views of ours."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bench.masks import Window, bottom_right, everything, top_left
from bench.peers import CAP, Setting, Work


@dataclass(frozen=True, slots=True)
class Flags:
    """A variant in the words of both packages. Causal masks end at the bottom right; `softcap` 0 is none."""

    causal: bool = False
    window: tuple[int, int] | None = None
    softcap: float = 0.0

    @staticmethod
    def of(setting: Setting) -> Flags | None:
        """None where they have no words for it."""
        variant, (lq, lk) = setting.variant, setting.lengths
        if not variant.softmax or variant.score not in (None, "softcap"):
            return None
        softcap = CAP if variant.score == "softcap" else 0.0
        if isinstance(variant.visible, Window):
            return Flags(window=(variant.visible.left, variant.visible.right), softcap=softcap)
        if variant.visible is everything:
            return Flags(softcap=softcap)
        if variant.visible is bottom_right or (variant.visible is top_left and lq == lk):
            return Flags(causal=True, softcap=softcap)
        return None


def fa3(setting: Setting) -> Work | None:
    """The package is built without windows."""
    flags = Flags.of(setting)
    if flags is None or flags.window is not None:
        return None
    from fa3_fwd_interface import flash_attn_func  # pyright: ignore[reportMissingImports]

    q, k, v = _by_length(setting)
    return lambda: flash_attn_func(q, k, v, causal=flags.causal, softcap=flags.softcap).transpose(1, 2)


def fa4(setting: Setting) -> Work | None:
    flags = Flags.of(setting)
    if flags is None:
        return None
    from flash_attn.cute import flash_attn_func  # pyright: ignore[reportMissingImports]

    q, k, v = _by_length(setting)
    window = flags.window or (None, None)

    def work() -> Tensor:
        out, _ = flash_attn_func(q, k, v, causal=flags.causal, window_size=window, softcap=flags.softcap)
        return out.transpose(1, 2)

    return work


def _by_length(setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (x.transpose(1, 2) for x in (setting.q, setting.k, setting.v))
    return q, k, v
