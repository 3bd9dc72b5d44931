"""How far what a model wrote must be proved before it counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import AttentionSpec
from cubridge.judge.proof.part import Part, unproved
from cubridge.judge.proof.prove import prove

SOURCES_OWN: Final = ("schedule",)
"""Parts that no reply changes: the structure check holds them to the source."""


class Accept(StrEnum):
    """What a user takes besides proofs."""

    TESTED = "tested"  # parts that are only tested
    RUNS = "runs"  # text that lifting cannot read, and CuIR that a model read from one: runs alone judge them


def prove_target(kernel: Kernel, spec: AttentionSpec) -> tuple[Part, ...]:
    """A job: the parts of a target, and what is proved of each."""
    return prove(kernel, spec)


def check_proved(parts: Iterable[Part], accept: Collection[Accept]) -> None:
    """Errors: CU318 for a part that is shown to be wrong, with a point; CU724 for one that is tested only, unless accepted."""
    open_parts = [p for p in unproved(parts) if p.name not in SOURCES_OWN]
    wrong = [_wrong(p) for p in open_parts if p.refuted]
    if wrong:
        raise CuError(*wrong)
    if open_parts and Accept.TESTED not in accept:
        raise CuError(*(_tested(p) for p in open_parts))


def _wrong(part: Part) -> Diagnostic:
    return Diagnostic("CU318", f"{part.name}: {part.counterexample}: {part.because}")


def _tested(part: Part) -> Diagnostic:
    message = f"{part.name} is tested and not proved: {part.because}"
    return Diagnostic(
        "CU724", message, help="say it in the forms of the source kernel; `--accept tested` takes it as it is"
    )


def check_runs(what: str, accept: Collection[Accept]) -> None:
    """Errors: CU725 for what runs alone judge, unless that is accepted."""
    if Accept.RUNS not in accept:
        message = f"{what}, so that its runs alone would judge it"
        raise CuError(Diagnostic("CU725", message, help="`--accept runs` takes it as far as that goes"))
