"""From the text of `--proposer` to a provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.provider import Provider
from cubridge.llm.providers.anthropic_api import AnthropicProvider
from cubridge.llm.providers.command import CommandProvider
from cubridge.llm.providers.openai_api import OpenAIProvider
from cubridge.llm.replay import ReplayProvider

_MAKERS: Final[dict[str, Callable[[str, float], Provider]]] = {
    "anthropic": lambda model, timeout: AnthropicProvider(model, timeout=timeout),
    "openai": lambda model, timeout: OpenAIProvider(model, timeout=timeout),
    "command": lambda command, timeout: CommandProvider(command, timeout),
    "replay": lambda folder, _: ReplayProvider(Path(folder)),
}


def choose_provider(text: str, timeout: float = 600.0) -> Provider:
    """`anthropic:MODEL`, `openai:MODEL`, `command:CMD` or `replay:DIR`. Errors: CU706 for anything else (exit code 2)."""
    kind, _, argument = text.partition(":")
    if kind not in _MAKERS or not argument:
        raise CuError(
            Diagnostic(
                "CU706",
                f"`{text}` is not a proposer",
                help="rules, anthropic:MODEL, openai:MODEL, command:CMD or replay:DIR",
            ),
            exit_code=2,
        )
    return _MAKERS[kind](argument, timeout)
