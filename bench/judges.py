"""Every judge's verdict on every fault of a kernel, none stopping another.

    python -m bench.judges sm80   # static rules, order engine, value engine, emulator

No GPU. Prints a table, then the faults that the emulator lets pass and another judge catches, or the other way round."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.suites.fault_emulator import FaultEmulator, FaultTexts
from cubridge.engine.order.engine import run_order
from cubridge.ir.diagnostics import Diagnostic
from cubridge.judge.faults.catalog import Fault, enumerate_faults
from cubridge.judge.faults.edits import Unsayable
from cubridge.judge.faults.verdicts import Judge, make_judge, value_fault
from cubridge.judge.runners import LAUNCH_CONSTANTS
from cubridge.judge.tools import EMULATED_HEAD_DIM, Here
from cubridge.verify.verifier import verify

KERNELS: Final = ("sm80", "sm90a")
JUDGES: Final = ("rules", "order", "values", "emulator")
PASSES: Final = "passes"
UNSAID: Final = "not said"
"""Verdicts besides the code of a diagnostic. A fault is not said where no text says it."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    fault: Fault
    by: dict[str, str]
    """By judge: a code, PASSES or UNSAID."""

    @property
    def split(self) -> bool:
        """Do the emulator and the others disagree?"""
        emulated, *others = (self.by[name] for name in reversed(JUDGES))
        return emulated != UNSAID and (emulated == PASSES) != all(found == PASSES for found in others)


def judge_faults(kernel: str, step: int, start: int) -> None:
    """Every `step`-th fault before every judge."""
    chosen = choose_kernel(kernel)
    lifted = lift_kernel(chosen, "bf16", EMULATED_HEAD_DIM).kernel
    judge = make_judge(lifted, dict(LAUNCH_CONSTANTS))
    texts = FaultTexts.of(chosen, "bf16", EMULATED_HEAD_DIM, lifted)
    emulator = FaultEmulator.of(Here(), texts, judge.trials)
    found: list[Verdicts] = []
    for fault in list(enumerate_faults(lifted))[start::step]:
        if fault.no_change is None:
            found.append(Verdicts(fault, dict(_judge(judge, emulator, fault))))
            print(f"{len(found)} {fault}: {found[-1].by}", file=sys.stderr, flush=True)
    _print_table(kernel, found)


def _judge(judge: Judge, emulator: FaultEmulator, fault: Fault) -> Iterator[tuple[str, str]]:
    yield "rules", _code(*verify(fault.kernel))
    yield "order", _code(*run_order(fault.kernel)[0])
    yield "values", _code(value_fault(judge.trials, fault.kernel))
    try:
        yield "emulator", _code(emulator.find(fault))
    except Unsayable:
        yield "emulator", UNSAID


def _code(first: Diagnostic | None = None, *_: Diagnostic) -> str:
    return first.code if first else PASSES


def _print_table(kernel: str, found: Sequence[Verdicts]) -> None:
    print(f"{kernel}: {len(found)} faults that change something")
    print(f"{'judge':<10}{'caught':>8}{'passes':>8}{'not said':>10}{'alone':>8}")
    for name in JUDGES:
        said = Counter(v.by[name] if v.by[name] in (PASSES, UNSAID) else "caught" for v in found)
        alone = sum(
            v.by[name] not in (PASSES, UNSAID) and all(v.by[n] in (PASSES, UNSAID) for n in JUDGES if n != name)
            for v in found
        )
        print(f"{name:<10}{said['caught']:>8}{said[PASSES]:>8}{said[UNSAID]:>10}{alone:>8}")
    for verdicts in found:
        if verdicts.split:
            print(f"  {verdicts.fault}: {verdicts.by}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.judges", description=__doc__)
    parser.add_argument("kernel", choices=KERNELS)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    judge_faults(given.kernel, given.step, given.start)


if __name__ == "__main__":
    main()
