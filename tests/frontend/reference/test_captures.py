"""Captures that are computed for each pair of row and key: how many of them."""
# pyright: basic

from __future__ import annotations

import pytest
import torch

from cubridge.frontend.reference import captures
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.trace import trace
from cubridge.ir.diagnostics import Refused
from cubridge.ir.spec import Shape
from tests.frontend.reference.references.helpers import plain_scores, repeated

SHAPE = Shape(1, 2, 1, 30, 20, 8)


def sorted_biases(q, k, v, x):
    places = torch.bucketize(torch.arange(q.shape[2])[:, None] * torch.arange(k.shape[2]), x)
    return (plain_scores(q, k) + places).softmax(-1).to(v.dtype) @ repeated(v, q)


def part_of_a_bias(q, k, v, x):
    return (plain_scores(q, k) + x[..., : k.shape[2]]).softmax(-1).to(v.dtype) @ repeated(v, q)


def values(function, x):
    extra = lambda shape, device: {"x": x(shape)}  # noqa: E731
    traced = trace(Reference.of(function, extra), SHAPE)  # pyright: ignore[reportArgumentType]
    inputs = {n: torch.zeros(1, h, length, 8) for n, h, length in (("q", 2, 30), ("k", 1, 20), ("v", 1, 20))}
    return traced.captures(SHAPE.sizes(), {**inputs, **extra(SHAPE, "cpu")})


def test_what_is_computed_of_each_pair_is_refused_where_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = lambda shape: torch.arange(0, 600, 50)  # noqa: E731
    assert [x.shape for x in values(sorted_biases, edges).values()] == [(30, 20)]
    monkeypatch.setattr(captures, "MOST_OF_PAIRS", 30 * 20 - 1)
    with pytest.raises(Refused, match="of each pair of row and key, would take") as caught:
        values(sorted_biases, edges)
    assert caught.value.diagnostics[0].code == "CU491"


def test_as_many_elements_as_an_argument_has_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "MOST_OF_PAIRS", 0)
    found = values(part_of_a_bias, lambda shape: torch.ones(shape.Lq, shape.Lk + 19))
    assert [x.shape for x in found.values()] == [(30, 20)]
