"""Conversations with scripted replies, and what a model's answers are judged against."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift_source import lift_verified
from cubridge.driver.model.judge import ValueJudge
from cubridge.driver.model.policy import Accept
from cubridge.driver.model.transfer import transfer_by_model
from cubridge.driver.sandbox.process import Limits, Sandbox
from cubridge.driver.transfer import Transferred, transfer
from cubridge.frontend.cuda.lift import Lifted
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.printer import to_text
from cubridge.ir.spec import Shape
from cubridge.judge.plan import Case
from cubridge.llm.budget import Budget, Conversation
from cubridge.llm.provider import Reply, Request, Usage
from cubridge.llm.transcript import Transcript
from tests.support.readings import reading

EXAMPLES = Path(__file__).parents[3] / "examples"
CASE = Case("index-coded V", Shape(1, 2, 1, 150, 200, 64), 1)
EQUAL = Case("index-coded V", Shape(1, 2, 1, 200, 200, 64), 1)
BOX = Sandbox(Limits(seconds=120.0))


@dataclass(slots=True)
class Scripted:
    """Gives its replies in turn and keeps the prompts."""

    replies: list[str]
    name: str = "scripted"
    finished: bool = True
    asked: list[Request] = field(default_factory=list[Request])

    def complete(self, request: Request) -> Reply:
        if len(self.asked) == len(self.replies):
            raise CuError(Diagnostic("CU705", "no reply is left"))
        self.asked.append(request)
        return Reply(self.replies[len(self.asked) - 1], self.name, Usage(100, 10), self.finished)


def conversation(*replies: str, finished: bool = True) -> Conversation:
    """As many rounds as replies."""
    budget = Budget(rounds=len(replies), tokens=10_000_000)
    return Conversation(Scripted([*replies], finished=finished), budget, Transcript())


@cache
def lifted(kernel: str = "sm80", head_dim: int = 64) -> Lifted:
    return lift_verified(choose_kernel(kernel), "bf16", head_dim)


@cache
def judge(name: str, *accept: Accept) -> ValueJudge:
    case = EQUAL if reading(name).attention.spec.preconditions else CASE
    return ValueJudge(BOX, reading(name).attention, "bf16", (case,), frozenset(accept))


@cache
def by_rules(name: str, kernel: str = "sm80") -> Transferred:
    return transfer(lifted(kernel).kernel, reading(name).attention.spec)


def pipeline_reply(name: str, kernel: str = "sm80") -> str:
    """A right answer."""
    passes = by_rules(name, kernel).pipeline.passes
    text = ",\n".join(str(type(by_rules(name, kernel).pipeline)((p,))) for p in passes)
    return f"The mask and the score follow from the text.\n\n```pipeline\n{text}\n```\n"


def cuir_reply(name: str, kernel: str = "sm80") -> str:
    """A right answer that writes the target out."""
    return f"```cuir\n{to_text(by_rules(name, kernel).kernel)}```\n"


def answer(name: str, *replies: str, kernel: str = "sm80", finished: bool = True) -> tuple[Transferred, Conversation]:
    talk = conversation(*replies, finished=finished)
    return transfer_by_model(lifted(kernel).kernel, reading(name), talk, BOX, judge(name)), talk
