"""Transcripts: one JSON line per event of a conversation with a model, and a page that a person can read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.provider import Reply, Request
from cubridge.llm.reply import CONTROL


@dataclass(slots=True)
class Transcript:
    """Events in order; written to `path` as they come, if there is one. Keys never enter: requests hold prompts alone."""

    path: Path | None = None
    events: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    _started: float = field(default_factory=time.monotonic)

    def exchange(self, provider: str, request: Request, reply: Reply) -> None:
        usage = reply.usage
        self._add(
            event="reply",
            purpose=request.purpose,
            provider=provider,
            model=reply.model,
            prompt_sha256=request.digest,
            prompt=request.prompt,
            reply=reply.text,
            complete=reply.complete,
            tokens={"input": usage.input_tokens, "output": usage.output_tokens, "cached": usage.cached_tokens},
            cost_usd=usage.cost_usd,
        )

    def verdict(self, purpose: str, accepted: bool, diagnostics: str) -> None:
        self._add(event="verdict", purpose=purpose, accepted=accepted, diagnostics=diagnostics)

    def tool(self, name: str, arguments: str, result: str) -> None:
        self._add(event="tool", tool=name, arguments=arguments, result=result)

    def failure(self, purpose: str, message: str) -> None:
        self._add(event="failure", purpose=purpose, message=message)

    def _add(self, **event: object) -> None:
        event["seconds"] = round(time.monotonic() - self._started, 3)
        self.events.append(event)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(event, ensure_ascii=False) + "\n")


def read_transcript(path: Path) -> list[dict[str, object]]:
    """The events of a file. Errors: CU707 for a line that is no event; OSError if it cannot be read."""
    events: list[dict[str, object]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CuError(Diagnostic("CU707", f"{path}:{number} is not a transcript event")) from error
        if not isinstance(event, dict) or "event" not in event:
            raise CuError(Diagnostic("CU707", f"{path}:{number} is not a transcript event"))
        events.append(event)  # pyright: ignore[reportUnknownArgumentType]
    return events


def to_page(events: list[dict[str, object]]) -> str:
    """A transcript as Markdown, without control characters: replies come from elsewhere."""
    page = "\n\n".join(part for number, event in enumerate(events, 1) for part in _parts(number, event)) + "\n"
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", page)


def _parts(number: int, event: dict[str, object]) -> Iterator[str]:
    kind = event["event"]
    yield f"## {number}. {_title(event)} ({event.get('seconds', 0)} s)"
    if kind == "reply":
        yield f"Prompt (sha256 {str(event.get('prompt_sha256'))[:12]}):"
        yield _quoted(event.get("prompt"))
        yield "Reply:"
        yield _quoted(event.get("reply"))
    elif kind == "verdict":
        yield _quoted(event.get("diagnostics")) if event.get("diagnostics") else "no diagnostics"
    elif kind == "tool":
        yield _quoted(event.get("arguments"))
        yield _quoted(event.get("result"))
    else:
        yield _quoted(event.get("message"))


def _title(event: dict[str, object]) -> str:
    match event["event"]:
        case "reply":
            return f"{event.get('purpose')}: {event.get('provider')} answers{_cost(event)}"
        case "verdict":
            return f"{event.get('purpose')}: {'accepted' if event.get('accepted') else 'refused'}"
        case "tool":
            return f"tool {event.get('tool')}"
        case _:
            return f"{event.get('purpose')}: failed"


def _cost(event: dict[str, object]) -> str:
    tokens = event.get("tokens")
    counted = "" if not isinstance(tokens, dict) else f", {tokens.get('input')} + {tokens.get('output')} tokens"
    cost = event.get("cost_usd")
    return f"{counted}, ${cost:.4f}" if isinstance(cost, float) else counted


def _quoted(text: object) -> str:
    return "\n".join(f"    {line}" for line in str(text).split("\n"))
