"""Vectors by distance: what becomes part of one, what does not, and what one holds."""
# pyright: basic

from __future__ import annotations

from typing import Any

import pytest
import torch

from cubridge.driver.captures import SpecCaptures
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.trace import trace
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Shape
from tests.frontend.reference.references.helpers import plain_scores, repeated

SHAPE = Shape(2, 4, 2, 30, 20, 8)
VECTOR = "by_distance[{}i - j + Lk + 127]"


def attend(scores, k, v, q):
    return scores.softmax(-1).to(v.dtype) @ repeated(v, q)


def distances(q, k):
    return torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])


def two_tables(q, k, v, x, y):
    near = distances(q, k).clamp(-7, 7) + 7
    return attend(plain_scores(q, k) + y[:, None, None] * near + x[:, near], k, v, q)


def half_of_them(q, k, v, x, y):
    near = distances(q, k).clamp(-7, 7) + 7
    later = torch.arange(k.shape[2]) * y[:, None, None]
    return attend(plain_scores(q, k) + later + x[0, near] * (distances(q, k) > 3), k, v, q)


def a_factor(q, k, v, x, y):
    near = distances(q, k).clamp(-7, 7) + 7
    return attend(plain_scores(q, k) * x[:, near], k, v, q)


def by_sum(q, k, v, x, y):
    ends = (torch.arange(q.shape[2])[:, None] + torch.arange(k.shape[2])) % 15
    return attend(plain_scores(q, k) + x[:, ends], k, v, q)


def no_table(q, k, v, x, y):
    return attend(plain_scores(q, k) + y[:, None, None] * distances(q, k), k, v, q)


def extra(shape, device):
    return {"x": torch.sin(torch.arange(15.0 * shape.Hq)).view(shape.Hq, 15), "y": torch.arange(shape.Hq) / 8}


def traced(function):
    return trace(Reference.of(function, extra), SHAPE)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("function", "score"),
    [
        (two_tables, f"s * D ** -0.5 + {VECTOR.format('h, ')}"),
        (half_of_them, f"s * D ** -0.5 + {VECTOR.format('')} + y[h] * j"),
        (a_factor, f"s * D ** -0.5 * {VECTOR.format('h, ')}"),
        (by_sum, "s * D ** -0.5 + captured_x[h, (j + i) % 15]"),
        (no_table, "s * D ** -0.5 - y[h] * (j - i)"),
    ],
)
def test_what_is_read_by_distance_is_one_vector(function, score) -> None:
    assert print_expr(traced(function).spec.score) == score


def test_it_reaches_past_both_ends() -> None:
    found, given = traced(two_tables), extra(SHAPE, "cpu")
    inputs = {n: torch.zeros(2, h, length, 8) for n, h, length in (("q", 4, 30), ("k", 2, 20), ("v", 2, 20))}
    for x in (given["x"], given["x"] + 1):
        vector = found.captures(SHAPE.sizes(), {**inputs, **given, "x": x})["by_distance"]
        distance = (torch.arange(30 + 20 + 255) - 20 - 127).clamp(-7, 7) + 7
        assert torch.allclose(vector, x[:, distance] + given["y"][:, None] * distance)
    assert found.inputs_of("by_distance") == {"x", "y"}


def test_its_subscripts_are_computed_once_for_all_calls_at_some_sizes() -> None:
    found, given = traced(two_tables), extra(SHAPE, "cpu")
    source: Any = SpecCaptures.of(found, {})
    assert (source.computed, source.of_sizes, source.tables) == (("by_distance",), (), ("places",))
    inputs = {n: torch.zeros(2, h, length, 8) for n, h, length in (("q", 4, 30), ("k", 2, 20), ("v", 2, 20))}
    kept = source.compute(source.tables, inputs, given)
    assert kept["places"].tolist() == ((torch.arange(305) - 147).clamp(-7, 7) + 7).tolist()
    first = source.compute(source.computed, inputs, given, kept)["by_distance"]
    assert torch.equal(first, source.compute(source.computed, inputs, given)["by_distance"])
    others = source.compute(source.computed, inputs, {**given, "y": 0 * given["y"]}, {"places": 0 * kept["places"]})
    assert torch.equal(others["by_distance"], given["x"][:, :1].expand(4, 305))
