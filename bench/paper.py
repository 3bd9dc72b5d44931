"""The table of the paper on one GPU: `python bench/paper.py`, from the repository's root.

Eight variants, three head layouts, lengths from 1k to 16k, forward and backward, beside eager PyTorch, SDPA, FlexAttention (by
Triton, and by FlashAttention-4), FlashAttention-3 and -4, as far as they can say the variant; a package that cannot be imported is
left out with a line. Every cell is a table of its own: its candidates are timed in turns, in one process.

Writes into --out: cells.jsonl, a line a cell, from which a run that was killed goes on; paper.md and paper.json; forward.svg and
backward.svg, where matplotlib is there. Calls of a few minutes each, until no cell is left:

    python bench/paper.py --seconds 400

Several machines of one kind, and one table of what they measured, which needs no GPU:

    python bench/paper.py --part 1/2 --out first    # and --part 2/2 --out second
    python bench/paper.py --of first/cells.jsonl second/cells.jsonl

Exit codes: 0 all right, 3 a kernel of ours failed, 5 no GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

if TYPE_CHECKING:
    from bench.kept import Cell, Kept

say = partial(print, flush=True)


def main(argv: Sequence[str]) -> int:
    from bench.kept import Kept
    from bench.paper_grid import grid, part_of
    from bench.paper_plot import write_plots
    from bench.paper_tables import as_data, ours_ran, paper_text
    from bench.table import write_json
    from cubridge.ir.diagnostics import CuError

    parser = _parser()
    given = parser.parse_args(argv)
    cells = part_of(grid(given.directions, given.variants, given.lengths, given.heads, given.head_dim), given.part)
    try:
        kept = Kept.read(*given.of) if given.of else _measure(given, cells)
    except CuError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except (OSError, ValueError) as error:
        parser.error(str(error))
    measured = list(kept.of(cells))
    text = paper_text(kept.setup, measured)
    write_json(given.out / "paper.json", as_data(kept.setup, measured))
    (given.out / "paper.md").write_text(text)
    write_plots(given.out, measured, say)
    say(f"\n{text}\n{len(kept.left(cells))} cells left")
    return 0 if measured and ours_ran(measured) else 3


def _measure(given: argparse.Namespace, cells: Sequence[Cell]) -> Kept:
    from bench.candidates import importable
    from bench.cells import in_seconds, measure_cells
    from bench.kept import Kept, setup_here
    from bench.speed import Measure
    from cubridge.backend.gpu.device import find_gpu

    in_time, device = in_seconds(given.seconds), find_gpu()
    measure = Measure(importable(given.peers, say), given.rounds)
    kept = Kept(given.out / "cells.jsonl", setup_here(measure.peers, device))
    measure_cells(
        cells, kept, device, measure, given.arch, workers=given.workers, warm=given.warm, in_time=in_time, say=say
    )
    return kept


def _parser() -> argparse.ArgumentParser:
    from bench.candidates import PEERS
    from bench.kept import Direction
    from bench.lengths import LAYOUTS
    from bench.paper_grid import EIGHT, LENGTHS
    from bench.variants import VARIANTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--directions", nargs="+", choices=get_args(Direction), default=get_args(Direction))
    add("--variants", nargs="+", choices=VARIANTS, default=EIGHT, metavar="NAME")
    add("--lengths", nargs="+", type=int, default=LENGTHS, metavar="L")
    add("--heads", nargs="+", type=_pair, default=LAYOUTS, metavar="Hq/Hk", help="32/32 64/8 128/8")
    add("--head-dim", type=int, choices=(64, 128), default=128)
    add("--peers", nargs="*", choices=PEERS, default=tuple(PEERS))
    add("--rounds", type=int, default=7, help="samples of each candidate")
    add("--part", type=_part, default=(1, 1), metavar="K/N", help="the K-th of N parts of the cells alone")
    add("--seconds", type=float, help="begin no cell after so many")
    add("--of", nargs="+", type=Path, metavar="FILE", help="measure nothing: the table of these files")
    add("--arch", default="sm_90a", help="what our kernels are compiled for")
    add("--workers", type=int, help="processes that adapt and compile our kernels")
    add("--warm", type=int, default=8, help="processes that compile peers beforehand, on the GPU")
    add("--out", type=Path, default=Path("out/paper"))
    return parser


def _part(text: str) -> tuple[int, int]:
    part, parts = _pair(text)
    if part > parts:
        raise ValueError(text)
    return part, parts


def _pair(text: str) -> tuple[int, int]:
    first, second = (int(n) for n in text.split("/"))
    if first < 1 or second < 1:
        raise ValueError(text)
    return first, second


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
