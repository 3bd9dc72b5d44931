"""`cuirc faults`: how many plausible faults of a kernel the judge catches, and why it lets the others pass. Rules and engines judge
the CuIR; what they let pass, the emulator judges as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cubridge.driver.kernels import ChosenKernel, backward_pass, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.sandbox.texts import tools_of
from cubridge.driver.stopwatch import Progress, counted, silent
from cubridge.driver.suites.fault_emulator import FaultEmulator, FaultTexts
from cubridge.ir.diagnostics import CuError
from cubridge.ir.families import FORWARD
from cubridge.ir.source import NOWHERE
from cubridge.judge.faults.backward import make_backward_judge
from cubridge.judge.faults.catalog import enumerate_faults
from cubridge.judge.faults.edits import Unsayable
from cubridge.judge.faults.verdicts import Judgement, Trial, Verdict, judge_fault, make_judge
from cubridge.judge.gradient_runs import Pass
from cubridge.judge.runners import LAUNCH_CONSTANTS

if TYPE_CHECKING:
    from cubridge.judge.tools import Tools

EMULATOR: Final = "emulator"
SAME_OUTPUTS: Final = "same outputs"

_COLUMNS: Final = (
    ("verify", Verdict.CAUGHT, "verify"),
    ("order", Verdict.CAUGHT, "order"),
    ("values", Verdict.CAUGHT, "values"),
    ("emulator", Verdict.CAUGHT, EMULATOR),
    ("equivalent", Verdict.EQUIVALENT, ""),
    ("missed", Verdict.MISSED, ""),
)
"""Heading, verdict, and by whom."""


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
    def emulated(self) -> tuple[Judgement, ...]:
        """Caught by the emulator alone."""
        return tuple(j for j in self.judgements if j.by == EMULATOR)

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
        lines += [_survivor(j) for j in self.equivalent]
        if self.missed:
            lines += ["missed:", *map(_survivor, self.missed)]
        if self.emulated:
            lines += ["caught by the emulator alone:", *map(_told, self.emulated)]
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
                "emulator": j.emulator or None,
            }
            for j in self.judgements
        ]

    @staticmethod
    def _counts(name: str, judgements: list[Judgement]) -> str:
        found = Counter((j.verdict, j.by) for j in judgements)
        return _row(name, *(str(found[verdict, by]) for _, verdict, by in _COLUMNS), str(len(judgements)))


def fault_table(
    kernel: str, dtype: str, head_dim: int, say: Callable[[str], None], step: int = 1, progress: Progress = silent
) -> FaultTable:
    """Judge every `step`-th fault of a kernel text. `say` hears what is not judged, and why. Errors: what lifting it
    says, and what the engines and the emulator say of the kernel itself."""
    chosen = choose_kernel(kernel)
    if chosen.text.contract.family != FORWARD:
        return _backward_table(chosen, dtype, head_dim, step, progress)
    lifted = lift_kernel(chosen, dtype, head_dim).kernel
    judge = make_judge(lifted, dict(LAUNCH_CONSTANTS))
    faults = list(enumerate_faults(lifted))[::step]
    judgements: list[Judgement] = []
    texts = FaultTexts.of(chosen, dtype, head_dim, lifted)
    emulator = find_emulator(tools_of(chosen), texts, judge.trials, say)
    told = counted(progress, "faults", len(faults))
    for fault in faults:
        judgements.append(ask_emulator(judge_fault(judge, fault), emulator))
        told(fault.operator)
    return FaultTable(kernel, tuple(judgements))


def _backward_table(chosen: ChosenKernel, dtype: str, head_dim: int, step: int, progress: Progress) -> FaultTable:
    """Of one kernel of a backward pass, in its place among the others. The emulator does not judge these."""
    texts = backward_pass(chosen)
    kernels = Pass(*(lift_kernel(text, dtype, head_dim).kernel for text in texts))
    kernel = next(k for k in kernels if k.family == chosen.text.contract.family)
    judge = make_backward_judge(kernels, kernel)
    faults = list(enumerate_faults(kernel))[::step]
    judgements: list[Judgement] = []
    told = counted(progress, "faults", len(faults))
    for fault in faults:
        judgements.append(ask_emulator(judge_fault(judge, fault), "not asked of a backward pass"))
        told(fault.operator)
    return FaultTable(chosen.name, tuple(judgements))


def find_emulator(
    tools: Tools, texts: FaultTexts, trials: Sequence[Trial], say: Callable[[str], None]
) -> FaultEmulator | str:
    """The emulator, or why there is none here. Errors: what it says of the kernel itself."""
    try:
        return FaultEmulator.of(tools, texts, trials)
    except CuError as error:
        if error.exit_code != 5:
            raise
        say(f"without the emulator: {error.diagnostics[0].message}")
        return f"not asked: {error.diagnostics[0].message}"


def ask_emulator(judgement: Judgement, emulator: FaultEmulator | str) -> Judgement:
    """The judgement of engines that let a fault pass, with what the emulator makes of it, or why there is no emulator."""
    if judgement.verdict not in (Verdict.EQUIVALENT, Verdict.MISSED):
        return judgement
    if isinstance(emulator, str):
        return replace(judgement, emulator=emulator)
    try:
        found = emulator.find(judgement.fault)
    except Unsayable as error:
        return replace(judgement, emulator=f"not asked, the text cannot say it: {error}")
    if found is None:
        return replace(judgement, emulator=SAME_OUTPUTS)
    return replace(judgement, verdict=Verdict.CAUGHT, by=EMULATOR, diagnostic=found, emulator=found.message)


def _row(name: str, *cells: str) -> str:
    return f"{name:<16}" + "".join(f"{cell:>12}" for cell in cells)


def _place(judgement: Judgement) -> str:
    span = judgement.fault.span
    return "" if span is NOWHERE else f"{span}: "


def _survivor(judgement: Judgement) -> str:
    return f"  {_place(judgement)}{judgement.fault}\n    {judgement.reason}\n    emulator: {judgement.emulator}"


def _told(judgement: Judgement) -> str:
    assert judgement.diagnostic is not None
    return f"  {_place(judgement)}{judgement.fault}\n    {judgement.diagnostic.code}: {judgement.diagnostic.message}"
