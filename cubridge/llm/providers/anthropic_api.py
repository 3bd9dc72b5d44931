"""Anthropic's API through its SDK: the stable part of the prompt is cached, the key comes from ANTHROPIC_API_KEY alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cubridge.llm.deadline import Late, within
from cubridge.llm.failures import checked_text, missing_sdk, out_of_time, provider_failed
from cubridge.llm.provider import Price, Reply, Request, Usage
from cubridge.llm.retry import TRANSIENT_STATUS, Backoff, Transient, retry_after

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
        try:
            return self.backoff.run(lambda: self._attempt(request))
        except Transient as failure:
            raise provider_failed(self.name, f"{failure}, {self.backoff.attempts} times") from failure

    def _attempt(self, request: Request) -> Reply:
        client = self._client()
        try:
            return self._read(within(self.timeout, lambda: self._send(client, request), client.close))
        except Late as error:
            raise out_of_time(self.name, self.timeout) from error

    def _client(self) -> Anthropic:
        try:
            import anthropic
        except ImportError as error:
            raise missing_sdk("anthropic", "anthropic") from error
        try:
            return anthropic.Anthropic(base_url=self.base_url, timeout=self.timeout, max_retries=0)
        except anthropic.AnthropicError as error:
            raise provider_failed(self.name, "no key was given", _HELP[401]) from error

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
                raise Transient(f"status {error.status_code}", retry_after(error.response.headers)) from error
            raise provider_failed(self.name, f"status {error.status_code}", _HELP.get(error.status_code)) from error
        except anthropic.AnthropicError as error:
            raise provider_failed(self.name, "its reply cannot be read") from error
        except TypeError as error:  # what the SDK raises where no credentials are set
            raise provider_failed(self.name, "no key was given", _HELP[401]) from error
        except ValueError as error:  # a body that is not the JSON that it claims to be
            raise provider_failed(self.name, "its reply cannot be read") from error

    def _read(self, message: Message) -> Reply:
        """The SDK does not check what a server sends: any part may be missing or be something else."""
        try:
            text = "".join(block.text for block in message.content if block.type == "text")
            usage = message.usage
            cached = usage.cache_read_input_tokens or 0
            read = usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0)
            written = int(usage.output_tokens)
            model, complete = str(message.model), message.stop_reason != "max_tokens"
        except (AttributeError, TypeError, ValueError) as error:
            raise provider_failed(self.name, "its reply cannot be read") from error
        cost = None if self.price is None else self.price.cost(read, written, cached)
        return Reply(checked_text(self.name, text), model, Usage(read, written, cached, cost), complete)


_HELP = {401: "set ANTHROPIC_API_KEY", 403: "set ANTHROPIC_API_KEY", 404: "is this the name of a model?"}
