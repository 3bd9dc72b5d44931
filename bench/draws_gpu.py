"""References put together at random, on a GPU: adapted and compiled in many processes, then launched and judged."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from bench.build import KERNELS, SPARSE, Built, Task, compile_all, in_processes, load, save
from cubridge.driver.adapt import adapt_unchecked
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import DEFAULT_SHAPE
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.plan import gpu_cases
from tests.support.compose import compose
from tests.support.judge_draw import KNOWN_REFUSALS

HEAD_DIM: Final = 64
DTYPE: Final = "bf16"


@dataclass(frozen=True, slots=True)
class Drawn:
    """`refused`: a known reason for which there is no kernel, `fault`: another one, or why a kernel does not compile; "" if
    neither."""

    number: int
    refused: str = ""
    fault: str = ""


def build_draws(count: int, arch: str, folder: Path, workers: int | None = None) -> list[Drawn]:
    """Draws 0 to `count`, even ones for sm80 and odd ones for sm90a, each that is accepted into a file of `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return in_processes(partial(_build, arch=arch, folder=folder), range(count), workers)


def load_draws(folder: Path, drawn: Sequence[Drawn]) -> Iterator[Built]:
    return load(folder, [Task(_name(d.number), DTYPE, HEAD_DIM) for d in drawn if not (d.refused or d.fault)])


def refusal_table(drawn: Sequence[Drawn]) -> str:
    reasons = Counter(d.refused for d in drawn if d.refused)
    accepted = sum(not (d.refused or d.fault) for d in drawn)
    return "\n".join(
        (f"{accepted} of {len(drawn)} adapted", *(f"{n:4} refused: {r}" for r, n in reasons.most_common()))
    )


def _name(number: int) -> str:
    return f"draw_{number}"


def _build(number: int, arch: str, folder: Path) -> Drawn:
    started = time.perf_counter()
    path = folder / f"{_name(number)}.py"
    path.write_text(compose(random.Random(number).choice).text, encoding="utf-8")
    kernel = KERNELS[number % len(KERNELS)]
    try:
        adapted = adapt_unchecked(path, kernel, replace(DEFAULT_SHAPE, D=HEAD_DIM), DTYPE)
    except CuError as error:
        code, reason = error.diagnostics[0].code, f"{error.diagnostics[0].code} {error.diagnostics[0].message}"
        return Drawn(number, refused=reason) if code in KNOWN_REFUSALS else Drawn(number, fault=str(error))
    text, attention = adapted.text, adapted.reference.attention
    try:
        compile_all(text, DTYPE, HEAD_DIM, arch)
    except CuError as error:
        return Drawn(number, fault=f"{_name(number)} {kernel}: {error}")
    checker = Checker(attention, DTYPE, approximations(adapted.target))
    cases = gpu_cases(attention.spec, adapted.shape)[number % SPARSE :: SPARSE]
    built = Built(Task(_name(number), DTYPE, HEAD_DIM), attention.spec.preconditions, {kernel: text})
    built.problems = checker.problems(cases)
    built.seconds = time.perf_counter() - started
    save(folder, built)
    return Drawn(number)
