"""What a GPU says: `python bench/gpu.py COMMAND [options]`, from the repository's root. Commands:

smoke    the kernels as they are, full attention, against fp64 (needs no adaptation)
build    adapt every variant for both kernels and make the problems of the checks; needs no GPU
check    every variant on both kernels against the fp64 oracle, at many lengths, types, head dims and kinds of input
mutants  wrong kernels of every variant, each of which the check must reject
draws    references put together at random, adapted and judged on the GPU (--count)
host     what one call costs on the host; without a GPU, all but the launch itself
lists    lists of key tiles of masks that read data: against torch's, and what they take of a call; documents in one long row
backward the backward pass of every variant: gradients, wrong passes, times beside SDPA's and FlexAttention's, lists of query tiles
time     every variant on both kernels beside its peers, interleaved
lengths  full and causal attention over lengths, head layouts and head dims; goes on with what --out holds of it
all      build, check, mutants, time

`build` writes the folder --built, which the other commands read; they build what is missing in it. Prints tables and, with
--out DIR, writes them as JSON too. Peers are eager PyTorch, SDPA, FlexAttention (by Triton, and by FlashAttention-4), and
FlashAttention-3 and -4 where their packages can be imported; the results of each are compared with ours. Exit codes: 0 all
right, 3 numbers differ or a mutant passes, 5 no GPU."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

PEERS = ("eager", "sdpa", "flex")
LIBRARIES = ("sdpa", "fa3", "fa4")

if TYPE_CHECKING:
    from bench.build import Built, Task
    from bench.speed import Measure
    from cubridge.ir.spec import Shape


def main(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    from cubridge.ir.diagnostics import CuError

    try:
        return max(command(arguments) for command in COMMANDS[arguments.command])
    except CuError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def smoke(_: argparse.Namespace) -> int:
    from bench.smoke import smoke as run

    return 3 if run() else 0


def build(arguments: argparse.Namespace) -> int:
    from bench.build import tasks

    return _build(arguments, tasks(arguments.variants, arguments.shape, check=not arguments.no_check))


def _build(arguments: argparse.Namespace, wanted: Sequence[Task]) -> int:
    from bench.build import build as run

    started = time.perf_counter()
    built = run(wanted, arguments.arch, arguments.built, arguments.workers)
    faults = [fault for item in built for fault in item.faults]
    slowest = max(built, key=lambda b: b.seconds)
    print(
        f"build: {len(built)} adaptations, {len(faults)} failed, {time.perf_counter() - started:.0f} s; "
        f"slowest {slowest.task} {slowest.seconds:.0f} s",
        flush=True,
    )
    for fault in faults:
        print("failed:", fault)
    return 3 if faults else 0


def check(arguments: argparse.Namespace) -> int:
    from bench.correctness import check as run
    from bench.correctness import failures, outcome_table

    outcomes = run(_built(arguments, long=False), _gpu())
    _report(arguments, "check", outcome_table(outcomes), [asdict(o) | {"accepted": o.accepted} for o in outcomes])
    failed = failures(outcomes)
    print("\n".join(failed[:40]), flush=True)
    return 3 if failed or not outcomes else 0


def mutants(arguments: argparse.Namespace) -> int:
    from bench.correctness import check_mutants, mutant_table, mutants_hold

    found = check_mutants(_built(arguments, long=False), _gpu())
    _report(arguments, "mutants", mutant_table(found), [asdict(m) for m in found])
    return 0 if mutants_hold(found) else 3


def draws(arguments: argparse.Namespace) -> int:
    from bench.correctness import check as run
    from bench.correctness import failures
    from bench.draws_gpu import build_draws, load_draws, refusal_table

    drawn = build_draws(arguments.count, arguments.arch, arguments.built / "draws", arguments.workers)
    outcomes = run(load_draws(arguments.built / "draws", drawn), _gpu())
    worst = max((max(o.worst, o.lse or 0.0) for o in outcomes), default=0.0)
    table = f"{refusal_table(drawn)}\n{len(outcomes)} launches judged, worst error {worst:.3f} of its bound"
    _report(arguments, "draws", table, [asdict(d) for d in drawn])
    failed = [d.fault for d in drawn if d.fault] + failures(outcomes)
    print("\n".join(failed[:40]), flush=True)
    return 3 if failed or not outcomes else 0


def timings(arguments: argparse.Namespace) -> int:
    from bench.row import faults_of
    from bench.speed import all_ran, speed_table, time_all

    rows = time_all(_built(arguments, long=True), _gpu(), _measure(arguments, PEERS))
    _report(arguments, "time", speed_table(rows), [asdict(r) for r in rows])
    print("\n".join(faults_of(rows)), flush=True)
    return 0 if rows and all_ran(rows) else 3


def lengths(arguments: argparse.Namespace) -> int:
    from bench.cells import in_seconds, measure_cells
    from bench.kept import Kept, setup_here
    from bench.lengths import cells, lengths_table, shapes
    from bench.row import faults_of
    from bench.speed import all_ran

    measure, out, device = _measure(arguments, LIBRARIES), arguments.out or arguments.built, _gpu()
    wanted = cells(shapes(), arguments.inputs)
    kept = Kept(out / "lengths.jsonl", setup_here(measure.peers, device))
    measure_cells(
        wanted, kept, device, measure, arguments.arch, workers=arguments.workers, in_time=in_seconds(arguments.seconds)
    )
    measured = list(kept.of(wanted))
    rows = [row for _, row in measured]
    _report(arguments, "lengths", lengths_table(measured), [asdict(r) for r in rows])
    print("\n".join([*faults_of(rows), f"{len(kept.left(wanted))} cells left"]), flush=True)
    return 0 if rows and all_ran(rows) else 3


def lists(arguments: argparse.Namespace) -> int:
    from bench.lists import list_rows, list_table
    from bench.packed import packed_rows, packed_table

    rows = list(list_rows(_built(arguments, long=True), _gpu(), arguments.rounds))
    _report(arguments, "lists", list_table(rows), [asdict(r) | {"share": r.share, "tflops": r.tflops} for r in rows])
    packed = list(packed_rows(_built(arguments, long=True), _gpu(), arguments.rounds))
    _report(arguments, "packed", packed_table(packed), [asdict(r) | {"ratio": r.ratio} for r in packed])
    return 0 if rows and all(r.same for r in (*rows, *packed)) else 3


def backward(arguments: argparse.Namespace) -> int:
    from bench.backward import build_backward, check_backward, check_table
    from bench.backward_lists import backward_list_rows, backward_list_table
    from bench.backward_speed import backward_table, build_timed, time_backward
    from bench.row import faults_of

    started, device = time.perf_counter(), _gpu()
    built = build_backward(arguments.variants, arguments.workers, arguments.arch)
    wanted = [(name, shape) for name in arguments.variants for shape in arguments.shape]
    timed = build_timed(wanted, arguments.arch, arguments.workers)
    print(f"built {len(built) + len(timed)} in {time.perf_counter() - started:.0f} s", flush=True)
    outcomes = list(check_backward(built, device))
    _report(arguments, "backward", check_table(outcomes), [asdict(o) for o in outcomes])
    faults = [f"{o.variant} {o.form} {o.mutant or o.problem}: {o.fault}" for o in outcomes if o.fault]
    print("\n".join([*faults, f"checked after {time.perf_counter() - started:.0f} s"]), flush=True)
    rows = time_backward(timed, device, _measure(arguments, PEERS[1:]))
    _report(arguments, "backward-time", backward_table(rows), [asdict(r) for r in rows])
    print("\n".join(faults_of(rows)), flush=True)
    lists = list(backward_list_rows(timed, device, arguments.rounds))
    _report(arguments, "backward-lists", backward_list_table(lists), [asdict(r) | {"share": r.share} for r in lists])
    right = bool(outcomes) and not any(o.fault for o in outcomes) and all(r.same for r in lists)
    return 0 if right else 3


def host(arguments: argparse.Namespace) -> int:
    import torch

    from bench.host import host_table, host_times

    rows = host_times(_gpu() if torch.cuda.is_available() else None)
    _report(arguments, "host", host_table(rows), [asdict(r) for r in rows])
    return 0 if all(r.median <= r.goal for r in rows) else 3


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], ...]] = {
    "smoke": (smoke,),
    "build": (build,),
    "check": (check,),
    "mutants": (mutants,),
    "draws": (draws,),
    "host": (host,),
    "lists": (lists,),
    "backward": (backward,),
    "time": (timings,),
    "lengths": (lengths,),
    "all": (build, check, mutants, timings),
}


def _parser() -> argparse.ArgumentParser:
    from bench.build import DEFAULT_BUILT
    from bench.candidates import PEERS as CANDIDATES
    from bench.inputs import DISTRIBUTIONS
    from bench.variants import VARIANTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--built", type=Path, default=DEFAULT_BUILT, help="folder between build and the other commands")
    parser.add_argument("--arch", default="sm_90a", help="what `build` compiles for")
    parser.add_argument("--workers", type=int, help="processes of `build`")
    parser.add_argument("--no-check", action="store_true", help="`build` only what `time` needs")
    parser.add_argument(
        "--shape",
        nargs="+",
        type=_shape,
        default=[_shape("2,32,32,8192,8192,128")],
        metavar="B,Hq,Hk,Lq,Lk,D",
        help="timed sizes",
    )
    parser.add_argument("--peers", nargs="*", choices=CANDIDATES, help="beside what `time`, `backward`, `lengths` time")
    parser.add_argument(
        "--inputs", nargs="+", choices=DISTRIBUTIONS, default=["normal"], help="what is timed; `time`: the first"
    )
    parser.add_argument("--seconds", type=float, help="`lengths` begins no cell after so many")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each candidate")
    parser.add_argument("--count", type=int, default=200, help="references that `draws` puts together")
    parser.add_argument("--out", type=Path, help="folder for results as JSON")
    return parser


def _shape(text: str) -> Shape:
    from cubridge.ir.spec import Shape

    return Shape(*(int(n) for n in text.split(",")))


def _measure(arguments: argparse.Namespace, default: Sequence[str]) -> Measure:
    from bench.candidates import importable
    from bench.speed import Measure

    peers = importable(default if arguments.peers is None else arguments.peers, print)
    return Measure(peers, arguments.rounds, arguments.inputs[0])


def _built(arguments: argparse.Namespace, long: bool) -> Iterator[Built]:
    from bench.build import file_of, load, tasks

    wanted = tasks(arguments.variants, arguments.shape if long else (), check=not long)
    if missing := [task for task in wanted if not file_of(arguments.built, task).exists()]:
        _build(arguments, missing)
    return load(arguments.built, wanted)


def _gpu():
    from cubridge.backend.gpu.device import find_gpu

    return find_gpu()


def _report(arguments: argparse.Namespace, name: str, table: str, data: object) -> None:
    from bench.table import write_json

    print(f"\n{name}\n\n{table}\n", flush=True)
    write_json(arguments.out / f"{name}.json" if arguments.out else None, data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
