"""FlexAttention as it is read, beside FlexAttention itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

from cubridge import from_mods
from cubridge.frontend.reference.flex import flex_by_math, flex_math, made_mask
from cubridge.ir.diagnostics import CuError

BIAS = torch.linspace(-2, 2, 4 * 40).view(4, 40)


def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.where(j == i - 1, -torch.inf, score * 0.5 + BIAS[h, j] + b)


def window(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (j - i).abs() < 3 + h


def below(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Hides all keys from the first rows."""
    return j + 2 < i


@pytest.mark.filterwarnings("ignore")
def test_it_computes_what_flex_attention_does() -> None:
    q, k, v = (
        torch.randn(2, h, n, 16, generator=torch.Generator().manual_seed(n)) for h, n in ((4, 24), (2, 40), (2, 41))
    )
    v = v[:, :, :40]
    sizes = (2, 4, 24, 40)
    options = {"scale": 0.3, "enable_gqa": True, "return_lse": True}
    mod = and_masks(window, below)
    right = flex_attention(q, k, v, biased, create_block_mask(mod, *sizes, device="cpu"), **options)
    torch.testing.assert_close(flex_math(q, k, v, biased, made_mask(mod, *sizes), **options), right)
    assert right[0][:, :, 0].eq(0).all() and right[1][:, :, 0].isneginf().all()
    codes = flex_attention.__code__, create_block_mask.__code__
    with pytest.raises(ZeroDivisionError), flex_by_math(lambda: flex_attention):
        assert flex_attention.__code__ is not codes[0]
        raise ZeroDivisionError
    assert (flex_attention.__code__, create_block_mask.__code__) == codes


def test_mods_of_other_arguments_are_refused() -> None:
    for given in ({}, {"score_mod": window}, {"mask_mod": biased}, {"mask_mod": 3}):
        with pytest.raises(CuError) as caught:
            from_mods(**given)
        assert caught.value.diagnostics[0].code == "CU472"
