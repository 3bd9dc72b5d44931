"""References that read captured values in every way, and calls of them with values of many kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from hypothesis import strategies as st
from torch import Tensor

from cubridge.ir.spec import Shape

Value = Tensor | int | float
Reference = Callable[..., Tensor]


# ---- references ------------------------------------------------------------------------------------------------------


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5


def attend(s: Tensor, v: Tensor) -> Tensor:
    return s.softmax(-1).to(v.dtype) @ v.repeat_interleave(s.shape[1] // v.shape[1], 1)


def distance(q: Tensor, k: Tensor) -> Tensor:
    return torch.arange(q.shape[2], device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)


def mask_or_bias(q, k, v, bias):
    s = scores(q, k)
    return attend(s.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else s + bias, v)


def alibi(q, k, v, slopes):
    return attend(scores(q, k) - slopes.reshape(-1, 1, 1) * distance(q, k).abs(), v)


def documents(q, k, v, doc):
    same = doc[: q.shape[2], None] - doc[None, : k.shape[2]] < 1
    return attend(scores(q, k).masked_fill(~same, -torch.inf), v)


def padding(q, k, v, keep):
    return attend(scores(q, k).masked_fill(~keep[:, None, None], -torch.inf), v)


def gathered(q, k, v, table, index):
    return attend(scores(q, k) + table[index], v)


def tempered(q, k, v, temperature):
    return attend(scores(q, k) / temperature, v)


def capped(q, k, v, cap):
    return attend(cap * torch.tanh(scores(q, k) / cap), v)


def windowed(q, k, v, reach):
    return attend(scores(q, k).masked_fill(distance(q, k).abs() > reach, -torch.inf), v)


def sinks(q, k, v, sink):
    s = scores(q, k)
    joined = torch.cat((s, sink.to(s.dtype).view(1, -1, 1, 1).expand(*s.shape[:3], 1)), -1)
    weights = joined.softmax(-1)[..., :-1]
    return weights.to(v.dtype) @ v.repeat_interleave(s.shape[1] // v.shape[1], 1)


def gated(q, k, v, gate):
    return (attend(scores(q, k), v) * gate[:, None, None]).to(v.dtype)


def relative(q, k, v, table):
    return attend(scores(q, k) + table[:, distance(q, k).clamp(-7, 7) + 7], v)


def prefixes(q, k, v, prefix):
    j = torch.arange(k.shape[2], device=q.device)
    seen = (distance(q, k) >= 0) | (j < prefix[:, None, None, None])
    return attend(scores(q, k).masked_fill(~seen, -torch.inf), v)


def summed(q, k, v, steps):
    """Computed before a launch."""
    return attend(scores(q, k) + torch.cumsum(steps, 0)[: k.shape[2]], v)


@dataclass(frozen=True)
class Read:
    """A reference with examples of what it reads."""

    reference: Reference
    extra: Callable[[Shape], dict[str, Value]]


def _longest(s: Shape) -> int:
    return max(s.Lq, s.Lk)


READS: Final[Mapping[str, Read]] = {
    r.reference.__name__: r
    for r in (
        Read(mask_or_bias, lambda s: {"bias": torch.linspace(-1, 1, s.Lq * s.Lk).view(s.Lq, s.Lk)}),
        Read(alibi, lambda s: {"slopes": torch.linspace(0.1, 0.5, s.Hq)}),
        Read(documents, lambda s: {"doc": torch.arange(_longest(s)) // 9}),
        Read(padding, lambda s: {"keep": (torch.arange(s.B * s.Lk) % 5 > 0).view(s.B, s.Lk)}),
        Read(gathered, lambda s: {"table": torch.linspace(-1, 1, 9), "index": torch.arange(s.Lk) % 9}),
        Read(tempered, lambda s: {"temperature": torch.tensor(1.5)}),
        Read(capped, lambda s: {"cap": 20.0}),
        Read(windowed, lambda s: {"reach": 12}),
        Read(sinks, lambda s: {"sink": torch.linspace(-1, 1, s.Hq)}),
        Read(gated, lambda s: {"gate": torch.linspace(0.5, 1.5, s.Hq)}),
        Read(relative, lambda s: {"table": torch.linspace(-1, 1, s.Hq * 15).view(s.Hq, 15)}),
        Read(prefixes, lambda s: {"prefix": 3 + torch.arange(s.B)}),
        Read(summed, lambda s: {"steps": torch.linspace(-0.1, 0.1, _longest(s))}),
    )
}


# ---- values ----------------------------------------------------------------------------------------------------------

Change = Callable[[Tensor], Tensor]

SAME_KIND: Final[Mapping[str, Change]] = {
    "as it is": lambda t: t,
    "other content": lambda t: t.roll(1, 0) if t.dim() else t * 1,
    "strided": lambda t: torch.stack((t, t), -1)[..., 0],
    "transposed": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    "a slice": lambda t: torch.cat((t, t))[: len(t)] if t.dim() else t,
    "bf16": lambda t: t.bfloat16() if t.is_floating_point() else t,
    "fp64": lambda t: t.double() if t.is_floating_point() else t,
}
OTHER_KIND: Final[Mapping[str, Change]] = {
    "int32": lambda t: t.int(),
    "uint8": lambda t: t.to(torch.uint8),
    "int64": lambda t: t.long(),
    "bool": lambda t: t > 0.1,
    "float": lambda t: t.float(),
    "one axis more": lambda t: t[None],
    "one axis more behind": lambda t: t[..., None],
    "one row": lambda t: t[:1] if t.dim() else t,
    "one column": lambda t: t[..., :1] if t.dim() else t,
    "an element": lambda t: t.flatten()[0],
}
CHANGES: Final = {**SAME_KIND, **OTHER_KIND}


@st.composite
def calls(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[str, Shape, dict[str, str]]:
    """A reference, sizes, and how each of its values is changed; most are not."""
    name = draw(st.sampled_from(names))
    lq, lk = draw(st.sampled_from(((40, 40), (33, 70), (1, 40))))
    shape = Shape(2, draw(st.sampled_from((2, 4))), 2, lq, lk, 64)
    one = st.one_of(st.sampled_from(sorted(SAME_KIND)), st.sampled_from(sorted(CHANGES)))
    return name, shape, {value: draw(one) for value in READS[name].extra(shape)}
