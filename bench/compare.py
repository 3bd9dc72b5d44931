"""Compares what two checkouts make of every example, byte for byte, and how long they take.

    python -m bench.compare OTHER [--kernels sm80 sm90a] [--times 5]

adapts each example with this checkout and with the one in the folder OTHER, in turns. Exit code 3 if a kernel, patch, CuIR
text or pipeline differs. `--times N` times N further runs of one example in each checkout, in turns, and prints medians."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final

HERE: Final = Path(__file__).resolve().parents[1]
COMPARED: Final = ("kernel.cu", "kernel.patch", "source.cuir", "target.cuir", "pipeline.toml")
TIMED: Final = "prefix_lm"
_CUIRC: Final = "import sys; from cubridge.cli import main; sys.exit(main())"


def adapt(checkout: Path, example: Path, kernel: str, folder: Path) -> float:
    """Run `cuirc adapt` of a checkout into `folder`; the seconds that it took. A refusal is a result too: its text is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", _CUIRC, "adapt", str(example), "--kernel", kernel, "-o", str(folder)]
    start = perf_counter()
    done = subprocess.run(command, cwd=checkout, env=os.environ | {"PYTHONPATH": str(checkout)}, capture_output=True)
    seconds = perf_counter() - start
    if done.returncode != 0:
        (folder / "refused.txt").write_bytes(done.stderr)
    return seconds


def differences(a: Path, b: Path) -> list[str]:
    """Names of the files that differ, or that one folder lacks."""
    return [name for name in (*COMPARED, "refused.txt") if _bytes(a / name) != _bytes(b / name)]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--kernels", nargs="+", default=["sm80", "sm90a"])
    parser.add_argument("--times", type=int, default=0, help="timed runs of each checkout")
    options = parser.parse_args()
    checkouts = {"here": HERE, "other": options.other.resolve()}
    differing = 0
    with tempfile.TemporaryDirectory(prefix="cubridge-compare-") as root:
        for example in sorted((HERE / "examples").glob("*.py")):
            for kernel in options.kernels:
                folders = {side: Path(root, side, example.stem, kernel) for side in checkouts}
                for side, checkout in checkouts.items():
                    adapt(checkout, example, kernel, folders[side])
                found = differences(folders["here"], folders["other"])
                differing += bool(found)
                print(f"{example.stem} {kernel}: {'differs in ' + ', '.join(found) if found else 'same'}", flush=True)
        for kernel in options.kernels if options.times else ():
            print(
                f"{TIMED} {kernel}, s:", *(f"{s} {t:.2f}" for s, t in _medians(checkouts, kernel, root, options.times))
            )
    return 3 if differing else 0


def _medians(checkouts: dict[str, Path], kernel: str, root: str, times: int) -> list[tuple[str, float]]:
    example = HERE / "examples" / f"{TIMED}.py"
    seconds: dict[str, list[float]] = {side: [] for side in checkouts}
    for _ in range(times):
        for side, checkout in checkouts.items():
            seconds[side].append(adapt(checkout, example, kernel, Path(root, "timed", side)))
    return [(side, statistics.median(values)) for side, values in seconds.items()]


if __name__ == "__main__":
    sys.exit(main())
