"""A small transformer on packed documents, trained twice from the same start: with an attention in PyTorch, and with its kernel.

    python examples/train_tiny.py                              # a GPU of compute capability 9.0: 200 steps
    python examples/train_tiny.py --emulator --steps 3         # a CPU: the kernel's text is emulated, which takes a second a step

Prints both losses; exit code 3 where the curves part. A document counts up by a stride of its own, modulo the number of tokens: who
reads two of its tokens knows the next, and those of another document mislead."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import cubridge

HEADS, HEAD_DIM, TOKENS, STRIDES = 2, 64, 31, 4
Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def attention(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
    """Causal, within the documents [B, L]."""
    i, j = torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)
    same = document[:, None, :, None] == document[:, None, None, :]
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~(same & (j <= i)), -torch.inf)
    return torch.softmax(s, dim=-1).to(v.dtype) @ v


def extra_inputs(shape, device):
    return {"document": torch.arange(max(shape.Lq, shape.Lk), device=device).expand(shape.B, -1).int() // 16}


class Block(nn.Module):
    def __init__(self, attend: Attention) -> None:
        super().__init__()
        width = HEADS * HEAD_DIM
        self.attend = attend
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, document: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, -1))
        x = x + self.out(self.attend(q, k, v, document).transpose(1, 2).flatten(2))
        return x + self.inner(self.between(x))


class Model(nn.Module):
    def __init__(self, attend: Attention, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, HEADS * HEAD_DIM)
        self.places = nn.Embedding(64, HEADS * HEAD_DIM)
        self.blocks = nn.ModuleList(Block(attend) for _ in range(layers))
        self.last = nn.Linear(HEADS * HEAD_DIM, TOKENS)

    def forward(self, tokens: Tensor, document: Tensor, place: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(place)
        for block in self.blocks:
            x = block(x, document)
        return self.last(x)


def batch(rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, documents and places in them, [rows, length]: documents of 8 to 47 tokens, one behind the other."""
    made: list[list[Tensor]] = [[], [], []]
    for _ in range(rows):
        ends = torch.randint(8, 48, (length // 8 + 1,), generator=generator).cumsum(0)
        at = torch.arange(length)
        document = torch.searchsorted(ends, at, right=True)
        place = at - torch.cat([torch.zeros(1, dtype=torch.long), ends])[document]
        start, stride = (torch.randint(n, (len(ends),), generator=generator)[document] for n in (TOKENS, STRIDES))
        for rows_of, row in zip(made, ((start + (1 + stride) * place) % TOKENS, document, place), strict=True):
            rows_of.append(row)
    tokens, document, place = (torch.stack(rows_of) for rows_of in made)
    return tokens, document.int(), place


def train(attend: Attention, steps: int, rows: int, length: int, layers: int, device: str) -> list[float]:
    """The losses; everything but the attention is the same for equal arguments."""
    torch.manual_seed(0)
    model, generator = Model(attend, layers).to(device), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses: list[float] = []
    for _ in range(steps):
        tokens, document, place = (t.to(device) for t in batch(rows, length, generator))
        with torch.autocast(device, torch.bfloat16):
            logits = model(tokens[:, :-1], document[:, :-1].contiguous(), place[:, :-1])
        told = (document[:, 1:] == document[:, :-1]) & (place[:, 1:] >= 2)
        loss = functional.cross_entropy(logits[told].float(), tokens[:, 1:][told])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def agree(one: list[float], other: list[float]) -> bool:
    """Step by step at first; later, when rounding has led them apart, on average."""
    first = all(abs(a - b) < 0.02 * a for a, b in zip(one[:20], other[:20], strict=True))
    means = [sum(losses[-20:]) / len(losses[-20:]) for losses in (one, other)]
    return first and abs(means[0] - means[1]) < 0.02 * max(1.0, *means)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulator", action="store_true", help="on a CPU, with small sizes")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    device = "cpu" if options.emulator else "cuda"
    sizes = (1, 41, 1) if options.emulator else (16, 1025, 2)
    place = "emulator" if options.emulator else "auto"
    kernel = cubridge.attention(attention, device=place, extra_inputs=extra_inputs, grad=True)
    curves = [train(attend, options.steps, *sizes, device) for attend in (attention, kernel)]
    for step, (one, other) in enumerate(zip(*curves, strict=True)):
        if step % max(1, options.steps // 20) == 0 or step == options.steps - 1:
            print(f"step {step:4}   reference {one:.4f}   kernel {other:.4f}")
    return 0 if agree(*curves) else 3


if __name__ == "__main__":
    sys.exit(main())
