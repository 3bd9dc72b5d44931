"""`cuirc faults`: how many plausible faults of a kernel the judge catches, and why it lets the others pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.runners import LAUNCH_CONSTANTS
from cubridge.ir.faults import enumerate_faults
from cubridge.ir.faults_judge import Judgement, Verdict, judge_fault, make_judge
from cubridge.ir.source import NOWHERE

_COLUMNS: Final = (
    ("verify", Verdict.CAUGHT, "verify"),
    ("order", Verdict.CAUGHT, "order"),
    ("values", Verdict.CAUGHT, "values"),
    ("equivalent", Verdict.EQUIVALENT, ""),
    ("missed", Verdict.MISSED, ""),
)
"""Heading, verdict, and by whom."""

_EVERY: Final = 100
"""Faults between two lines of progress."""


@dataclass(frozen=True, slots=True)
class FaultTable:
    """All judgements of one kernel."""

    kernel: str
    judgements: tuple[Judgement, ...]

    @property
    def missed(self) -> tuple[Judgement, ...]:
        return tuple(j for j in self.judgements if j.verdict is Verdict.MISSED)

    @property
    def equivalent(self) -> tuple[Judgement, ...]:
        return tuple(j for j in self.judgements if j.verdict is Verdict.EQUIVALENT)

    @property
    def faults(self) -> tuple[Judgement, ...]:
        """Without what is no change by construction."""
        return tuple(j for j in self.judgements if j.verdict is not Verdict.NO_CHANGE)

    def to_text(self) -> str:
        lines = [
            f"{self.kernel}: {len(self.faults)} faults",
            "",
            _row("operator", *(heading for heading, *_ in _COLUMNS), "all"),
        ]
        operators = dict.fromkeys(j.fault.operator for j in self.faults)
        lines += [
            self._counts(operator, [j for j in self.faults if j.fault.operator == operator]) for operator in operators
        ]
        lines += [self._counts("all", list(self.faults)), ""]
        share = 100 * len(self.equivalent) / max(1, len(self.faults))
        lines.append(f"equivalent, {share:.1f} %:")
        lines += [f"  {_place(j)}{j.fault}\n    {j.reason}" for j in self.equivalent]
        if self.missed:
            lines += ["missed:", *(f"  {_place(j)}{j.fault}\n    {j.reason}" for j in self.missed)]
        left_out = Counter(j.reason for j in self.judgements if j.verdict is Verdict.NO_CHANGE)
        lines.append(
            "left out, no change by construction: " + ", ".join(f"{reason} {n}" for reason, n in left_out.items())
        )
        return "\n".join(lines)

    def to_json(self) -> list[dict[str, str | None]]:
        return [
            {
                "place": _place(j).removesuffix(": ") or None,
                "path": str(j.fault.path),
                "operator": j.fault.operator,
                "statement": j.fault.what,
                "verdict": j.verdict.value,
                "by": j.by or None,
                "code": j.diagnostic.code if j.diagnostic else None,
                "message": j.diagnostic.message if j.diagnostic else j.reason,
            }
            for j in self.judgements
        ]

    @staticmethod
    def _counts(name: str, judgements: list[Judgement]) -> str:
        found = Counter((j.verdict, j.by) for j in judgements)
        return _row(name, *(str(found[verdict, by]) for _, verdict, by in _COLUMNS), str(len(judgements)))


def fault_table(kernel: str, dtype: str, head_dim: int, progress: Callable[[str], None], step: int = 1) -> FaultTable:
    """Judge every `step`-th fault of a kernel text. Errors: what lifting it says, and what the engines say of the kernel itself."""
    lifted = lift_kernel(choose_kernel(kernel), dtype, head_dim).kernel
    judge = make_judge(lifted, dict(LAUNCH_CONSTANTS))
    faults = list(enumerate_faults(lifted))[::step]
    judgements: list[Judgement] = []
    for fault in faults:
        judgements.append(judge_fault(judge, fault))
        if len(judgements) % _EVERY == 0:
            progress(f"{len(judgements)} of {len(faults)} faults judged")
    return FaultTable(kernel, tuple(judgements))


def _row(name: str, *cells: str) -> str:
    return f"{name:<16}" + "".join(f"{cell:>12}" for cell in cells)


def _place(judgement: Judgement) -> str:
    span = judgement.fault.span
    return "" if span is NOWHERE else f"{span}: "
