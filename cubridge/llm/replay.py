"""Recorded replies: a folder with one file a reply, `transfer.1.md`, `transfer.2.md`, .. in the order of the requests.

Beside each lies `transfer.1.json`, what the provider said of it: it is not needed to replay, but says what a reply answered."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import replace_file
from cubridge.llm.failures import checked_text
from cubridge.llm.provider import MAX_REPLY_BYTES, Provider, Reply, Request, Usage


@dataclass(slots=True)
class ReplayProvider:
    """Gives the recorded replies of each purpose in turn, whatever the prompts. Errors: CU705 when a purpose has none left."""

    folder: Path
    _given: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def name(self) -> str:
        return f"replay:{self.folder}"

    def complete(self, request: Request) -> Reply:
        number = self._given.get(request.purpose, 0) + 1
        file = reply_file(self.folder, request.purpose, number)
        text = _read(file)
        if text is None:
            message = f"there is no recorded reply number {number} for {request.purpose} in {self.folder}"
            raise CuError(Diagnostic("CU705", message, help=f"record one as {file.name}"))
        self._given[request.purpose] = number
        return _reply(file, checked_text(self.name, text), self.name)


@dataclass(slots=True)
class Recorder:
    """Passes requests on and keeps the replies where `ReplayProvider` finds them. A reply that is there already is given again if
    it answered the same prompt: a run that broke off goes on where it was."""

    provider: Provider
    folder: Path
    _number: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def name(self) -> str:
        return self.provider.name

    def complete(self, request: Request) -> Reply:
        number = self._number.get(request.purpose, 0) + 1
        file = reply_file(self.folder, request.purpose, number)
        reply = self._recorded(file, request)
        if reply is None:
            reply = self.provider.complete(request)
            self._keep(file, request, reply)
        self._number[request.purpose] = number
        return reply

    def _recorded(self, file: Path, request: Request) -> Reply | None:
        text = _read(file)
        if text is None or _facts(file).get("prompt_sha256") != request.digest:
            return None
        return _reply(file, checked_text(self.name, text), self.name)

    def _keep(self, file: Path, request: Request, reply: Reply) -> None:
        facts = {"prompt_sha256": request.digest, "model": reply.model, "complete": reply.complete}
        facts |= {"usage": asdict(reply.usage)}
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, reply.text.encode())
        replace_file(_facts_file(file), (json.dumps(facts, indent=1) + "\n").encode())


def reply_file(folder: Path, purpose: str, number: int) -> Path:
    return folder / f"{purpose}.{number}.md"


def _facts_file(file: Path) -> Path:
    return file.with_suffix(".json")


def _read(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_REPLY_BYTES + 1).decode("utf-8", errors="replace")
    except OSError:
        return None


def _facts(file: Path) -> dict[str, object]:
    text = _read(_facts_file(file))
    try:
        facts = {} if text is None else json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _reply(file: Path, text: str, name: str) -> Reply:
    """The reply of a file; what its facts do not say is as a provider that says nothing."""
    facts = _facts(file)
    try:
        usage = Usage(**facts.get("usage", {}))  # pyright: ignore[reportCallIssue]
    except TypeError:
        usage = Usage()
    return Reply(text, str(facts.get("model", name)), usage, facts.get("complete") is not False)
