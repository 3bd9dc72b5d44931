"""What a conversation may cost, and what it has cost."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.provider import Provider, Reply, Request, estimate_tokens
from cubridge.llm.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one task: replies, tokens in and out together, US dollars (needs a provider with a price)."""

    rounds: int = 4
    tokens: int = 400_000
    usd: float | None = None


@dataclass(slots=True)
class Conversation:
    """Asks a provider within a budget and keeps the transcript."""

    provider: Provider
    budget: Budget
    transcript: Transcript
    rounds: int = 0
    tokens: int = 0
    usd: float = 0.0

    def ask(self, request: Request) -> Reply:
        """Errors: CU708 if the request would go beyond the budget, before it is sent; CU709 a limit of money without a price;
        what the provider raises."""
        self._check(request)
        try:
            reply = self.provider.complete(request)
        except CuError as error:
            self.transcript.failure(request.purpose, str(error))
            raise
        self.rounds += 1
        self.tokens += reply.usage.input_tokens + reply.usage.output_tokens or estimate_tokens(reply.text)
        self.usd += reply.usage.cost_usd or 0.0
        self.transcript.exchange(self.provider.name, request, reply)
        if self.budget.usd is not None and reply.usage.cost_usd is None:
            message = f"{self.provider.name} has no price, so that a limit of money cannot be kept"
            raise CuError(Diagnostic("CU709", message, help="give [price] in a TOML file, or --max-tokens instead"))
        return reply

    @property
    def spent(self) -> bool:
        """True where no further round is allowed."""
        return self.rounds >= self.budget.rounds

    def _check(self, request: Request) -> None:
        need = estimate_tokens(request.stable + request.prompt)
        if self.spent:
            raise _over("rounds", f"{self.budget.rounds} replies were used")
        if self.tokens + need > self.budget.tokens:
            raise _over(
                "tokens", f"{self.tokens} of {self.budget.tokens} tokens are used and the next prompt has about {need}"
            )
        if self.budget.usd is not None and self.usd >= self.budget.usd:
            raise _over("usd", f"${self.usd:.2f} of ${self.budget.usd:.2f} are spent")


def _over(limit: str, message: str) -> CuError:
    return CuError(Diagnostic("CU708", f"the budget ends here: {message}", help=f"raise --max-{limit}"), exit_code=6)
