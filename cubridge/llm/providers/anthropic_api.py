"""Anthropic's API through its SDK: the stable part of the prompt is cached, the key comes from ANTHROPIC_API_KEY alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cubridge.llm.provider import Reply, Request
from cubridge.llm.sdk import SdkProvider

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message


@dataclass(frozen=True, slots=True)
class AnthropicProvider(SdkProvider["Anthropic", "Message"]):
    """Fields as in `SdkProvider`."""

    package: ClassVar[str] = "anthropic"
    help: ClassVar[Mapping[int, str]] = {
        401: "set ANTHROPIC_API_KEY",
        403: "set ANTHROPIC_API_KEY",
        404: "is this the name of a model?",
    }

    def _connect(self) -> Anthropic:
        import anthropic

        try:
            return anthropic.Anthropic(base_url=self.base_url, timeout=self.timeout, max_retries=0)
        except anthropic.AnthropicError as error:
            raise self._no_key() from error

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
            raise self._out_of_time() from error
        except anthropic.APIConnectionError as error:
            raise self._lost() from error
        except anthropic.APIStatusError as error:
            raise self._refused(error.status_code, error.response.headers) from error
        except TypeError as error:  # what the SDK raises where no credentials are set
            raise self._no_key() from error
        except (
            anthropic.AnthropicError,
            ValueError,
        ) as error:  # ValueError: a body that is not the JSON it claims to be
            raise self._unreadable() from error

    def _read(self, answer: Message) -> Reply:
        text = "".join(block.text for block in answer.content if block.type == "text")
        usage = answer.usage
        cached = usage.cache_read_input_tokens or 0
        read = usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0)
        counted = self._usage(read, int(usage.output_tokens), cached)
        return Reply(text, str(answer.model), counted, complete=answer.stop_reason != "max_tokens")
