"""One launch of each kernel for a memory checker: `python bench/memcheck.py {run,planted} [--built DIR]`.

`run` launches every variant on both kernels, at lengths off the tile, with tables of exactly Lq or Lk entries. `planted` launches
one kernel that stores past its output; a checker that does not report it reports nothing. See memcheck.sh."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from bench.build import DEFAULT_BUILT, Built, load, tasks  # noqa: E402
from bench.correctness import run as launch  # noqa: E402
from bench.smoke import base_kernel  # noqa: E402
from bench.variants import VARIANTS  # noqa: E402
from cubridge.backend.gpu.device import find_gpu  # noqa: E402
from cubridge.backend.launch.device import KernelText  # noqa: E402
from cubridge.backend.launch.runtime import Launcher  # noqa: E402
from cubridge.ir.source import SourceFile  # noqa: E402


def with_planted_fault(source: SourceFile) -> SourceFile:
    """The text with an output that claims more rows than it has."""
    changed, count = re.subn(r"(head_view\(p\.o,[^;]*), p\.len_q\);", r"\1, p.len_q + 4096);", source.text)
    if count != 1:
        raise SystemExit("the planted fault no longer fits the kernel's text")
    return SourceFile.from_text(source.name, changed)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("run", "planted"))
    parser.add_argument("--built", type=Path, default=DEFAULT_BUILT)
    arguments = parser.parse_args(argv)
    if arguments.command == "planted":
        launch_planted()
    else:
        launch_each(load(arguments.built, tasks(list(VARIANTS), (), check=True)))
    return 0


def launch_each(built: Iterable[Built]) -> None:
    """One problem of each variant on each kernel: the one of the most rows that is still small."""
    import torch

    for item in built:
        if not item.problems or not item.mutants:  # the form that is checked at every length
            continue
        problem = max(item.problems, key=lambda p: (p.shape.Lq * p.shape.Lk < 100_000, p.shape.Lq + p.shape.Lk))
        for kernel, text in item.kernels.items():
            launch(Launcher(find_gpu(), text, item.preconditions, say=lambda _: None), problem)
            torch.cuda.synchronize()
            print(f"{item.task.variant} {kernel}: {problem.shape}", flush=True)


def launch_planted() -> None:
    import torch

    right = base_kernel("sm80")
    wrong = with_planted_fault(right.source)
    q = torch.randn(1, 2, 65, 64, dtype=torch.bfloat16, device="cuda")
    Launcher(find_gpu(), KernelText(wrong, right.contract))(q, q, q)
    torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
