"""References put together at random: heads, product, score steps, mask, normalizer and form, each in one of its spellings.

Every part is written against the others' names alone, so that any combination is a reference. What a combination means is
what Python says of it; nothing here knows. `choose` decides: Hypothesis in tests, `random.Random` in scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

T = TypeVar("T")


class Choose(Protocol):
    """Picks one option. The first is the plainest: what shrinks, shrinks to it."""

    def __call__(self, options: Sequence[T], /) -> T: ...


CAPTURED: Final[dict[str, str]] = {
    "slopes": "2.0 ** (-4.0 * (torch.arange(shape.Hq) + 1) / shape.Hq)",
    "taus": "torch.linspace(-0.4, 0.7, shape.Hq + 1)[1:]",
    "sinks": "torch.linspace(-1.0, 2.0, shape.Hq)",
    "gates": "torch.linspace(-1.5, 1.0, shape.Hq)",
    "reaches": "11 * torch.arange(shape.Hq) % 50 + 1",
    "head_table": "torch.sin(torch.arange(shape.Hq * 33) / 3.0).view(shape.Hq, 33)",
    "key_bias": "torch.cos(torch.arange(shape.B * shape.Lk) / 5.0).view(shape.B, shape.Lk)",
    "key_decay": "0.99 ** torch.arange(shape.Lk)",
    "row_bias": "torch.sin(torch.arange(shape.Lq) / 9.0)",
    "dense_bias": "torch.sin(torch.arange(shape.Hq * shape.Lq * shape.Lk) / 7.0).view(shape.Hq, shape.Lq, shape.Lk)",
    "doc": "(torch.arange(max(shape.Lq, shape.Lk)) // 23 + torch.zeros(shape.B, 1)).long()",
    "lengths": "shape.Lk - 9 * torch.arange(1, shape.B + 1)",
    "pad": "(torch.arange(shape.Lk) % 37 > 29).expand(shape.B, -1)",
    "alive": "torch.arange(shape.Lq).expand(shape.B, -1) % 13 > 0",
    "dense_mask": "torch.arange(shape.Lq)[:, None] * torch.arange(shape.Lk) % 7 > 0",
    "positions": "torch.arange(shape.Lq) // 2 * 2 + 3",
    "offset": "torch.tensor([5])",
    "temperature": "torch.tensor(0.11)",
    "cap": "torch.tensor(20.0)",
    "shift": "4",
    "strength": "0.25",
}
"""Values that a reference may read, each with the expression that `extra_inputs` makes it by."""

NUMBERS: Final = ("1", "3", "16", "37", "64", "100", "(Lq // 4)", "(Lk // 3)", "(Lq - 2)")

HEADS: Final = (
    "k, v = k.repeat_interleave(Hq // Hk, dim=1), v.repeat_interleave(Hq // Hk, dim=1)",
    "k, v = (t[:, :, None].expand(-1, -1, Hq // Hk, -1, -1).reshape(B, Hq, Lk, D) for t in (k, v))",
    "of_head = torch.arange(Hq) // (Hq // Hk)\nk, v = k[:, of_head], v.index_select(1, of_head)",
    "k, v = (torch.stack([t] * (Hq // Hk), dim=2).flatten(1, 2) for t in (k, v))",
)
"""Ways to give every query head its keys."""

GROUPED: Final = (
    "g = q.unflatten(1, (Hk, Hq // Hk))",
    'torch.einsum("b g r i d, b g j d -> b g r i j", g, k).flatten(1, 2)',
    'torch.einsum("b g r i j, b g j d -> b g r i d", w.to(v.dtype).unflatten(1, (Hk, Hq // Hk)), v).flatten(1, 2)',
)

PRODUCTS: Final = (
    "q @ k.mT",
    'torch.einsum("bhid,bhjd->bhij", q, k)',
    "torch.matmul(k, q.transpose(-2, -1)).transpose(-2, -1)",
    "torch.bmm(q.reshape(B * Hq, Lq, D), k.reshape(B * Hq, Lk, D).mT).view(B, Hq, Lq, Lk)",
    "(q.float() @ k.float().mT)",
    '(torch.einsum("bihd,bjhd->bhji", q.transpose(1, 2), k.transpose(1, 2))).mT',
)

SCALES: Final = (
    "s = s * D ** -0.5",
    "s = s / math.sqrt(D)",
    "s = s.float().mul(D ** -0.5)",
    "s = 0.3 * s",
    "s = s * temperature",
    "s = s * taus[:, None, None] * 0.2",
    "s = -0.2 * s",
    "s *= 1 / 8",
)

SCORES: Final = (
    "s = s + slopes[:, None, None] * (j - i)",
    "s = s - slopes.view(1, -1, 1, 1) * (i - j).abs()",
    "s = 20 * torch.tanh(s / 20)",
    "s = cap * torch.tanh(s / cap)",
    "s = s + strength * (j - i)",
    "s = s + head_table[:, (i - j).clamp(-16, 16) + 16]",
    "s = s + key_bias[:, None, None, :]",
    "s = s + row_bias[:, None]",
    "s = s + dense_bias",
    "s += torch.where(j < {n}, 1.0, 0.0)",
    "s = (s + 1.5) * 0.5",
    "s = torch.where(i == j, s + 2.0, s)",
    "s = s + torch.log1p((i - j).abs().float())",
    "s = s.clamp(-6, 5)",
    "s = s / (1 + s.abs())",
    "s = F.leaky_relu(s, 0.1)",
    "s = torch.where(((i - j) % 2 == 0), s, 0.5 * s)",
    "s = s * (1 + j % {n}) / {n}",
    "s = s + torch.sin(i * 0.1) * torch.cos(j * 0.1)",
    "s = s * s.abs() * 0.01",
    "s = s + key_bias[:, None, None, :] * row_bias[:, None]",
)
"""Steps between the product and the mask, in any number and order."""

ATOMS: Final = (
    "(j <= i)",
    "(j <= i + Lk - Lq)",
    "(j < {n})",
    "(i - j < {n})",
    "((i - j).abs() <= {n})",
    "torch.ones(Lq, Lk, dtype=torch.bool).tril()",
    "(torch.triu(torch.ones(Lq, Lk), diagonal={n}) == 0)",
    "(i // {n} == j // {n})",
    "(j // {n} <= i // {n})",
    "(i < {n})",
    "((i - j) % 3 == 0)",
    "(j < i)",
    "(doc[:, None, :Lq, None] == doc[:, None, None, :Lk])",
    "(j < lengths[:, None, None, None])",
    "~pad[:, None, None, :]",
    "alive[:, None, :, None]",
    "dense_mask",
    "(i - j < reaches[:, None, None])",
    "(j <= positions[:, None])",
    "(j <= i + offset)",
    "(j >= i - shift)",
    "((j >= {n}) & (j < Lk - {n}))",
    "(torch.arange(Hq)[:, None, None] % 2 == 0)",
    "(torch.minimum(i, j) % {n} < 5)",
    "(i + j < {n} + Lk)",
    "(i * 2 >= j)",
    "(i * Lk >= j * Lq)",
)

JOINS: Final = ("{a} & {b}", "{a} | {b}", "~{a} & {b}", "{a} ^ {b}", "torch.logical_or({a}, ~{b})", "{a} | ({b} & {c})")

FILLS: Final = (
    "s = s.masked_fill(~keep, -torch.inf)",
    "s = torch.where(keep, s, -math.inf)",
    "s = s + torch.zeros(keep.shape, dtype=s.dtype).masked_fill(~keep, float('-inf'))",
    "s = s + (1.0 - keep.float()) * -1e9",
    "s = torch.where(keep, s, torch.finfo(torch.float32).min)",
    "s.masked_fill_(keep.logical_not(), torch.finfo(s.dtype).min)",
    "s = s + torch.where(keep, 0.0, -1e30)",
    "s = s.masked_fill(~keep, -1e4)",
)

SOFTMAX: Final = (
    "w = torch.softmax(s, dim=-1)",
    "w = F.softmax(s.float(), dim=-1)",
    "w = s.log_softmax(-1).exp()",
    "w = s.softmax(-1).nan_to_num(0.0)",
    "e = torch.exp(s - s.amax(-1, keepdim=True))\nw = e / e.sum(-1, keepdim=True)",
    "w = torch.exp(s - s.logsumexp(-1, keepdim=True))",
    "w = s.softmax(-1) * gates[:, None, None]",
    "column = sinks[None, :, None, None].expand(B, -1, Lq, 1)\n"
    "w = torch.softmax(torch.cat([s, column], dim=-1), dim=-1)[..., :-1]",
    "w = F.pad(s, (1, 0)).softmax(-1)[..., 1:]",
    "w = torch.exp(s - torch.logaddexp(s.logsumexp(-1), sinks[None, :, None])[..., None])",
    "w = s.softmax(-1) * key_decay",
    "e = torch.exp(s - s.amax(-1, keepdim=True)) * key_decay\nw = e / e.sum(-1, keepdim=True)",
    "e = torch.exp(s)\nw = e / (1 + e.sum(-1, keepdim=True))",
    "e = torch.exp(s)\nw = e / (e * key_decay).sum(-1, keepdim=True)",
)
"""Normalizers of masked scores, with an exponential."""

ELEMENTWISE: Final = (
    "w = torch.sigmoid(s - math.log(Lk))",
    "w = F.relu(s) / Lk",
    "w = torch.relu(s).square() / Lk",
    "w = 1 / (1 + torch.exp(-s))",
    "w = s.clamp(min=0) * 0.1",
    "w = F.silu(s) / Lk",
    "w = 1 / (1 + s * s)",
    "w = F.softplus(s) / Lk",
    "w = torch.tanh(s) / Lk",
    "w = s / Lk",
    "w = F.gelu(s) / Lk",
)
"""Weights of one score; the mask makes them 0."""

ELEMENTWISE_FILLS: Final = (
    "w = w.masked_fill(~keep, 0.0)",
    "w = torch.where(keep, w, 0)",
    "w = w * keep",
)

AFTER: Final = (
    "",
    "w = w / w.sum(-1, keepdim=True).clamp(min=0.5)",
    "w = w / (w.abs().sum(-1, keepdim=True) + 1)",
    "w = w / keep.sum(-1, keepdim=True).clamp(min=1)",
)
"""Denominators of elementwise weights."""

LSE: Final = ("torch.logsumexp(s, dim=-1)", "s.logsumexp(-1)")


@dataclass(frozen=True, slots=True)
class Draw:
    """`text` is a whole reference file; `parts` says what it was made of."""

    text: str
    parts: tuple[str, ...]


def compose(choose: Choose) -> Draw:
    """One reference."""
    numbers = _Numbers(choose)
    heads, product, result = _heads(choose)
    steps = [choose(SCALES), *(choose(SCORES) for _ in range(choose((0, 1, 2, 3))))]
    if choose((False, False, False, True)):
        steps.reverse()
    keep = numbers.filled(_mask(choose))
    body = [heads, f"s = {product}", *(numbers.filled(s) for s in steps), f"keep = {keep}"]
    softmax = choose((True, True, False))
    weights = _softmax(choose) if softmax else _elementwise(choose)
    body += weights
    given = f"{result}, {choose(LSE)}" if softmax and weights[-1] in SOFTMAX[:6] and choose((False, True)) else result
    lines = "\n".join(body).split("\n")
    return Draw(_file(lines, given, choose((True, False))), (*steps, keep, *weights))


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Fills `{n}`, the same number all over one part."""

    choose: Choose

    def filled(self, part: str) -> str:
        return part.replace("{n}", self.choose(NUMBERS)) if "{n}" in part else part


