"""The packaged kernels of a backward pass, lifted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.ir.nodes import Kernel
from cubridge.judge.attention import Attention, full_attention
from tests.support.specs import softmax_spec

ROWS, PAIRS, LAST = BACKWARD = ("sm90a-backward-rows", "sm90a-backward", "sm90a-backward-dq")
"""In the order in which they run."""


@cache
def lifted_backward(name: str, head_dim: int = 128) -> Kernel:
    return lift_kernel(choose_kernel(name), "bf16", head_dim).kernel


@cache
def causal() -> Attention:
    """Causal from the bottom right, with its LSE."""
    return replace(full_attention(), spec=softmax_spec(mask="j <= i + Lk - Lq"))
