"""What providers through a vendor's SDK share: retries, a limit on the whole of a request, and how failures are told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import ClassVar, Generic, Protocol, TypeVar

from cubridge.ir.diagnostics import CuError
from cubridge.llm.deadline import Late, within
from cubridge.llm.failures import checked_text, missing_sdk, out_of_time, provider_failed
from cubridge.llm.provider import Price, Reply, Request, Usage
from cubridge.llm.retry import TRANSIENT_STATUS, Backoff, Transient, retry_after


class Closing(Protocol):
    def close(self) -> None: ...


Client = TypeVar("Client", bound=Closing)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class SdkProvider(ABC, Generic[Client, Answer]):
    """`base_url`: another server that speaks the same API. `timeout`: seconds a request may take."""

    package: ClassVar[str]
    """The SDK, and the extra of cubridge that installs it."""
    help: ClassVar[Mapping[int, str]]
    """What to do about a status. 401 stands for a missing key too."""

    model: str
    base_url: str | None = None
    timeout: float = 600.0
    price: Price | None = None
    backoff: Backoff = field(default_factory=Backoff)

    @property
    def name(self) -> str:
        return f"{self.package}:{self.model}"

    def complete(self, request: Request) -> Reply:
        try:
            return self.backoff.run(lambda: self._attempt(request))
        except Transient as failure:
            raise provider_failed(self.name, f"{failure}, {self.backoff.attempts} times") from failure

    def _attempt(self, request: Request) -> Reply:
        try:
            import_module(self.package)
        except ImportError as error:
            raise missing_sdk(self.package, self.package) from error
        client = self._connect()
        try:
            answer = within(self.timeout, lambda: self._send(client, request), client.close)
        except Late as error:
            raise self._out_of_time() from error
        return self._checked(answer)

    def _checked(self, answer: Answer) -> Reply:
        """The SDKs do not check what a server sends: any part may be missing or be something else."""
        try:
            reply = self._read(answer)
            return replace(reply, text=checked_text(self.name, reply.text))
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            raise self._unreadable() from error

    # ---- of each SDK -------------------------------------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> Client:
        """A client that does not retry. Errors: as `_no_key`."""

    @abstractmethod
    def _send(self, client: Client, request: Request) -> Answer:
        """Errors: what the SDK raises, told as below."""

    @abstractmethod
    def _read(self, answer: Answer) -> Reply:
        """Takes every part for what it should be."""

    # ---- usage and failures ------------------------------------------------------------------------------------------

    def _usage(self, read: int, written: int, cached: int) -> Usage:
        """`read`: all input tokens, `cached` of which came from the cache."""
        cost = None if self.price is None else self.price.cost(read, written, cached)
        return Usage(read, written, cached, cost)

    def _refused(self, status: int, headers: Mapping[str, str]) -> Transient | CuError:
        if status in TRANSIENT_STATUS:
            return Transient(f"status {status}", retry_after(headers))
        return provider_failed(self.name, f"status {status}", self.help.get(status))

    def _lost(self) -> Transient:
        return Transient("the connection was lost")

    def _out_of_time(self) -> CuError:
        return out_of_time(self.name, self.timeout)

    def _no_key(self) -> CuError:
        return provider_failed(self.name, "no key was given", self.help[401])

    def _unreadable(self) -> CuError:
        return provider_failed(self.name, "its reply cannot be read")
