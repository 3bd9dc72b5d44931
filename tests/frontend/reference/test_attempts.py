"""References that run at some sizes only are read at sizes that their failures, their tensors or their numbers name."""
# pyright: basic

from __future__ import annotations

import pytest
import torch
from torch import nn

from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.trace import trace
from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Shape
from cubridge.ir.walk import free_names
from tests.frontend.reference.references.helpers import repeated


def softmax(s, q, v):
    return s.softmax(-1).to(v.dtype) @ repeated(v, q)


def scores(q, k):
    return (q @ repeated(k, q).mT).float() * q.shape[-1] ** -0.5


class Window(nn.Module):
    """Swin: windows of 7 x 7 tokens, three heads."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.linspace(-1, 1, 169 * 3).view(169, 3))
        place = torch.stack(torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")).flatten(1)
        lag = (place[:, :, None] - place[:, None]) + 6
        self.register_buffer("lag", lag[0] * 13 + lag[1])

    def forward(self, q, k, v):
        bias = self.table[self.lag.view(-1)].view(49, 49, -1).permute(2, 0, 1)
        return (q @ k.mT * q.shape[-1] ** -0.5 + bias.to(q.dtype)).softmax(-1) @ v


POSITIONS = torch.linspace(0, 1, 197)


def vit(q, k, v):
    return softmax(scores(q, k) + POSITIONS, q, v)


def four_groups(q, k, v):
    q = q.unflatten(1, (k.shape[1], 4))
    return (q @ k[:, :, None].mT * q.shape[-1] ** -0.5).softmax(-1).matmul(v[:, :, None]).flatten(1, 2)


def long_enough(q, k, v):
    if k.shape[2] < 384:
        raise ValueError("too short")
    return softmax(scores(q, k), q, v)


def six_heads(q, k, v):
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.1, 0.05, 0.01])
    return softmax(scores(q, k) + slopes[:, None, None] * torch.arange(k.shape[2]), q, v)


def square(q, k, v):
    return softmax(scores(q, k) + torch.eye(q.shape[2]), q, v)


FIXED = {
    Window(): {"Lq == 49", "Lk == 49", "Hk == 3", "Hq == Hk"},
    vit: {"Lk == 197"},
    four_groups: {"4 * Hk == Hq"},
    long_enough: {"Lk >= 384"},
    six_heads: {"Hk == 6", "Hq == Hk"},
    square: {"Lq == Lk"},
}


@pytest.mark.parametrize("function", FIXED, ids=lambda f: getattr(f, "__name__", type(f).__name__))
def test_the_sizes_are_found(function) -> None:
    traced = trace(Reference.of(function))
    required = {print_expr(p.condition) for p in traced.spec.preconditions}
    wanted = {c.replace("Lq == Lk", "Lk == Lq") if c not in required else c for c in FIXED[function]}
    assert wanted <= required, required
    assert any("read at" in r.message for r in traced.spec.specialised)


class PerHead(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.linspace(0.1, 0.3, heads))

    def forward(self, q, k, v):
        return softmax(scores(q, k) + self.slope[:, None, None] * torch.arange(k.shape[2]), q, v)


@pytest.mark.parametrize(("heads", "key_heads"), [(2, 1), (4, 1), (4, 2)])
def test_the_heads_that_are_asked_for_are_tried_before_others(heads: int, key_heads: int) -> None:
    shape = Shape(1, heads, key_heads, 64, 64, 32)
    traced = trace(Reference.of(PerHead(heads)), shape)
    assert traced.meets_preconditions(shape)
    assert {"Hq", "Hk"} >= {n for p in traced.spec.preconditions for n in free_names(p.condition)}


def test_inputs_that_are_made_at_some_sizes_only() -> None:
    def extra_inputs(shape, device):
        if shape.Lq % 64 or shape.Lk % 64:
            raise ValueError("whole blocks only")
        return {"layout": torch.arange(shape.Lq // 64)[:, None] >= torch.arange(shape.Lk // 64)}

    def attention(q, k, v, layout):
        keep = layout.repeat_interleave(64, 0).repeat_interleave(64, 1)
        return softmax(scores(q, k).masked_fill(~keep, -torch.inf), q, v)

    traced = trace(Reference.of(attention, extra_inputs))
    assert print_expr(traced.spec.mask) == "layout[i // 64, j // 64]"
    assert {"Lq % 64 == 0", "Lk % 64 == 0"} <= {print_expr(p.condition) for p in traced.spec.preconditions}


def test_where_no_sizes_are_found_they_are_asked_for() -> None:
    def attention(q, k, v):
        raise ValueError("never")

    with pytest.raises(CuError) as caught:
        trace(Reference.of(attention))
    assert "--shape" in str(caught.value.diagnostics[0].help) and "never" in str(caught.value)


def test_what_differs_from_the_first_attempt_is_said() -> None:
    """The precision, and not the sizes."""

    def biased(q, k, v, bias):
        return (q @ repeated(k, q).mT + bias).softmax(-1) @ repeated(v, q)

    read = trace(Reference.of(biased, lambda s, _: {"bias": torch.zeros(s.Lq, s.Lk)}))
    said = "read in float32, because otherwise the reference fails: RuntimeError: expected"
    assert read.spec.specialised[-1].message.startswith(said)
