"""A program that plays a model: it tells by the prompt which stage asks, and answers from a folder, `lift.1.md`, `lower.1.md`, ..

    python -m tests.driver.model.program FOLDER [fail]

Each answer is given once; a counter beside them says how many were. With `fail` the second answer never comes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

STAGES = {"You read the text": "lift", "You change an expert": "transfer", "You patch the text": "lower"}


def main() -> None:
    folder = Path(sys.argv[1])
    prompt = sys.stdin.read()
    stage = next(name for sign, name in STAGES.items() if sign in prompt[:2000])
    counter = folder / f"{stage}.count"
    number = int(counter.read_text()) + 1 if counter.exists() else 1
    if "fail" in sys.argv[2:] and number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    counter.write_text(str(number))
    print((folder / f"{stage}.{number}.md").read_text(), end="")


if __name__ == "__main__":
    main()
