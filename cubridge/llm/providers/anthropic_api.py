"""Anthropic's API through its SDK: the stable part of the prompt is cached, the key comes from ANTHROPIC_API_KEY alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cubridge.llm.failures import checked_text, missing_sdk, out_of_time, provider_failed
from cubridge.llm.provider import Price, Reply, Request, Usage
from cubridge.llm.retry import TRANSIENT_STATUS, Backoff, Transient

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message


@dataclass(frozen=True, slots=True)
class AnthropicProvider:
    """`base_url`: another server that speaks the same API. `timeout`: seconds a request may take."""

    model: str
    base_url: str | None = None
    timeout: float = 600.0
    price: Price | None = None
    backoff: Backoff = field(default_factory=Backoff)

    @property
    def name(self) -> str:
        return f"anthropic:{self.model}"

    def complete(self, request: Request) -> Reply:
        client = self._client()
        try:
            message = self.backoff.run(lambda: self._send(client, request))
        except Transient as failure:
            raise provider_failed(self.name, f"{failure} after {self.backoff.attempts} attempts") from failure
        text = "".join(block.text for block in message.content if block.type == "text")
        return Reply(
            checked_text(self.name, text), message.model, self._usage(message), message.stop_reason != "max_tokens"
        )

    def _client(self) -> Anthropic:
        try:
            import anthropic
        except ImportError as error:
            raise missing_sdk("anthropic", "anthropic") from error
        try:
            return anthropic.Anthropic(base_url=self.base_url, timeout=self.timeout, max_retries=0)
        except anthropic.AnthropicError as error:
            raise provider_failed(self.name, "no key was given", "set ANTHROPIC_API_KEY") from error

    def _send(self, client: Anthropic, request: Request) -> Message:
        import anthropic

        extra = {} if request.temperature is None else {"temperature": request.temperature}
        try:
            return client.messages.create(
                model=self.model,
                max_tokens=request.max_tokens,
                system=[{"type": "text", "text": request.stable, "cache_control": {"type": "ephemeral"}}],
                messages=[{"role": "user", "content": request.prompt}],
                extra_body=extra,
            )
        except anthropic.APITimeoutError as error:
            raise out_of_time(self.name, self.timeout) from error
        except anthropic.APIConnectionError as error:
            raise Transient("the connection was lost") from error
        except anthropic.APIStatusError as error:
            if error.status_code in TRANSIENT_STATUS:
                raise Transient(f"status {error.status_code}", _retry_after(error)) from error
            raise provider_failed(self.name, f"status {error.status_code}", _help(error.status_code)) from error
        except (anthropic.AnthropicError, TypeError, ValueError) as error:
            raise provider_failed(self.name, "the request could not be made or its reply not be read") from error

    def _usage(self, message: Message) -> Usage:
        cached = message.usage.cache_read_input_tokens or 0
        read = message.usage.input_tokens + cached + (message.usage.cache_creation_input_tokens or 0)
        cost = None if self.price is None else self.price.cost(read, message.usage.output_tokens, cached)
        return Usage(read, message.usage.output_tokens, cached, cost)


def _retry_after(error: object) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", {})
    try:
        return min(120.0, float(headers.get("retry-after", "")))
    except ValueError:
        return None


def _help(status: int) -> str | None:
    return {401: "check ANTHROPIC_API_KEY", 403: "check ANTHROPIC_API_KEY", 404: "check the model's name"}.get(status)
