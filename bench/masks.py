"""Masks as formulas: which keys a query row sees, written once more, apart from the examples and from what is traced of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

Extra = Mapping[str, object]
Visible = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From batch entries, query rows and keys to where the key is visible to the row. All that it reads it holds, so that it may be
FlexAttention's `mask_mod`."""
Mask = Callable[[Extra, int, int], Visible]
"""From the reference's further arguments and the two lengths."""
Position = Callable[[Tensor, Tensor, int, int], Tensor]
"""A mask of rows, keys and lengths alone."""


def by_position(rule: Position) -> Mask:
    def mask(_: Extra, lq: int, lk: int) -> Visible:
        return lambda b, i, j: rule(i, j, lq, lk)

    return mask


@by_position
def everything(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
    return (i >= 0) & (j >= 0)


@by_position
def top_left(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
    return j <= i


@by_position
def bottom_right(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
    return j <= i + (lk - lq)


@by_position
def prefix(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
    return (j <= i) | (j < lq // 4)


@dataclass(frozen=True, slots=True)
class Window:
    """Keys from `left` before the query's own to `right` after it, both included."""

    left: int
    right: int

    def __call__(self, _: Extra, lq: int, lk: int) -> Visible:
        left, right = self.left - (lk - lq), self.right + (lk - lq)
        return lambda b, i, j: (j >= i - left) & (j <= i + right)


def sink_window(sinks: int, width: int) -> Mask:
    def rule(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        own = i + (lk - lq)
        return ((j < sinks) | (own - j < width)) & (j <= own)

    return by_position(rule)


def global_window(tokens: int, width: int) -> Mask:
    return by_position(lambda i, j, lq, lk: (i < tokens) | (j < tokens) | ((i - j < width) & (j - i < width)))


def tensor(extra: Extra, name: str) -> Tensor:
    value = extra[name]
    assert isinstance(value, Tensor)
    return value


# ---- masks that read data --------------------------------------------------------------------------------------------


def documents(extra: Extra, lq: int, lk: int) -> Visible:
    doc = tensor(extra, "doc")
    return lambda b, i, j: doc[b, i] == doc[b, j]


def documents_causal(extra: Extra, lq: int, lk: int) -> Visible:
    doc = tensor(extra, "doc")
    return lambda b, i, j: (doc[b, i] == doc[b, j]) & (i >= j)


def documents_window(width: int) -> Mask:
    def mask(extra: Extra, lq: int, lk: int) -> Visible:
        doc = tensor(extra, "doc")
        return lambda b, i, j: (doc[b, i] == doc[b, j]) & (i >= j) & (i - j < width)

    return mask


def share_question(extra: Extra, lq: int, lk: int) -> Visible:
    answer, sample = tensor(extra, "answer"), tensor(extra, "sample")

    def visible(b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        asked = (answer[b, j] == 0) | (answer[b, j] == answer[b, i])
        return (i >= j) & (sample[b, i] == sample[b, j]) & (sample[b, j] >= 0) & asked

    return visible


def causal_blockwise(extra: Extra, lq: int, lk: int) -> Visible:
    block = tensor(extra, "block")
    last = block[lq - 1]
    return lambda b, i, j: (i >= j) & ((block[i] == last) | (block[i] == block[j]))
