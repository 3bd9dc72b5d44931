"""From the text of `--proposer` to a provider."""

from __future__ import annotations

from pathlib import Path

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.provider import Price, Provider
from cubridge.llm.providers.anthropic_api import AnthropicProvider
from cubridge.llm.providers.command import CommandProvider
from cubridge.llm.providers.openai_api import OpenAIProvider
from cubridge.llm.replay import ReplayProvider


def choose_provider(
    text: str, timeout: float = 600.0, base_url: str | None = None, price: Price | None = None
) -> Provider:
    """`anthropic:MODEL`, `openai:MODEL`, `command:CMD` or `replay:DIR`; `base_url` and `price` are those of the first two.
    Errors: CU706 for anything else (exit code 2)."""
    kind, _, argument = text.partition(":")
    match kind:
        case "anthropic" if argument:
            return AnthropicProvider(argument, base_url, timeout, price)
        case "openai" if argument:
            return OpenAIProvider(argument, base_url, timeout, price)
        case "command" if argument:
            return CommandProvider(argument, timeout)
        case "replay" if argument:
            return ReplayProvider(Path(argument))
        case _:
            help = "rules, anthropic:MODEL, openai:MODEL, command:CMD, replay:DIR, or a file FILE.toml"
            raise CuError(Diagnostic("CU706", f"`{text}` is not a proposer", help=help), exit_code=2)
