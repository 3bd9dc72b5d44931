"""A loopback server that answers each request as a script says, and keeps what it was sent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass(frozen=True, slots=True)
class Answer:
    """`body`: JSON data, or bytes sent as they are. `delay`: seconds before every one of `drops` parts of the body."""

    body: object
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    drops: int = 1
    cut: bool = False  # the connection ends in the middle of the body


@dataclass(slots=True)
class Server:
    url: str
    answers: list[Answer]
    requests: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def give(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(*answers: Answer) -> Iterator[Server]:
    """The last answer is given again and again."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            server.requests.append(json.loads(self.rfile.read(length)))
            server.headers.append({k.lower(): v for k, v in self.headers.items()})
            self.answer(server.give())

        def answer(self, answer: Answer) -> None:
            raw = isinstance(answer.body, bytes)
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            try:
                self.send_response(answer.status)
                self.send_header("content-type", "text/html" if raw else "application/json")
                self.send_header("content-length", str(len(data)))
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.end_headers()
                sent = data[: len(data) // 2] if answer.cut else data
                step = -(-max(1, len(sent)) // answer.drops)
                for at in range(0, len(sent), step):
                    time.sleep(answer.delay)
                    self.wfile.write(sent[at : at + step])
                    self.wfile.flush()
                if answer.cut:
                    self.close_connection = True
                    self.connection.close()
            except (BrokenPipeError, ConnectionResetError, ValueError):
                pass  # the client went away

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server = Server(f"http://127.0.0.1:{http.server_address[1]}", list(answers))
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def message(text: str, stop: str = "end_turn", cached: int = 0) -> dict[str, object]:
    """What Anthropic's API answers."""
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-1", "stop_reason": stop,
        "stop_sequence": None, "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 7},
    }  # fmt: skip


def completion(text: str | None, finish: str = "stop") -> dict[str, object]:
    """What the chat-completions API answers."""
    return {
        "id": "c_1", "object": "chat.completion", "created": 1, "model": "test-1",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "prompt_tokens_details": {"cached_tokens": 40},
        },
    }  # fmt: skip
