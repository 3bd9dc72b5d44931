"""FlashAttention-3, unmodified: equal to fp64 on the PTX machine."""

from __future__ import annotations

import pytest
import torch

from tests.foreign import fa3
from tests.foreign.attention import Shape, attention
from tests.foreign.sources import needs_flash_attention_3

pytestmark = [pytest.mark.slow, needs_flash_attention_3]

SHAPES = [
    Shape(1, 2, 2, 384, 384),
    Shape(2, 2, 2, 1, 77),
    Shape(1, 4, 2, 300, 500),
    Shape(1, 2, 1, 500, 300),
    Shape(1, 2, 2, 384, 384, right=0),
    Shape(1, 2, 1, 200, 600, right=0),
    Shape(1, 2, 2, 300, 300, left=70, right=30),
    Shape(1, 4, 1, 129, 257, left=20, right=0),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers(shape: Shape) -> None:
    out, lse = fa3.run(shape)
    right, right_lse = attention(shape, *shape.inputs())
    torch.testing.assert_close(out.double(), right, atol=2e-3, rtol=2**-7)
    torch.testing.assert_close(lse.double(), right_lse, atol=2e-6, rtol=1e-6)
