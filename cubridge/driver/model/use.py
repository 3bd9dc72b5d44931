"""How a model takes part in an adaptation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cubridge.driver.model.policy import Accept
from cubridge.driver.sandbox.process import Sandbox
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.budget import Budget, Conversation
from cubridge.llm.provider import Provider
from cubridge.llm.transcript import Transcript


class Lowering(StrEnum):
    """Who writes the patched text."""

    RULES = "rules"
    MODEL = "model"
    RULES_THEN_MODEL = "rules-then-model"  # the model where the rules refuse


class Approach(StrEnum):
    """How a model comes to a text: over CuIR, or without it, to see what that is worth."""

    CUBRIDGE = "cubridge"
    ONE_SHOT = "one-shot"  # it writes the text in one reply
    REACT = "react"  # it edits the text with tools


@dataclass(frozen=True, slots=True)
class ModelUse:
    """`budget` holds for each stage. `allow_cuda`: may CUDA text that a model wrote be compiled and run? `sandbox`: one to share
    with others; else each adaptation has its own. `accept`: what counts without a proof."""

    provider: Provider
    budget: Budget
    transcript: Transcript
    lowering: Lowering = Lowering.RULES
    allow_cuda: bool = False
    sandbox: Sandbox | None = None
    accept: frozenset[Accept] = frozenset()
    approach: Approach = Approach.CUBRIDGE

    def __post_init__(self) -> None:
        if (self.is_without_ir or self.lowering is not Lowering.RULES) and not self.allow_cuda:
            way = f"the approach {self.approach}" if self.is_without_ir else f"--lowering {self.lowering}"
            message = f"{way} compiles and runs CUDA that a model writes"
            raise CuError(Diagnostic("CU717", message, help="allow it with --allow-model-cuda"), exit_code=2)

    @property
    def is_without_ir(self) -> bool:
        return self.approach is not Approach.CUBRIDGE

    def conversation(self) -> Conversation:
        """A new one, with the whole budget."""
        return Conversation(self.provider, self.budget, self.transcript)
