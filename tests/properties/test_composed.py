"""References put together at random are adapted right, or refused for a reason that is known.

`bench/draws.py` runs more of them. The reasons of refusals are printed at the end of each run (`pytest -rP`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from tests.support.compose import Draw, compose
from tests.support.judge_draw import judge_draw

RUNS: Final = 16
QUICK: Final = 2
"""Runs that are not slow ones."""
DRAWS: Final = 13
"""Of each run; runs alternate between the kernels."""
EMULATED: Final = 12
"""One in so many draws runs on the emulator as well."""

draws: Final = st.composite(lambda draw: compose(lambda options: draw(st.sampled_from(options))))()


@pytest.mark.parametrize("run", [pytest.param(n, marks=() if n < QUICK else pytest.mark.slow) for n in range(RUNS)])
def test_adapted_right_or_refused(run: int, tmp_path: Path) -> None:
    kernel = ("sm80", "sm90a")[run % 2]
    refused: Counter[str] = Counter()
    drawn = 0

    @seed(run)
    @settings(
        max_examples=DRAWS,
        phases=[Phase.generate],  # each draw takes a third of a second: shrinking would take minutes
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(draws)
    def check(draw: Draw) -> None:
        nonlocal drawn
        path = tmp_path / f"draw_{drawn}.py"
        path.write_text(draw.text, encoding="utf-8")
        drawn += 1
        note(draw.text)
        outcome = judge_draw(path, kernel, emulated=drawn % EMULATED == 0)
        if outcome.refused is not None:
            refused[f"{outcome.refused.code} {outcome.refused.message}"] += 1

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        check()
    finally:
        torch.set_num_threads(threads)
    for reason, count in refused.most_common():
        print(f"{count:3} {reason}")
    assert refused.total() <= DRAWS // 4
