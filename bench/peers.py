"""What users would otherwise run: the reference in eager PyTorch, SDPA with its backends, FlexAttention compiled by Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.masks import Visible, everything, tensor
from bench.variants import BenchVariant

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import FlexKernelOptions

Work = Callable[[], object]
CAP: Final = 30.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One timed problem. `extra`: the reference's arguments besides q, k, v."""

    variant: BenchVariant
    q: Tensor
    k: Tensor
    v: Tensor
    extra: Mapping[str, object]

    @property
    def lengths(self) -> tuple[int, int]:
        return self.q.shape[2], self.k.shape[2]

    @property
    def grouped(self) -> bool:
        return self.q.shape[1] != self.k.shape[1]

    def rule(self) -> Visible:
        return self.variant.visible(self.extra, *self.lengths)

    def visible(self) -> Tensor:
        """bool [B, Lq, Lk], B 1 where all batch entries are alike."""
        counts = (self.q.shape[0] if self.variant.by_batch else 1, *self.lengths)
        b, i, j = (torch.arange(n, device=self.q.device) for n in counts)
        return self.rule()(b[:, None, None], i[None, :, None], j[None, None, :]).expand(counts)

    def flops(self) -> float:
        """Multiplications and additions of both products over visible elements."""
        batch, heads, _, head_dim = self.q.shape
        seen = self.visible()
        return 4.0 * heads * head_dim * float(seen.sum()) * batch / seen.shape[0]


def eager(setting: Setting, reference: Callable[..., object]) -> Work:
    return lambda: reference(setting.q, setting.k, setting.v, **setting.extra)


# ---- SDPA ------------------------------------------------------------------------------------------------------------


def sdpa(setting: Setting) -> dict[str, Work]:
    """By backend. Full and causal go by flag; other masks and small biases as a dense mask, by torch's own choice of backend."""
    variant, (lq, lk) = setting.variant, setting.lengths
    if not variant.softmax or variant.score not in (None, *_BIASES):
        return {}
    if variant.score is None and (variant.visible is everything or (variant.causal and lq == lk)):
        backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA2": SDPBackend.FLASH_ATTENTION}
        return {name: _by_flag(setting, backend) for name, backend in backends.items()}
    return {"mask": _by_mask(setting)}


def _by_flag(setting: Setting, backend: SDPBackend) -> Work:
    def work() -> Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                setting.q, setting.k, setting.v, is_causal=setting.variant.causal, enable_gqa=setting.grouped
            )

    return work


def _by_mask(setting: Setting) -> Work:
    mask = setting.visible()[:, None]
    if setting.variant.score is not None:
        mask = _BIASES[setting.variant.score](setting).masked_fill(~mask, -torch.inf).to(setting.q.dtype)
    return lambda: torch.nn.functional.scaled_dot_product_attention(
        setting.q, setting.k, setting.v, attn_mask=mask, enable_gqa=setting.grouped
    )


def _alibi_bias(setting: Setting, two_sided: bool) -> Tensor:
    """[Hq, Lq, Lk]."""
    lq, lk = setting.lengths
    slopes = tensor(setting.extra, "slopes")
    i, j = (torch.arange(n, device=slopes.device) for n in (lq, lk))
    distance = j[None, :] - (i[:, None] + (lk - lq))
    return slopes[:, None, None] * (-distance.abs() if two_sided else distance)


def _table_bias(setting: Setting) -> Tensor:
    """[Lq, Lk]."""
    table, (lq, lk) = tensor(setting.extra, "table"), setting.lengths
    i, j = (torch.arange(n, device=table.device) for n in (lq, lk))
    return table[i[:, None] - j[None, :] + lk]


_BIASES: Final[dict[str, Callable[[Setting], Tensor]]] = {
    "alibi": lambda setting: _alibi_bias(setting, two_sided=False),
    "alibi_two_sided": lambda setting: _alibi_bias(setting, two_sided=True),
    "table": _table_bias,
}
"""Score changes that SDPA can say as an addend in half precision; distances themselves are too large for it."""


# ---- FlexAttention ---------------------------------------------------------------------------------------------------


Compile = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]
Backend = Literal["TRITON", "FLASH"]


def compile_static(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    import torch._dynamo.config as dynamo

    dynamo.recompile_limit = 256  # one flex_attention serves all variants
    return torch.compile(function, dynamic=False)


def flex(setting: Setting, compiled_by: Compile = compile_static, backend: Backend = "TRITON") -> Work | None:
    """FlexAttention with a block mask; a sink is a correction of its result by the log-sum-exp. None where it cannot say it.
    `backend`: FLASH is FlashAttention-4."""
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    variant, (lq, lk) = setting.variant, setting.lengths
    if not variant.softmax:
        return None
    block_mask = None
    if variant.visible is not everything:
        visible = setting.rule()
        batch = setting.q.shape[0] if variant.by_batch else None

        def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return visible(b, i, j)

        block_mask = create_block_mask(mask_mod, batch, None, lq, lk, device=str(setting.q.device))
    grouped, options = setting.grouped, cast("FlexKernelOptions", {"BACKEND": backend})
    if variant.score == "sink":
        sinks = tensor(setting.extra, "sinks")

        def with_sink(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out, aux = flex_attention(
                q,
                k,
                v,
                block_mask=block_mask,
                enable_gqa=grouped,
                return_aux=AuxRequest(lse=True),
                kernel_options=options,
            )
            assert aux.lse is not None
            return out * torch.sigmoid(aux.lse - sinks[None, :, None])[..., None].to(out.dtype)

        compiled = compiled_by(with_sink)
        return lambda: compiled(setting.q, setting.k, setting.v)
    score_mod = SCORES[variant.score](setting) if variant.score else None
    attention = compiled_by(flex_attention)
    return lambda: attention(
        setting.q, setting.k, setting.v, score_mod=score_mod, block_mask=block_mask, enable_gqa=grouped,
        kernel_options=options,
    )  # fmt: skip


ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def _alibi(setting: Setting) -> ScoreMod:
    slopes, (lq, lk) = tensor(setting.extra, "slopes"), setting.lengths
    return lambda s, b, h, i, j: s + slopes[h] * (j - (i + (lk - lq)))


def _alibi_two_sided(setting: Setting) -> ScoreMod:
    slopes, (lq, lk) = tensor(setting.extra, "slopes"), setting.lengths
    return lambda s, b, h, i, j: s - slopes[h] * (i + (lk - lq) - j).abs()


def _alibi_softcap(setting: Setting) -> ScoreMod:
    slopes = tensor(setting.extra, "slopes")
    return lambda s, b, h, i, j: CAP * torch.tanh((s + slopes[h] * (j - i)) / CAP)


def _softcap(setting: Setting) -> ScoreMod:
    return lambda s, b, h, i, j: CAP * torch.tanh(s / CAP)


def _relative(setting: Setting) -> ScoreMod:
    return lambda s, b, h, i, j: s + (i - j)


def _table(setting: Setting) -> ScoreMod:
    table, (_, lk) = tensor(setting.extra, "table"), setting.lengths
    return lambda s, b, h, i, j: s + table[i - j + lk]


SCORES: Final[dict[str, Callable[[Setting], ScoreMod]]] = {
    "alibi": _alibi,
    "alibi_two_sided": _alibi_two_sided,
    "alibi_softcap": _alibi_softcap,
    "softcap": _softcap,
    "relative": _relative,
    "table": _table,
}