def _heads(choose: Choose) -> tuple[str, str, str]:
    """Lines that prepare k and v, the product, the result."""
    if choose((False, False, False, True)):
        return GROUPED
    return choose(HEADS), choose(PRODUCTS), choose(("w.to(v.dtype) @ v", "torch.matmul(w.type_as(v), v)"))


def _mask(choose: Choose) -> str:
    atoms = {name: choose(ATOMS) for name in "abc"}
    return choose(("torch.ones(Lq, Lk, dtype=torch.bool)", "{a}", "{a}", *JOINS, *JOINS[:2])).format(**atoms, n="{n}")


def _softmax(choose: Choose) -> list[str]:
    after = choose((False, False, False, True))
    if after:
        return [choose(SOFTMAX), choose(ELEMENTWISE_FILLS)]
    return [choose(FILLS), choose(SOFTMAX)]


def _elementwise(choose: Choose) -> list[str]:
    weight, fill, after = choose(ELEMENTWISE), choose(ELEMENTWISE_FILLS), choose(AFTER)
    return [weight, fill, after] if after else [weight, fill]


def _file(lines: Sequence[str], given: str, arguments: bool) -> str:
    """`arguments`: captured values are arguments; else those without a size of the problem are globals of the file."""
    body = "\n".join(f"    {line}" for line in (*lines, f"return {given}"))
    used = [name for name in CAPTURED if re.search(rf"\b{name}\b", body)]
    fixed = [] if arguments else [name for name in used if "shape" not in CAPTURED[name]]
    extra = [name for name in used if name not in fixed]
    parts = ["import math\n\nimport torch\nimport torch.nn.functional as F"]
    parts += [f"{name} = {CAPTURED[name]}" for name in fixed]
    if extra:
        values = "".join(f'\n        "{name}": {CAPTURED[name]},' for name in extra)
        parts.append(f"def extra_inputs(shape, device):\n    return {{{values}\n    }}")
    parts.append(f"def attention({', '.join(['q', 'k', 'v', *extra])}):\n{_SIZES}{body}")
    return "\n\n\n".join(parts) + "\n"


_SIZES: Final = """\
    B, Hq, Lq, D = q.shape
    Hk, Lk = k.shape[1], k.shape[2]
    i, j = torch.arange(Lq)[:, None], torch.arange(Lk)[None, :]
"""
