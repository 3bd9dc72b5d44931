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

    def __post_init__(self) -> None:
        if self.lowering is not Lowering.RULES and not self.allow_cuda:
            message = f"--lowering {self.lowering} compiles and runs CUDA that a model writes"
            raise CuError(Diagnostic("CU717", message, help="allow it with --allow-model-cuda"), exit_code=2)

    def conversation(self) -> Conversation:
        """A new one, with the whole budget."""
        return Conversation(self.provider, self.budget, self.transcript)
