"""What a language model is to the rest of the tool: a request in, a reply and its usage out."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

MAX_REPLY_BYTES = 1 << 20
"""Longer replies are refused unread."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question. `purpose`: "lift", "transfer" or "lower". `stable`: the leading part that many requests share, which
    providers may cache; `prompt`: what follows it."""

    purpose: str
    stable: str
    prompt: str
    max_tokens: int = 16_000
    temperature: float | None = None

    @property
    def digest(self) -> str:
        """Identifies the text that the model sees."""
        return sha256(f"{self.stable}\0{self.prompt}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counts them; `cost_usd` is None where no price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """`complete`: False where the model was cut off at its token limit."""

    text: str
    model: str
    usage: Usage = Usage()
    complete: bool = True


class Provider(Protocol):
    """Errors: CU701 the provider failed, CU702 out of time, CU703 an empty or oversized reply."""

    @property
    def name(self) -> str: ...

    def complete(self, request: Request) -> Reply: ...


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> float:
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + output_tokens * self.output + cached_tokens * self.cached) / 1e6


def estimate_tokens(text: str) -> int:
    """A safe estimate, for budgets before sending: code has about three bytes a token."""
    return len(text.encode()) // 3 + 1
