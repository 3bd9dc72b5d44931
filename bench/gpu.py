"""What a GPU says: `python bench/gpu.py {smoke,check,mutants,time,all} [options]`, from the repository's root.

smoke    the kernels as they are, full attention, against fp64
check    every variant on both kernels against the fp64 oracle, at many lengths, types, head dims and inputs
mutants  wrong kernels of every variant, each of which the check must reject
time     every variant on both kernels beside eager PyTorch, SDPA and FlexAttention, interleaved

Prints tables and, with --out DIR, writes them as JSON. Exit codes: 0 all right, 3 numbers differ, 5 no GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("smoke",))
    parser.add_argument("--out", type=Path, help="folder for JSON results")
    arguments = parser.parse_args(argv)
    from bench.smoke import smoke
    from cubridge.ir.diagnostics import CuError

    try:
        return 3 if smoke(arguments.out) else 0
    except CuError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
