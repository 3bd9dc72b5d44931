"""Recorded replies: a folder with one file a reply, `transfer.1.md`, `transfer.2.md`, .. in the order of the requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.failures import checked_text
from cubridge.llm.provider import MAX_REPLY_BYTES, Provider, Reply, Request


@dataclass(slots=True)
class ReplayProvider:
    """Gives the recorded replies of each purpose in turn. Errors: CU705 when a purpose has no reply left."""

    folder: Path
    _given: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def name(self) -> str:
        return f"replay:{self.folder}"

    def complete(self, request: Request) -> Reply:
        number = self._given.get(request.purpose, 0) + 1
        file = reply_file(self.folder, request.purpose, number)
        try:
            with file.open("rb") as stream:
                data = stream.read(MAX_REPLY_BYTES + 1)
        except OSError as error:
            message = f"there is no recorded reply number {number} for {request.purpose} in {self.folder}"
            raise CuError(Diagnostic("CU705", message, help=f"record one as {file.name}")) from error
        self._given[request.purpose] = number
        return Reply(checked_text(self.name, data.decode("utf-8", errors="replace")), self.name)


@dataclass(slots=True)
class Recorder:
    """Passes requests on and keeps the replies where `ReplayProvider` finds them."""

    provider: Provider
    folder: Path
    _kept: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def name(self) -> str:
        return self.provider.name

    def complete(self, request: Request) -> Reply:
        reply = self.provider.complete(request)
        number = self._kept[request.purpose] = self._kept.get(request.purpose, 0) + 1
        self.folder.mkdir(parents=True, exist_ok=True)
        reply_file(self.folder, request.purpose, number).write_text(reply.text, encoding="utf-8")
        return reply


def reply_file(folder: Path, purpose: str, number: int) -> Path:
    return folder / f"{purpose}.{number}.md"
