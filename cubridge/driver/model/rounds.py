"""Rounds with a model: an answer that is refused goes back to it with its diagnostics, until one is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cubridge.driver.model.prompts import Attempt
from cubridge.ir.diagnostics import CuError, Diagnostic, render
from cubridge.llm.provider import Request

if TYPE_CHECKING:
    from cubridge.llm.budget import Conversation
    from cubridge.llm.provider import Reply

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """`purpose` and `system`: as a `Request` has them. `prompt`: what follows, from the answers that were refused."""

    purpose: str
    system: str
    prompt: Callable[[Sequence[Attempt]], str]


def first_right(question: Question, judge: Callable[[Reply], T], talk: Conversation) -> T:
    """What `judge` makes of the first answer that it does not refuse by a CuError.
    Errors: as `ask`; a tool that is missing or out of time (exit code 5 or more) is no refusal."""
    attempts: list[Attempt] = []
    faults: tuple[Diagnostic, ...] = ()
    while True:
        reply = ask(talk, Request(question.purpose, question.system, question.prompt(attempts)), faults)
        try:
            right = judge(reply)
        except CuError as error:
            if error.exit_code >= 5:
                raise
            faults = error.diagnostics
            talk.transcript.verdict(question.purpose, False, render(faults))
            attempts.append(Attempt(reply.text, render(faults)))
        else:
            talk.transcript.verdict(question.purpose, True, "")
            return right


def ask(talk: Conversation, request: Request, faults: Sequence[Diagnostic]) -> Reply:
    """Errors: CU708 when the budget ends, and what the provider raises, with `faults`, those of the last answer, behind it."""
    try:
        return talk.ask(request)
    except CuError as error:
        raise CuError(*error.diagnostics, *faults, exit_code=error.exit_code) from error
