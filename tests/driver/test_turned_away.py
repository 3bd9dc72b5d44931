"""Right kernels that were once turned away: their text and numbers, from the reference to the value engine."""
# pyright: basic

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.reference import read_reference
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Shape
from cubridge.judge.problem import make_problem
from tests.frontend.reference.references.helpers import repeated

SHAPE = Shape(2, 4, 2, 70, 90, 64)


def scores(q, k):
    return (q @ repeated(k, q).mT).float() * q.shape[-1] ** -0.5


def attend(s, q, v):
    return s.softmax(-1).to(v.dtype) @ repeated(v, q)


def bloom(q, k, v, alibi):
    (b, h, n, _), k = q.shape, repeated(k, q)
    s = (q @ k.mT).view(b * h, n, -1) + alibi.to(q.dtype)
    return attend(s.view(b, h, n, -1), q, v)


def joined(q, k, v, text):
    """Keys of an image behind those of a text: the table ends before the keys do."""
    image = torch.ones(q.shape[0], k.shape[2] - text.shape[1], dtype=torch.bool, device=q.device)
    keep = torch.cat([text.bool(), image], 1)
    keep = keep[:, None, None] & keep[:, : q.shape[2], None][:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep, enable_gqa=True)


def padded(q, k, v, bias):
    return attend(scores(q, k) + F.pad(bias, (1, 0)), q, v)


def tree(q, k, v, tree):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    keep[-16:, -16:] = tree
    return attend(scores(q, k).masked_fill(~keep, -torch.inf), q, v)


def gated(q, k, v):
    s = scores(q, k)
    return attend(s, q, v) * torch.sigmoid(s.logsumexp(-1, keepdim=True) - 5.0).to(v.dtype)


def longer_mask(q, k, v, mask):
    return attend(scores(q, k) + mask[..., : k.shape[2]], q, v)


def softpick(q, k, v):
    """As it is published: its epsilon is relative to the largest score, whatever its sign."""
    s = scores(q, k)
    top = s.amax(-1, keepdim=True)
    above = torch.exp(s - top) - torch.exp(-top)
    sizes = torch.where(s.isfinite(), above.abs(), 0)
    return (torch.relu(above) / (sizes.sum(-1, keepdim=True) + 1e-8)).to(v.dtype) @ repeated(v, q)


REFERENCES = {
    bloom: lambda s, d: {"alibi": torch.linspace(0.1, 0.3, s.B * s.Hq)[:, None, None] * torch.arange(s.Lk)},
    joined: lambda s, d: {"text": (torch.arange(s.Lk // 4) % 3 > 0).expand(s.B, -1).long()},
    padded: lambda s, d: {"bias": torch.linspace(0.0, 3.0, s.Lk - 1)},
    tree: lambda s, d: {"tree": torch.ones(16, 16).tril() > 0},
    gated: None,
    softpick: None,
    longer_mask: lambda s, d: {"mask": torch.linspace(0, 3, s.Lq * (s.Lk + 19)).view(s.Lq, -1).expand(s.B, 1, -1, -1)},
}


@pytest.mark.parametrize("function", REFERENCES, ids=lambda f: f.__name__)
def test_is_adapted(function) -> None:
    adapted = adapt_unchecked(function, "sm80", extra_inputs=REFERENCES[function])
    problem = make_problem(adapted.reference.attention, "random", SHAPE, 0, "bf16", {})
    out, lse = run_values(adapted.target, (problem.q, problem.k, problem.v), Launch(SHAPE, problem.captures))
    assert problem.judge(out, lse if problem.lse is not None else None).accepted


def test_an_argument_that_is_too_short_is_refused_at_the_call() -> None:
    traced = read_reference(longer_mask, extra_inputs=REFERENCES[longer_mask]).traced
    assert any("Lk <= mask.3" in r.message for r in traced.spec.assumptions)
    mask = torch.zeros(2, 1, 70, 90)
    inputs = {n: torch.zeros(2, h, x, 64) for n, h, x in (("q", 4, 70), ("k", 2, 90), ("v", 2, 90))}
    traced.captures(SHAPE.sizes(), {**inputs, "mask": mask})
    with pytest.raises(CuError, match=r"Lk <= mask.3` does not hold: mask.3 = 89") as caught:
        traced.captures(SHAPE.sizes(), {**inputs, "mask": mask[..., :89]})
    assert caught.value.diagnostics[0].code == "CU490"
