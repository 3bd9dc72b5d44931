"""The chat-completions API through OpenAI's SDK: OpenAI itself, or any compatible server by OPENAI_BASE_URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cubridge.llm.provider import Reply, Request, Usage
from cubridge.llm.sdk import SdkProvider

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletion


@dataclass(frozen=True, slots=True)
class OpenAIProvider(SdkProvider["OpenAI", "ChatCompletion"]):
    """Fields as in `SdkProvider`; `base_url`: a compatible server, such as vLLM's or Ollama's."""

    package: ClassVar[str] = "openai"
    help: ClassVar[Mapping[int, str]] = {
        401: "set OPENAI_API_KEY (any text for a local server)",
        403: "set OPENAI_API_KEY",
        404: "is this the name of a model?",
    }

    def _connect(self) -> OpenAI:
        import openai

        try:
            return openai.OpenAI(base_url=self.base_url, timeout=self.timeout, max_retries=0)
        except openai.OpenAIError as error:
            raise self._no_key() from error

    def _send(self, client: OpenAI, request: Request) -> ChatCompletion:
        import openai

        # OpenAI's own newer models take only the second name, compatible servers only the first.
        limit = "max_completion_tokens" if str(client.base_url).startswith("https://api.openai.com") else "max_tokens"
        body: dict[str, object] = {limit: request.max_tokens}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        try:
            return client.chat.completions.create(
                model=self.model,
                messages=[{"role": "system", "content": request.stable}, {"role": "user", "content": request.prompt}],
                extra_body=body,
            )
        except openai.APITimeoutError as error:
            raise self._out_of_time() from error
        except openai.APIConnectionError as error:
            raise self._lost() from error
        except openai.APIStatusError as error:
            raise self._refused(error.status_code, error.response.headers) from error
        except (openai.OpenAIError, TypeError, ValueError) as error:
            raise self._unreadable() from error

    def _read(self, answer: ChatCompletion) -> Reply:
        choice = answer.choices[0]
        usage = self._usage_of(answer)
        text, complete = choice.message.content or "", choice.finish_reason != "length"
        return Reply(text, str(answer.model or self.model), usage, complete)

    def _usage_of(self, answer: ChatCompletion) -> Usage:
        usage = answer.usage
        if usage is None:
            return Usage()
        cached = (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
        return self._usage(int(usage.prompt_tokens), int(usage.completion_tokens), cached)
