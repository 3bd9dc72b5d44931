"""Both SDKs, real, against a loopback server: what it sends becomes a reply, a retry or one clear failure."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.llm.budget import Budget, Conversation
from cubridge.llm.provider import Price, Provider, Request
from cubridge.llm.providers.anthropic_api import AnthropicProvider
from cubridge.llm.providers.openai_api import OpenAIProvider
from cubridge.llm.retry import Backoff
from cubridge.llm.transcript import Transcript
from tests.llm.server import Answer, completion, message, serving

KEY = "sk-secret-0123456789"
REQUEST = Request("transfer", stable="You adapt kernels.", prompt="Adapt this one.", max_tokens=500)
QUICK = Backoff(attempts=3, first=0.001)
PRICE = Price(input=3.0, output=15.0, cached=0.3)


@dataclass(frozen=True, slots=True)
class Api:
    """`answer`: the body of a reply, from its text and why it stopped; `cut_off`: the word for the token limit."""

    make: Callable[..., Provider]
    answer: Callable[..., dict[str, object]]
    cut_off: str


APIS = {
    "anthropic": Api(AnthropicProvider, message, "max_tokens"),
    "openai": Api(OpenAIProvider, completion, "length"),
}


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return APIS[request.param]


def provider(api: Api, url: str, timeout: float = 20.0, price: Price | None = None) -> Provider:
    return api.make("some-model", url, timeout, price, QUICK)


def failure(api: Api, *answers: Answer, timeout: float = 20.0) -> tuple[CuError, int]:
    """The error, and how many requests were sent."""
    with serving(*answers) as server, pytest.raises(CuError) as caught:
        provider(api, server.url, timeout).complete(REQUEST)
    return caught.value, len(server.requests)


def test_a_reply_with_usage_and_cost(api: Api) -> None:
    with serving(Answer(api.answer("fine"))) as server:
        reply = provider(api, server.url, price=PRICE).complete(REQUEST)
    assert (reply.text, reply.complete) == ("fine", True)
    usage = reply.usage
    assert usage.output_tokens == 20
    assert usage.input_tokens >= 100
    assert usage.cost_usd == PRICE.cost(usage.input_tokens, 20, usage.cached_tokens)
    assert 'max_tokens": 500' in str(server.requests[0]).replace("'", '"')


def test_the_stable_part_comes_first_and_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with serving(Answer(message("fine", cached=60))) as server:
        reply = AnthropicProvider("m", server.url, price=PRICE).complete(REQUEST)
    sent = server.requests[0]
    assert sent["system"] == [{"type": "text", "text": REQUEST.stable, "cache_control": {"type": "ephemeral"}}]
    assert sent["messages"] == [{"role": "user", "content": REQUEST.prompt}]
    assert reply.usage.cached_tokens == 60
    assert reply.usage.input_tokens == 167  # fresh, read from the cache, and written to it


def test_a_compatible_server_gets_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with serving(Answer(completion("fine"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        reply = OpenAIProvider("qwen").complete(Request("lift", "s", "p", 5, temperature=0.5))
    sent = server.requests[0]
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("qwen", 5, 0.5)
    assert sent["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "p"}]
    assert reply.usage.cached_tokens == 40


def test_a_cut_off_reply_says_so(api: Api) -> None:
    with serving(Answer(api.answer("half a", api.cut_off))) as server:
        assert not provider(api, server.url).complete(REQUEST).complete


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(api: Api, status: int) -> None:
    busy = Answer({"error": {"type": "overloaded_error", "message": "busy"}}, status)
    with serving(busy, busy, Answer(api.answer("at last"))) as server:
        assert provider(api, server.url).complete(REQUEST).text == "at last"
    assert len(server.requests) == 3


def test_attempts_end(api: Api) -> None:
    error, sent = failure(api, Answer({"error": {"message": "busy"}}, 529))
    assert error.diagnostics[0].code == "CU701"
    assert "status 529, 3 times" in str(error)
    assert sent == 3


def test_the_server_says_how_long_to_wait(api: Api) -> None:
    waits: list[float] = []

    class Watched(Backoff):
        def run(self, call, sleep=waits.append):
            return Backoff.run(self, call, sleep)

    limited = Answer({"error": {"message": "slow down"}}, 429, (("retry-after", "7"),))
    with serving(limited, Answer(api.answer("fine"))) as server:
        api.make("m", server.url, 20.0, None, Watched(attempts=3)).complete(REQUEST)
    assert waits == [7.0]


@pytest.mark.parametrize(("status", "said"), [(400, "status 400"), (401, "API_KEY"), (403, "API_KEY"), (404, "model")])
def test_what_will_not_pass_is_not_tried_again(api: Api, status: int, said: str) -> None:
    error, sent = failure(api, Answer({"error": {"message": "no"}}, status))
    assert (error.diagnostics[0].code, sent) == ("CU701", 1)
    assert said in str(error)


@pytest.mark.parametrize(
    "body",
    [b"<html>not an API</html>", {}, {"content": 7, "choices": 7}, {"content": None, "choices": [None]}, [], "text", None,
     {"content": [{"type": "text"}], "choices": [{}], "usage": {}}, {"choices": [{"message": {"content": 7}}]}],
    ids=str,
)  # fmt: skip
def test_garbage_is_no_reply(api: Api, body: object) -> None:
    error, _ = failure(api, Answer(body))
    assert error.diagnostics[0].code in ("CU701", "CU703")


def test_json_that_ends_early(api: Api) -> None:
    error, sent = failure(api, Answer(api.answer("x" * 5000), cut=True))
    assert error.diagnostics[0].code == "CU701"
    assert sent == 3  # a lost connection may pass


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_reply(api: Api, text: str) -> None:
    error, _ = failure(api, Answer(api.answer(text)))
    assert error.diagnostics[0].code == "CU703"


def test_ten_megabytes(api: Api) -> None:
    error, _ = failure(api, Answer(api.answer("x" * 10_000_000)))
    assert error.diagnostics[0].code == "CU703"


def test_half_a_surrogate_is_replaced(api: Api) -> None:
    with serving(Answer(api.answer("odd \ud800 text"))) as server:
        assert provider(api, server.url).complete(REQUEST).text == "odd ? text"


@pytest.mark.parametrize("drops", [1, 40], ids=["silent", "trickling"])
def test_a_slow_reply_ends(api: Api, drops: int) -> None:
    error, sent = failure(api, Answer(api.answer("slow"), delay=2.0 / drops, drops=drops), timeout=0.4)
    assert (error.diagnostics[0].code, error.exit_code, sent) == ("CU702", 6, 1)


def test_nobody_listens(api: Api) -> None:
    with pytest.raises(CuError, match="CU701"):
        provider(api, "http://127.0.0.1:9").complete(REQUEST)


@pytest.mark.parametrize("name", APIS)
def test_no_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with serving(Answer(APIS[name].answer("fine"))) as server, pytest.raises(CuError) as caught:
        provider(APIS[name], server.url).complete(REQUEST)
    assert caught.value.diagnostics[0].help in (
        "set ANTHROPIC_API_KEY",
        "set OPENAI_API_KEY (any text for a local server)",
    )
    assert server.requests == []


def test_the_key_is_nowhere(api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Sent it is, but no error, transcript or log holds it, even where the server says it back."""
    caplog.set_level(logging.DEBUG)
    talkative = Answer({"error": {"message": f"{KEY} is not a key"}}, 401)
    conversation_file = tmp_path / "transcript.jsonl"
    with serving(Answer(api.answer("fine")), talkative) as server:
        talk = Conversation(provider(api, server.url), Budget(), Transcript(conversation_file))
        talk.ask(REQUEST)
        with pytest.raises(CuError) as caught:
            talk.ask(REQUEST)
    assert KEY in str(server.headers)
    assert KEY not in str(caught.value)
    assert KEY not in conversation_file.read_text()
    assert KEY not in repr(talk)
    assert KEY not in caplog.text


def test_a_package_that_is_not_installed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("anthropic", "openai"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CuError) as caught:
        provider(api, "http://127.0.0.1:9").complete(REQUEST)
    assert (caught.value.diagnostics[0].code, caught.value.exit_code) == ("CU704", 5)
    assert "pip install 'cubridge[" in str(caught.value)
