"""What checks find: runs against the oracle, wrong kernels, what the compiler says, and how far all that goes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cubridge.judge.proof.part import Part


class Verdict(StrEnum):
    """How far the result was checked; each level includes those before it."""

    REJECTED = "rejected"  # a check failed
    INTERPRETED = "interpreted"  # order and value engine
    EMULATED = "emulated"  # the patched text, on a CPU
    COMPILED = "compiled"  # for the real architecture
    GPU = "gpu"  # the compiled kernel, on a device


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One run against the oracle. `worst`: largest error over its bound, at most 1 where accepted; `reference`: the same of
    the user's own half-precision reference, for comparison, never a tolerance. `rows`: the largest error over its bound of each
    query row, over all batches and heads; () where the run broke off."""

    stage: str
    shape: str
    inputs: str
    worst: float
    accepted: bool
    detail: str = ""
    lse: float | None = None
    reference: float | None = None
    rows: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class MutantResult:
    """One wrong kernel. `rejected_by` names the stage that refused it; None if it passed, which fails the check."""

    name: str
    rejected_by: str | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler says of one instantiation."""

    arch: str
    macros: str
    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Findings:
    """`parts`: of which parts it is proved that they are the reference's, for all sizes. `points`: of long problems, at which the
    kernel was compared."""

    cases: tuple[CaseResult, ...]
    mutants: tuple[MutantResult, ...]
    compiled: tuple[Compiled, ...]
    verdict: Verdict
    not_checked: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    points: int = 0
