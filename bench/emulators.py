"""The emulator of wrapped text (g++) beside the interpreter of PTX: their numbers, and every judge's verdict on every fault.

    python -m bench.emulators numbers     # every example on both kernels: the worst part of the bound, words that differ
    python -m bench.emulators faults sm80 # every fault before every judge: static rules, order, values, g++, PTX

No GPU. Prints a table, then the faults that some judge lets pass and another catches."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.device import PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.reference import read_reference
from cubridge.driver.suites.fault_emulator import FaultTexts, Inputs
from cubridge.engine.order.engine import run_order
from cubridge.ir.diagnostics import CuError
from cubridge.ir.types import DTYPES
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.faults.catalog import Fault, enumerate_faults
from cubridge.judge.faults.edits import Unsayable
from cubridge.judge.faults.verdicts import Judge, make_judge, value_fault
from cubridge.judge.plan import emulator_cases
from cubridge.judge.readable import check_readable
from cubridge.judge.runners import LAUNCH_CONSTANTS, LaunchRunner
from cubridge.judge.tools import EMULATED_HEAD_DIM, emulate
from cubridge.verify.verifier import verify

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText
    from cubridge.judge.attention import Outputs
    from cubridge.judge.problem import Problem

EXAMPLES: Final = Path(__file__).resolve().parent.parent / "examples"
KERNELS: Final = ("sm80", "sm90a")
PASSES: Final = "passes"
UNSAID: Final = "not said"
"""Verdicts besides the code of a diagnostic. A fault is not said where no text says it."""


def interpret(text: KernelText, dtype: str, head_dim: int = EMULATED_HEAD_DIM) -> LaunchRunner:
    """The text on the interpreter of PTX."""
    launcher = Launcher(PtxDevice(check=check_readable), text)
    launcher.prepare(DTYPES[dtype], head_dim)
    return LaunchRunner(launcher, "ptx")


Build = Callable[["KernelText", str, int], LaunchRunner]
EMULATORS: Final[dict[str, Build]] = {"g++": emulate, "ptx": interpret}


# ---- numbers ---------------------------------------------------------------------------------------------------------


def numbers(paths: Sequence[Path]) -> bool:
    """Whether both accept every example, and the words of their outputs that differ."""
    fine = True
    print(f"{'example':<28}{'kernel':<8}{'g++':>10}{'ptx':>10}{'words':>10}{'differ':>8}{'g++ s':>8}{'ptx s':>8}")
    for path in paths:
        reference = read_reference(path)
        for kernel in KERNELS:
            try:
                made = adapt_unchecked(reference, kernel)
            except CuError as error:
                print(f"{path.stem:<28}{kernel:<8} {error.diagnostics[0].message[:80]}")
                continue
            checker = Checker(reference.attention, "bf16", approximations(made.target))
            worst, outputs, seconds, rejected = [], [], [], []
            for build in EMULATORS.values():
                start = time.perf_counter()
                kept = _Kept(build(made.text, "bf16", EMULATED_HEAD_DIM))
                results = checker.run(kept, emulator_cases(reference.attention.spec, EMULATED_HEAD_DIM))
                seconds.append(time.perf_counter() - start)
                rejected += [f"    {kept.stage}: {r.shape} {r.inputs}: {r.detail}" for r in results if not r.accepted]
                worst.append(max(r.worst for r in results))
                outputs.append(kept.outputs)
            differ, words = _words(*outputs)
            figures = f"{worst[0]:>10.3f}{worst[1]:>10.3f}{words:>10}{differ:>8}{seconds[0]:>8.1f}{seconds[1]:>8.1f}"
            print("\n".join([f"{path.stem:<28}{kernel:<8}{figures}", *rejected]), flush=True)
            fine &= not rejected
    return fine


@dataclass(slots=True)
class _Kept:
    """A runner that keeps its outputs, None for a run that a fault ended."""

    runner: LaunchRunner
    outputs: list[Outputs | None] = field(default_factory=list["Outputs | None"])

    @property
    def stage(self) -> str:
        return self.runner.stage

    def run(self, problem: Problem, lse: bool) -> Outputs:
        self.outputs.append(None)
        found = self.runner.run(problem, lse)
        self.outputs[-1] = found
        return found


def _words(old: list[Outputs | None], new: list[Outputs | None]) -> tuple[int, int]:
    """Elements of the outputs that differ, of how many, of the runs that both ended."""
    both = [(a[0], b[0]) for a, b in zip(old, new, strict=True) if a is not None and b is not None]
    pairs = [(a.view(torch.int16), b.view(torch.int16)) for a, b in both]
    return sum(int((a != b).sum()) for a, b in pairs), sum(a.numel() for a, _ in pairs)


# ---- faults ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdicts:
    fault: Fault
    by: dict[str, str]
    """By judge: a code, PASSES or UNSAID."""

    @property
    def split(self) -> bool:
        """Caught by one emulator and let pass by the other."""
        said = [self.by[name] for name in EMULATORS]
        return UNSAID not in said and (PASSES in said) != (said.count(PASSES) == len(said))


def faults(kernel: str, step: int, start: int) -> bool:
    """Every `step`-th fault before every judge; whether the interpreter catches all that the other emulator does."""
    chosen = choose_kernel(kernel)
    lifted = lift_kernel(chosen, "bf16", EMULATED_HEAD_DIM).kernel
    judge = make_judge(lifted, dict(LAUNCH_CONSTANTS))
    texts = FaultTexts.of(chosen, "bf16", EMULATED_HEAD_DIM, lifted)
    inputs = [
        Inputs(*t.inputs, lse=t.launch.want_lse) for t in judge.trials if 0 not in t.launch.shape.sizes().values()
    ]
    expected = {name: _outputs(build, texts.kernel.text, inputs) for name, build in EMULATORS.items()}
    found: list[Verdicts] = []
    for fault in list(enumerate_faults(lifted))[start::step]:
        if fault.no_change is None:
            found.append(Verdicts(fault, dict(_judge(judge, texts, fault, inputs, expected))))
            print(f"{len(found)} {fault}: {found[-1].by}", file=sys.stderr, flush=True)
    _print_table(kernel, found)
    return all(v.by["ptx"] != PASSES for v in found if v.split)


def _judge(
    judge: Judge, texts: FaultTexts, fault: Fault, inputs: Sequence[Inputs], expected: dict[str, list[Outputs]]
) -> Iterator[tuple[str, str]]:
    yield "rules", _code(verify(fault.kernel))
    yield "order", _code(run_order(fault.kernel)[0])
    values = value_fault(judge.trials, fault.kernel)
    yield "values", PASSES if values is None else values.code
    try:
        text = texts.kernel.with_text(texts.write(fault))
    except Unsayable:
        yield from dict.fromkeys(EMULATORS, UNSAID).items()
        return
    for name, build in EMULATORS.items():
        yield name, _emulated(build, text, inputs, expected[name])


def _code(diagnostics: Sequence[object]) -> str:
    return getattr(diagnostics[0], "code", "?") if diagnostics else PASSES


def _emulated(build: Build, text: KernelText, inputs: Sequence[Inputs], expected: list[Outputs]) -> str:
    try:
        outputs = _outputs(build, text, inputs)
    except CuError as error:
        return error.diagnostics[0].code
    return PASSES if all(_same(a, b) for a, b in zip(outputs, expected, strict=True)) else "CU844"


def _outputs(build: Build, text: KernelText, inputs: Sequence[Inputs]) -> list[Outputs]:
    runner = build(text, "bf16", EMULATED_HEAD_DIM)
    return [runner.run(i, i.lse) for i in inputs]


def _same(got: Outputs, want: Outputs) -> bool:
    pairs = [(a, b) for a, b in zip(got, want, strict=True) if a is not None and b is not None]
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)


def _print_table(kernel: str, found: Sequence[Verdicts]) -> None:
    judges = ("rules", "order", "values", *EMULATORS)
    print(f"{kernel}: {len(found)} faults that change something")
    print(f"{'judge':<10}{'caught':>8}{'passes':>8}{'not said':>10}{'alone':>8}")
    for name in judges:
        said = Counter(v.by[name] if v.by[name] in (PASSES, UNSAID) else "caught" for v in found)
        alone = sum(
            v.by[name] not in (PASSES, UNSAID) and all(v.by[n] in (PASSES, UNSAID) for n in judges if n != name)
            for v in found
        )
        print(f"{name:<10}{said['caught']:>8}{said[PASSES]:>8}{said[UNSAID]:>10}{alone:>8}")
    for verdicts in found:
        if verdicts.split:
            print(f"  {verdicts.fault}: {verdicts.by}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.emulators", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    number = commands.add_parser("numbers")
    number.add_argument("examples", nargs="*", type=Path, default=sorted(EXAMPLES.glob("*.py")))
    fault = commands.add_parser("faults")
    fault.add_argument("kernel", choices=KERNELS)
    fault.add_argument("--step", type=int, default=1)
    fault.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    fine = numbers(given.examples) if given.command == "numbers" else faults(given.kernel, given.step, given.start)
    return 0 if fine else 3


if __name__ == "__main__":
    sys.exit(main())
