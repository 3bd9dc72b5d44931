"""`cuirc faults`: break a kernel in every way that the table of operators knows, and see who catches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_verified
from cubridge.driver.runners import LAUNCH_CONSTANTS
from cubridge.driver.threads import one_thread
from cubridge.ir.faults import enumerate_faults
from cubridge.ir.faults_judge import Judgement, Verdict, judge_fault, make_judge

_COLUMNS = ("verify", "order", "values")


@dataclass(frozen=True, slots=True)
class FaultTable:
    """The judgement of every fault of one kernel, in the order of its text."""

    kernel: str
    judgements: tuple[Judgement, ...]

    @property
    def missed(self) -> tuple[Judgement, ...]:
        return tuple(j for j in self.judgements if j.verdict is Verdict.MISSED)

    def to_text(self) -> str:
        """Counts by operator; then each fault that is harmless, with its proof, and each that was missed."""
        rows = [_row(name, found) for name, found in self._by_operator().items()]
        rows.append(_row("all", list(self.judgements)))
        others = [j for j in self.judgements if j.verdict in (Verdict.EQUIVALENT, Verdict.MISSED)]
        lines = [f"{self.kernel}: {len(self.judgements)} faults", _table(rows)]
        lines += [f"{j.verdict}: {j.fault.span}: {j.fault}" + (f" ({j.reason})" if j.reason else "") for j in others]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        return {
            "kernel": self.kernel,
            "faults": [
                {
                    "operator": j.fault.operator,
                    "what": j.fault.what,
                    "place": str(j.fault.span),
                    "verdict": j.verdict.value,
                    "by": j.by,
                    "code": None if j.diagnostic is None else j.diagnostic.code,
                    "reason": j.reason or (j.diagnostic.message if j.diagnostic is not None else ""),
                }
                for j in self.judgements
            ],
        }

    def _by_operator(self) -> dict[str, list[Judgement]]:
        found: dict[str, list[Judgement]] = {}
        for judgement in self.judgements:
            found.setdefault(judgement.fault.operator, []).append(judgement)
        return found


def fault_table(kernel: str, dtype: str, head_dim: int, progress: Callable[[str], None]) -> FaultTable:
    """Judge every fault of a kernel text. Errors: what lifting and verifying the text itself raises."""
    source = lift_verified(choose_kernel(kernel), dtype, head_dim).kernel
    with one_thread():
        judge = make_judge(source, dict(LAUNCH_CONSTANTS))
        faults = list(enumerate_faults(source))
        judgements: list[Judgement] = []
        for number, fault in enumerate(faults):
            if number % 100 == 0:
                progress(f"{number} of {len(faults)} faults judged")
            judgements.append(judge_fault(judge, fault))
    return FaultTable(kernel, tuple(judgements))


def _row(name: str, judgements: list[Judgement]) -> tuple[str, ...]:
    by = Counter(j.by for j in judgements if j.verdict is Verdict.CAUGHT)
    counts = Counter(j.verdict for j in judgements)
    cells = [counts.total(), *(by[c] for c in _COLUMNS), counts[Verdict.NO_CHANGE]]
    return (name, *map(str, (*cells, counts[Verdict.EQUIVALENT], counts[Verdict.MISSED])))


def _table(rows: list[tuple[str, ...]]) -> str:
    header = ("operator", "faults", *(f"caught by {c}" for c in _COLUMNS), "same program", "equivalent", "missed")
    widths = [max(len(r[x]) for r in (header, *rows)) for x in range(len(header))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (header, tuple("-" * w for w in widths), *rows)
    )
