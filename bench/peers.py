"""What users would otherwise run: the reference in eager PyTorch, SDPA with its backends, FlexAttention compiled by Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.variants import BenchVariant

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

    def visible(self) -> Tensor:
        """[Lq, Lk] bool."""
        lq, lk = self.lengths
        i, j = (torch.arange(n, device=self.q.device) for n in (lq, lk))
        return self.variant.visible(i[:, None], j[None, :], lq, lk)

    def flops(self) -> float:
        """Multiplications and additions of both products over visible elements."""
        batch, heads, _, head_dim = self.q.shape
        return 4.0 * batch * heads * head_dim * float(self.visible().sum())


def eager(setting: Setting, reference: Callable[..., object]) -> Work:
    return lambda: reference(setting.q, setting.k, setting.v, **setting.extra)


# ---- SDPA ------------------------------------------------------------------------------------------------------------


def sdpa(setting: Setting) -> dict[str, Work]:
    """By backend. Full and causal go by flag; other masks and linear biases as a dense mask, by torch's own choice of backend."""
    variant, (lq, lk) = setting.variant, setting.lengths
    if not variant.softmax or variant.score in ("softcap", "sink"):
        return {}
    if variant.score is None and (variant.name == "full" or (variant.causal and lq == lk)):
        backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA2": SDPBackend.FLASH_ATTENTION}
        return {name: _by_flag(setting, backend) for name, backend in backends.items()}
    return {"mask": _by_mask(setting)}


def _by_flag(setting: Setting, backend: SDPBackend) -> Work:
    grouped = setting.q.shape[1] != setting.k.shape[1]

    def work() -> Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                setting.q, setting.k, setting.v, is_causal=setting.variant.causal, enable_gqa=grouped
            )

    return work


def _by_mask(setting: Setting) -> Work:
    mask = setting.visible()
    if setting.variant.score is not None:
        mask = _bias(setting).masked_fill(~mask, -torch.inf).to(setting.q.dtype)
    grouped = setting.q.shape[1] != setting.k.shape[1]
    return lambda: torch.nn.functional.scaled_dot_product_attention(
        setting.q, setting.k, setting.v, attn_mask=mask, enable_gqa=grouped
    )


def _bias(setting: Setting) -> Tensor:
    """Linear biases, [Hq, Lq, Lk]."""
    lq, lk = setting.lengths
    slopes = _tensor(setting, "slopes")
    i, j = (torch.arange(n, device=slopes.device) for n in (lq, lk))
    distance = j[None, :] - (i[:, None] + (lk - lq))
    return slopes[:, None, None] * (distance if setting.variant.score == "alibi" else -distance.abs())


# ---- FlexAttention ---------------------------------------------------------------------------------------------------


Compile = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]


def compile_static(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    torch._dynamo.config.recompile_limit = 256  # one flex_attention serves all variants
    return torch.compile(function, dynamic=False)


def flex(setting: Setting, compiled_by: Compile = compile_static) -> Work | None:
    """FlexAttention with a block mask; a sink is a correction of its result by the log-sum-exp."""
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    variant, (lq, lk) = setting.variant, setting.lengths
    if not variant.softmax:
        return None
    block_mask = None
    if variant.name != "full" and variant.score != "alibi_two_sided":
        visible = variant.visible

        def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return visible(i, j, lq, lk)

        block_mask = create_block_mask(mask_mod, None, None, lq, lk, device=str(setting.q.device))
    grouped = setting.q.shape[1] != setting.k.shape[1]
    if variant.score == "sink":
        sinks = _tensor(setting, "sinks")

        def with_sink(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out, aux = flex_attention(
                q, k, v, block_mask=block_mask, enable_gqa=grouped, return_aux=AuxRequest(lse=True)
            )
            return out * torch.sigmoid(aux.lse - sinks[None, :, None])[..., None].to(out.dtype)

        compiled = compiled_by(with_sink)
        return lambda: compiled(setting.q, setting.k, setting.v)
    score_mod = SCORES[variant.score](setting) if variant.score else None
    attention = compiled_by(flex_attention)
    return lambda: attention(
        setting.q, setting.k, setting.v, score_mod=score_mod, block_mask=block_mask, enable_gqa=grouped
    )


ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def _alibi(setting: Setting) -> ScoreMod:
    slopes, (lq, lk) = _tensor(setting, "slopes"), setting.lengths
    return lambda s, b, h, i, j: s + slopes[h] * (j - (i + (lk - lq)))


def _alibi_two_sided(setting: Setting) -> ScoreMod:
    slopes, (lq, lk) = _tensor(setting, "slopes"), setting.lengths
    return lambda s, b, h, i, j: s - slopes[h] * (i + (lk - lq) - j).abs()


def _softcap(setting: Setting) -> ScoreMod:
    return lambda s, b, h, i, j: CAP * torch.tanh(s / CAP)


SCORES: Final[dict[str, Callable[[Setting], ScoreMod]]] = {
    "alibi": _alibi,
    "alibi_two_sided": _alibi_two_sided,
    "softcap": _softcap,
}


def _tensor(setting: Setting, name: str) -> Tensor:
    value = setting.extra[name]
    assert isinstance(value, Tensor)
    return value
