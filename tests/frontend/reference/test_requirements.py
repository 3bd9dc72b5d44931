"""What a reading takes for granted of captured values, each kind with values that break it, and with those that nothing hinders."""
# pyright: basic

from __future__ import annotations

import pytest
import torch

from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.trace import trace
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Shape
from tests.frontend.reference.references.helpers import plain_scores, repeated

L = 20
SHAPE = Shape(2, 4, 2, L, L, 8)


def attend(scores, q, v):
    return scores.softmax(-1).to(v.dtype) @ repeated(v, q)


def above(q, k, v, x):
    return attend(plain_scores(q, k).masked_fill(~(x < 1.5), -torch.inf), q, v)


def clamped(q, k, v, x):
    return attend(plain_scores(q, k) + x.clamp(min=0.0), q, v)


def added_to_a_fill(q, k, v, x):
    later = torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None]
    return attend(plain_scores(q, k).masked_fill(later, -torch.inf) + x, q, v)


def times_zero(q, k, v, x):
    earlier = torch.arange(k.shape[2]) <= torch.arange(q.shape[2])[:, None]
    return attend(plain_scores(q, k) + x * earlier, q, v)


def fill_times(q, k, v, x):
    later = torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None]
    return attend(plain_scores(q, k).masked_fill(later, -torch.inf) * x.abs(), q, v)


def remainder(q, k, v, n):
    return attend(plain_scores(q, k).masked_fill(torch.arange(k.shape[2]) % n == 1, -torch.inf), q, v)


def same(q, k, v, x):
    return attend(plain_scores(q, k).masked_fill(x[: q.shape[2], None] != x[: k.shape[2]], -torch.inf), q, v)


def distant(q, k, v, x):
    return attend(plain_scores(q, k) - (x[: q.shape[2], None] - x[: k.shape[2]]).abs(), q, v)


def by_distance(q, k, v, x):
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    return attend(plain_scores(q, k) + x[distance.abs()] - x[0], q, v)


def of_32_bits(q, k, v, n):
    scaled = n * 7
    return attend(plain_scores(q, k).masked_fill(scaled[: q.shape[2], None] < scaled[: k.shape[2]], -torch.inf), q, v)


TABLE = torch.linspace(-1, 1, 9)


def from_the_end(q, k, v, n):
    return attend(plain_scores(q, k) + TABLE[n], q, v)


def in_halves(q, k, v, n):
    return same(q, k, v, n.to(torch.bfloat16))


def of_logarithm(q, k, v, x):
    return attend(plain_scores(q, k) + x.log(), q, v)


def of_root(q, k, v, x):
    return attend(plain_scores(q, k) * x.sqrt() ** 2, q, v)


ONES = torch.ones(L)
NAN, INF = (torch.where(torch.arange(L) == 3, x, ONES) for x in (torch.nan, torch.inf))
TIMES = torch.arange(L, dtype=torch.double) / 8
WHOLE = torch.arange(1, L + 1)

CASES = [
    (above, ONES, [-INF, INF], [NAN], "holds NaN, and is compared"),
    (clamped, ONES, [-INF], [NAN], "holds NaN, and is compared"),
    (added_to_a_fill, ONES, [-INF, -3e38 * ONES], [NAN, INF], "is added to a fill, and is NaN or inf"),
    (times_zero, ONES, [3e38 * ONES], [NAN, INF, -INF], "is multiplied by 0, and is infinite"),
    (
        fill_times,
        ONES,
        [INF],
        [NAN, 0 * ONES, ONES - INF.clamp(max=1.0)],
        "a factor of an infinite fill is not positive",
    ),
    (remainder, WHOLE, [-WHOLE], [WHOLE - 3], "an integer is divided by a captured 0"),
    (from_the_end, WHOLE % 9 - 5, [WHOLE % 9, -(WHOLE % 9) - 1], [WHOLE % 9 - 10], "is negative: -1"),
    (same, TIMES, [TIMES * 2.0**40], [TIMES + 2.0**30, TIMES / 10], "floats of 64 bits that 32 bits do not hold"),
    (distant, TIMES, [TIMES / 10], [TIMES + 1.7e9], "floats of 64 bits that 32 bits do not hold"),
    (by_distance, TIMES, [TIMES / 10], [TIMES * 1e9 / 3], "floats of 64 bits that 32 bits do not hold"),
    (
        of_32_bits,
        WHOLE.int(),
        [(WHOLE * 2**23).int()],
        [(WHOLE * 2**24).int()],
        "beyond 2147483647, which its type does not hold",
    ),
    (in_halves, WHOLE, [WHOLE + 236], [WHOLE + 237], "beyond 256, which its type does not hold"),
    (of_logarithm, ONES, [0 * ONES], [-ONES], "a logarithm or a root of a captured number below 0"),
    (of_root, ONES, [0 * ONES], [-ONES], "a logarithm or a root of a captured number below 0"),
    (of_32_bits, WHOLE, [WHOLE * 2**24], [WHOLE * 2**40], "holds integers that 32 bits do not hold"),
]


@pytest.mark.parametrize(("function", "example", "right", "wrong", "said"), CASES)
def test_what_the_reading_takes_for_granted_is_checked(function, example, right, wrong, said) -> None:
    name = function.__code__.co_varnames[3]
    extra = lambda shape, _: {name: example.repeat(9)[: shape.Lk] if function in WITHIN else example.repeat(99)}  # noqa: E731
    traced = trace(Reference.of(function, extra), SHAPE)
    inputs = {n: torch.zeros(2, h, L, 8) for n, h in (("q", 4), ("k", 2), ("v", 2))}
    for value in (example, *right):
        traced.captures(SHAPE.sizes(), {**inputs, name: value})
    for value in wrong:
        with pytest.raises(CuError, match=said) as caught:
            traced.captures(SHAPE.sizes(), {**inputs, name: value})
        assert caught.value.diagnostics[0].code == "CU490"


WITHIN = (above, clamped, added_to_a_fill, times_zero, fill_times, remainder, from_the_end, of_logarithm, of_root)
