"""The chat-completions API through OpenAI's SDK: OpenAI itself, or any compatible server by OPENAI_BASE_URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cubridge.llm.deadline import Late, within
from cubridge.llm.failures import checked_text, missing_sdk, out_of_time, provider_failed
from cubridge.llm.provider import Price, Reply, Request, Usage
from cubridge.llm.retry import TRANSIENT_STATUS, Backoff, Transient, retry_after

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletion


@dataclass(frozen=True, slots=True)
class OpenAIProvider:
    """`base_url`: a compatible server, such as vLLM's or Ollama's. `timeout`: seconds a request may take."""

    model: str
    base_url: str | None = None
    timeout: float = 600.0
    price: Price | None = None
    backoff: Backoff = field(default_factory=Backoff)

    @property
    def name(self) -> str:
        return f"openai:{self.model}"

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

    def _client(self) -> OpenAI:
        try:
            import openai
        except ImportError as error:
            raise missing_sdk("openai", "openai") from error
        try:
            return openai.OpenAI(base_url=self.base_url, timeout=self.timeout, max_retries=0)
        except openai.OpenAIError as error:
            raise provider_failed(self.name, "no key was given", _HELP[401]) from error

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
            raise out_of_time(self.name, self.timeout) from error
        except openai.APIConnectionError as error:
            raise Transient("the connection was lost") from error
        except openai.APIStatusError as error:
            if error.status_code in TRANSIENT_STATUS:
                raise Transient(f"status {error.status_code}", retry_after(error.response.headers)) from error
            raise provider_failed(self.name, f"status {error.status_code}", _HELP.get(error.status_code)) from error
        except (openai.OpenAIError, TypeError, ValueError) as error:
            raise provider_failed(self.name, "its reply cannot be read") from error

    def _read(self, completion: ChatCompletion) -> Reply:
        """The SDK does not check what a server sends: any part may be missing or be something else."""
        try:
            choice = completion.choices[0]
            text, complete = choice.message.content or "", choice.finish_reason != "length"
            usage = self._usage(completion)
            model = str(completion.model or self.model)
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            raise provider_failed(self.name, "its reply cannot be read") from error
        return Reply(checked_text(self.name, text), model, usage, complete)

    def _usage(self, completion: ChatCompletion) -> Usage:
        usage = completion.usage
        if usage is None:
            return Usage()
        cached = (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
        read, written = int(usage.prompt_tokens), int(usage.completion_tokens)
        cost = None if self.price is None else self.price.cost(read, written, cached)
        return Usage(read, written, cached, cost)


_HELP = {
    401: "set OPENAI_API_KEY (any text for a local server)",
    403: "set OPENAI_API_KEY",
    404: "is this the name of a model?",
}
