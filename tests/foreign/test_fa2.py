"""FlashAttention-2, unmodified: equal to fp64 on the PTX machine, and every deleted order is noticed."""

from __future__ import annotations

import pytest
import torch

from cubridge.backend.ptx.machine import Machine
from cubridge.ir.diagnostics import CuError
from tests.backend.ptx.orders import ordering_sites, without
from tests.foreign import fa2
from tests.foreign.attention import Shape, attention
from tests.foreign.sources import needs_flash_attention_2

pytestmark = [pytest.mark.slow, needs_flash_attention_2]

PLAIN, CAUSAL = Shape(1, 2, 1, 200, 333), Shape(1, 2, 1, 200, 600, right=0)  # all loops of either form run
SHAPES = [
    Shape(1, 2, 2, 256, 256),
    Shape(2, 2, 2, 1, 77),
    PLAIN,
    Shape(1, 4, 2, 333, 200),
    CAUSAL,
    Shape(1, 2, 1, 333, 200, right=0),
    Shape(1, 2, 2, 300, 300, left=70, right=30),
    Shape(1, 4, 1, 129, 257, left=20, right=0),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers(shape: Shape) -> None:
    out, lse = fa2.run(shape)
    right, right_lse = attention(shape, *shape.inputs())
    torch.testing.assert_close(out.double(), right, atol=2e-3, rtol=2**-7)
    sees_nothing = right_lse == -torch.inf  # which FlashAttention-2 says with +inf
    torch.testing.assert_close(lse.double(), right_lse.masked_fill(sees_nothing, torch.inf), atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("shape", [PLAIN, CAUSAL], ids=str)
def test_each_deleted_order_is_noticed(shape: Shape) -> None:
    program = fa2.kernel(shape).program
    sites = ordering_sites(program)
    missed: list[str] = []
    for pc in sites:
        try:
            fa2.run(shape, Machine(without(program, pc), {}))
        except CuError as error:
            assert error.diagnostics[0].code == "CU833"
        else:
            missed.append(f"{program.span(pc).text} {program.places.chain(program.code[pc].place)}")
    assert len(sites) >= 14 and missed == []
