"""What `cuirc opt` shows of a pipeline while it runs: kernels before and after passes, their differences, times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from cubridge.backend.text.diff import render_diff
from cubridge.ir.nodes import Kernel
from cubridge.ir.printer import to_text
from cubridge.passes.base import Pass
from cubridge.passes.runner import Verify, Watch

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Names of passes; all of them if there are none."""

    names: frozenset[str] = frozenset()

    def __contains__(self, step: Pass) -> bool:
        return not self.names or step.name in self.names


NONE: Final = Chosen(frozenset({""}))


@dataclass(frozen=True, slots=True)
class Dumps(Watch):
    """Kernels as text. `changed`: after passes that changed something; `as_diff`: then as the difference alone."""

    say: Say
    ahead: Chosen = NONE
    behind: Chosen = NONE
    changed: bool = False
    as_diff: bool = False

    def before(self, step: Pass, kernel: Kernel) -> None:
        if step in self.ahead:
            self.say(f"# before {step.name}\n{to_text(kernel)}")

    def after(self, step: Pass, before: Kernel, kernel: Kernel) -> None:
        is_other = kernel != before
        if step in self.behind or (self.changed and is_other):
            self.say(f"# after {step.name}\n{to_text(kernel)}")
        if self.as_diff:
            self.say(f"# {step.name}\n{render_diff(before, kernel)}" if is_other else f"# {step.name}: no change\n")


@dataclass(slots=True)
class Timing(Watch):
    """Seconds of each pass, and of all verification together."""

    steps: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    verifying: float = 0.0
    _started: float = 0.0

    def before(self, step: Pass, kernel: Kernel) -> None:
        self._started = perf_counter() - self.verifying

    def after(self, step: Pass, before: Kernel, kernel: Kernel) -> None:
        self.steps.append((step.name, perf_counter() - self.verifying - self._started))

    def timed(self, verify: Verify) -> Verify:
        def run(kernel: Kernel) -> None:
            start = perf_counter()
            try:
                verify(kernel)
            finally:
                self.verifying += perf_counter() - start

        return run

    def table(self) -> str:
        """Milliseconds and shares, a line a pass in the order of the pipeline."""
        rows = [*self.steps, ("verification", self.verifying)]
        total = sum(seconds for _, seconds in rows)
        lines = [f"{1000 * s:9.2f}  {100 * s / max(total, 1e-9):5.1f} %  {name}" for name, s in rows]
        return "\n".join(("       ms    share  pass", *lines, f"{1000 * total:9.2f}           total"))
