"""References put together at random, adapted and compared with what plain PyTorch says of them: for runs longer than a test.

    python -m bench.draws 5000 --kernel sm90a --first 0 --emulate 50 --keep FOLDER

Draw N is the same on every machine. A draw that fails is printed with its text; `--keep` also writes every text. Ends with 1 if
any kernel is wrong."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.support.compose import compose
from tests.support.judge_draw import WrongError, judge_draw


@dataclass(slots=True)
class Tally:
    """`refused`: how often, by reason; `wrong`: draw numbers; `worst`: the largest error over its bound."""

    accepted: int = 0
    worst: float = 0.0
    refused: Counter[str] = field(default_factory=Counter[str])
    wrong: list[int] = field(default_factory=list[int])

    def to_text(self) -> str:
        refused = "".join(f"\n  {count:4} {reason}" for reason, count in self.refused.most_common())
        return (
            f"{self.accepted} adapted and right, worst error {self.worst:.3f} of its bound; {self.refused.total()} refused"
            f"{refused}\nwrong: {self.wrong or 'none'}"
        )


def run(first: int, count: int, kernel: str, emulate: int, folder: Path) -> Tally:
    """`emulate`: every how many draws also run on the emulator; 0 for none."""
    tally = Tally()
    for number in range(first, first + count):
        path = folder / f"draw_{number}.py"
        path.write_text(compose(random.Random(number).choice).text, encoding="utf-8")
        try:
            outcome = judge_draw(path, kernel, emulated=emulate > 0 and number % emulate == 0)
        except WrongError as error:
            tally.wrong.append(number)
            print(f"draw {number}: {error}\n{path.read_text(encoding='utf-8')}", flush=True)
            continue
        if outcome.refused is not None:
            tally.refused[f"{outcome.refused.code} {outcome.refused.message}"] += 1
        else:
            tally.accepted += 1
            tally.worst = max(tally.worst, outcome.worst)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--kernel", default="sm80", choices=("sm80", "sm90a"))
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument(
        "--emulate", type=int, default=0, metavar="N", help="run every N-th draw on the emulator as well"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the texts here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        tally = run(options.first, options.count, options.kernel, options.emulate, folder)
    print(f"{tally.to_text()}\n{time.perf_counter() - start:.0f} s")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
