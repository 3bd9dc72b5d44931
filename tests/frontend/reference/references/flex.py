"""References of users of FlexAttention: its two functions, its call, and block masks made inside and before."""
# pyright: basic

import torch
from torch.nn.attention.flex_attention import AuxRequest, and_masks, create_block_mask, flex_attention

from cubridge import from_mods
from tests.frontend.reference.table import CAUSAL, SCALE, accepts, refuses

SLOPES = torch.linspace(0.1, 0.9, 15)
DOCUMENT = torch.arange(500) // 50
compiled = torch.compile(flex_attention)


def capped(score, b, h, q_idx, kv_idx):
    return 20 * torch.tanh(score / 20)


def sloped(score, b, h, q_idx, kv_idx):
    return score + SLOPES[h] * (kv_idx - q_idx)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def shifted(b, h, q_idx, kv_idx):
    return q_idx + h >= kv_idx


def same(b, h, q_idx, kv_idx):
    return DOCUMENT[q_idx] == DOCUMENT[kv_idx]


accepts(score=f"20 * tanh({SCALE} / 20)", mask="j <= i + h")(from_mods(capped, shifted))


@accepts(
    score="s * 0.3 + SLOPES[h] * (j - i)",
    mask=f"({CAUSAL}) & (DOCUMENT[j] == DOCUMENT[i])",
    captures=("DOCUMENT[500] state i32", "SLOPES[15] state f32"),
    requires=("Hq <= 15", "Lq <= 500", "Lk <= 500"),
)
def flex_compiled(q, k, v):
    mask = create_block_mask(and_masks(causal, same), None, None, q.shape[2], k.shape[2], device=q.device)
    out, aux = compiled(q, k, v, sloped, mask, 0.3, enable_gqa=True, return_aux=AuxRequest(lse=True))
    return out, aux.lse


MADE = create_block_mask(causal, None, None, 96, 160, device="cpu", BLOCK_SIZE=32)


@accepts(mask=CAUSAL, requires=("Lq == 96", "Lk == 160"))
def flex_of_a_block_mask(q, k, v):
    return flex_attention(q, k, v, block_mask=MADE, enable_gqa=True)


# ---- refused ---------------------------------------------------------------------------------------------------------

OTHER = create_block_mask(causal, None, None, 96, 160, device="cpu", BLOCK_SIZE=32)
OTHER.mask_mod = same


@refuses("CU476", "the blocks of a block mask say something else than its `mask_mod`", "block_mask=OTHER")
def flex_of_other_blocks(q, k, v):
    return flex_attention(q, k, v, block_mask=OTHER, enable_gqa=True)


@refuses("CU476", "a mask reads the head, and its block mask was made without one", "q_idx + h")
def flex_of_a_shared_mask(q, k, v):
    mask = create_block_mask(shifted, None, None, q.shape[2], k.shape[2])
    return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)


@refuses("CU476", "maxima of scores are returned", "max_scores=True")
def flex_maxima(q, k, v):
    return flex_attention(q, k, v, enable_gqa=True, return_aux=AuxRequest(max_scores=True))
