"""The command line of `cuirc`, as one table of subcommands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cubridge import __version__
from cubridge.cli import commands, opt
from cubridge.cli.files import write_output

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

Add = Callable[[argparse.ArgumentParser], None]


class _Parser(argparse.ArgumentParser):
    """Usage errors in the form of all diagnostics, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error[CU111]: {message}\nhelp: {self.prog} --help\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """As any output where it goes to stdout: argparse itself says nothing when that cannot be written."""
        if file is sys.stdout:
            write_output(message, None)
        else:
            super()._print_message(message, file)


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="cuirc", description="Adapt CUDA attention kernels to PyTorch references, with proof.")
    parser.add_argument("--version", action="version", version=f"cuirc {__version__}")
    subcommands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (run, add_arguments) in _COMMANDS.items():
        sub = subcommands.add_parser(name, help=_first_line(run), description=run.__doc__)
        sub.add_argument(
            "--diagnostics", choices=("text", "json"), default="text", help="form of diagnostics on stderr"
        )
        add_arguments(sub)
        sub.set_defaults(run=run)
    return parser


def _first_line(run: Callable[..., int]) -> str:
    return (run.__doc__ or "").splitlines()[0]


def _reference(parser: argparse.ArgumentParser, use: str = "") -> None:
    """`use`: what else the shape decides."""
    parser.add_argument("reference", type=_path, metavar="REF.py", help="file with the PyTorch function")
    parser.add_argument("--function", metavar="NAME", help="the function (default: `attention`, or the only one)")
    parser.add_argument(
        "--shape", type=_shape, metavar="B,Hq,Hk,Lq,Lk,D", help=f"example sizes (default: {_EXAMPLE}){use}"
    )


_EXAMPLE = "2,15,5,257,321,64"
"""`DEFAULT_SHAPE`, whose module is not imported for a help text; a test compares them."""


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")  # `Path` reads it as the current folder
    return Path(text)


def _shape(text: str) -> object:
    from cubridge.ir.spec import Shape

    parts = text.split(",")
    if len(parts) != 6 or not all(p.strip().isdecimal() for p in parts):
        raise argparse.ArgumentTypeError(f"`{text}` is not six sizes B,Hq,Hk,Lq,Lk,D")
    shape = Shape(*(int(p) for p in parts))
    if 0 in shape.sizes().values():
        raise argparse.ArgumentTypeError(f"`{text}` has a size of 0")
    if shape.Hq % shape.Hk:
        raise argparse.ArgumentTypeError(
            f"`{text}` has {shape.Hq} query heads, which {shape.Hk} key heads do not divide"
        )
    return shape


def _instance(parser: argparse.ArgumentParser) -> None:
    _dtype(parser)
    parser.add_argument(
        "--head-dim", type=int, default=128, metavar="D",
        help="head dim of the kernel's form (default: 128; adapt takes D of --shape, 64 if none is given)",
    )  # fmt: skip


def _instance_of_ir(parser: argparse.ArgumentParser) -> None:
    """The form that CuIR says, unless another is asked for."""
    default = "default: that of the CuIR beside it, else"
    parser.add_argument("--dtype", choices=("bf16", "fp16"), help=f"element type of a kernel text ({default} bf16)")
    parser.add_argument("--head-dim", type=int, metavar="D", help=f"head dim of a kernel text ({default} 128)")


def _dtype(parser: argparse.ArgumentParser) -> None:
    help_ = "element type of q, k, v (default: bf16)"
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16", help=help_)


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=_path, metavar="FILE", help="write here instead of stdout, only on success"
    )


def _pipeline(parser: argparse.ArgumentParser, instead: str = "") -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-p", "--pipeline", metavar="PIPELINE", help=f"`pass{{option=..}},pass`{instead}")
    group.add_argument("--pipeline-file", type=_path, metavar="FILE.toml", help="the same as TOML")
    _load(parser)


def _load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load", type=_path, metavar="FILE.py", help="run this file of your own first, which registers passes"
    )


_KERNEL = "sm80|sm90a|FILE.cu|FILE.cuir"


def _adapt(parser: argparse.ArgumentParser) -> None:
    _reference(parser, "; D is the head dim of the form that is changed; lift and lower take 128, verify every one")
    parser.add_argument(
        "--kernel", default="sm80", metavar="sm80|sm90a|PATH.cu", help="the expert kernel to change (default: sm80)"
    )
    _dtype(parser)
    _pipeline(parser, ", instead of the proposed passes")
    parser.add_argument(
        "--grad", action="store_true", help="and the kernels of its backward pass (sm90a), checked as well"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of the summary")
    parser.add_argument("-o", "--output", type=_path, required=True, metavar="DIR", help="folder for the results")
    _model(parser)


def _model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models", "docs/models.md says what a model may do, and how it is judged")
    group.add_argument(
        "--proposer", default="rules", metavar="WHO",
        help="rules, anthropic:MODEL, openai:MODEL, command:CMD, replay:DIR, or FILE.toml (default: rules)",
    )  # fmt: skip
    group.add_argument(
        "--lowering",
        choices=("rules", "model", "rules-then-model"),
        help="who writes the patched text (default: rules)",
    )
    group.add_argument("--allow-model-cuda", action="store_true", help="compile and run CUDA text that a model wrote")
    group.add_argument(
        "--accept",
        action="append",
        default=[],
        choices=("tested", "runs"),
        help="take of a model what is tested and not proved, or what runs alone judge",
    )
    group.add_argument("--max-rounds", type=_positive, metavar="N", help="answers to ask for, in each stage")
    group.add_argument("--max-tokens", type=_positive, metavar="N", help="tokens to spend, in each stage")
    group.add_argument("--max-usd", type=float, metavar="X", help="US dollars to spend, in each stage")
    group.add_argument("--model-timeout", type=float, metavar="S", help="seconds to wait for an answer")
    group.add_argument(
        "--record", type=_path, metavar="DIR", help="keep answers here (default: replies in the output folder)"
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 1")
    return int(text)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", type=_path, metavar="SUITE.toml", help="methods, variants, lengths and samples")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of the table")
    parser.add_argument("-o", "--output", type=_path, required=True, metavar="DIR", help="folder for state and results")
    spread = parser.add_mutually_exclusive_group()
    spread.add_argument(
        "--jobs", type=_positive, default=1, metavar="N", help="trials at a time, in processes of their own"
    )
    spread.add_argument(
        "--ray", metavar="ADDRESS", help="trials over the machines of a Ray cluster: auto, local, or as Ray names it"
    )


def _transcript(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show",), help="print it as a page")
    parser.add_argument("file", type=_path, metavar="FILE.jsonl", help="transcript of a conversation with a model")


def _lift(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE.cu", help="kernel text with its launch contract beside it")
    parser.add_argument(
        "--contract", type=_path, metavar="FILE.toml", help="of a text in another dialect, which is read from its runs"
    )
    _instance(parser)
    _output(parser)
    _model(parser)


def _contract(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", type=_path, metavar="FILE.cu", help="kernel text in another dialect")
    _output(parser)


def _adopt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", type=_path, metavar="FILE.cu", help="kernel text in another dialect")
    parser.add_argument("--contract", type=_path, metavar="FILE.toml", required=True, help="its contract")
    parser.add_argument("--reference", type=_path, metavar="REF.py", help="what the copy should compute instead")
    parser.add_argument("--function", metavar="NAME", help="the function of REF.py")
    parser.add_argument("-o", "--output", type=_path, required=True, metavar="DIR", help="folder for the results")


def _explain(parser: argparse.ArgumentParser) -> None:
    _reference(parser)
    parser.add_argument(
        "--grad", action="store_true", help="and its gradient: what is saved and what backward kernels compute"
    )
    parser.add_argument("--mask", action="store_true", help="and its mask as a picture, a sign a tile")
    parser.add_argument(
        "--tile", type=_tile, metavar="ROWS,KEYS", help="of a sign of the picture (default: what a line holds)"
    )


def _tile(text: str) -> tuple[int, ...]:
    numbers = _numbers(text)
    if len(numbers) != 2 or 0 in numbers:
        raise argparse.ArgumentTypeError(f"`{text}` is not ROWS,KEYS")
    return numbers


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(p.strip().isdecimal() for p in parts):
        raise argparse.ArgumentTypeError(f"`{text}` is not whole numbers with commas between them")
    return tuple(int(p) for p in parts)


def _counts(text: str) -> tuple[int, ...]:
    numbers = _numbers(text)
    if len(numbers) > _MOST_WORK or max(numbers) > _MOST_KEYS:
        raise argparse.ArgumentTypeError(f"`{text}`: at most {_MOST_WORK} work tiles of at most {_MOST_KEYS} key tiles")
    return numbers


_MOST_WORK, _MOST_KEYS = 8, 32


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=_path, metavar="DIR", help="output folder of `cuirc adapt`")
    parser.add_argument("-o", "--output", type=_path, metavar="FILE.html", help="default: report.html in the folder")


def _graph(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar=_KERNEL, help="`-` reads CuIR from stdin")
    _instance(parser)
    parser.add_argument("--format", choices=("dot", "svg"), help="default: by the name of the output, else dot")
    help_ = "key tiles of each work tile of the block that is looked at (default: 4,3)"
    parser.add_argument("--counts", type=_counts, default=(4, 3), metavar="N,..", help=help_)
    _output(parser)


def _verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar=_KERNEL)
    parser.add_argument("--reference", type=_path, metavar="REF.py", help="what it should compute (default: see above)")
    parser.add_argument("--function", metavar="NAME", help="the function of REF.py")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), help="forms of a kernel text of this element type alone")
    parser.add_argument("--head-dim", type=int, metavar="D", help="forms of a kernel text of this head dim alone")


def _opt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar=_KERNEL, help="`-` reads CuIR from stdin")
    _instance(parser)
    _pipeline(parser)
    for when in ("before", "after"):
        name = f"--print-ir-{when}"
        help_ = f"print the kernel {when} these passes, on stderr; {when} each one if none is named"
        parser.add_argument(name, nargs="?", const="", metavar="PASS,..", help=help_)
        parser.add_argument(f"{name}-all", action="store_const", const="", dest=f"print_ir_{when}", help=f"{when} each")
    parser.add_argument("--print-ir-after-change", action="store_true", help="after each pass that changed it")
    parser.add_argument("--print-ir-diff", action="store_true", help="print what each pass changed")
    parser.add_argument("--print-pipeline", action="store_true", help="print the pipeline as text, on stderr")
    verifying = parser.add_mutually_exclusive_group()
    verifying.add_argument("--verify-each", action="store_true", help="verify before and after each pass (the default)")
    verifying.add_argument("--no-verify", action="store_true", help="do not")
    parser.add_argument("--timing", action="store_true", help="print what each pass took, on stderr")
    help_ = "where a pass fails, write the kernel before it and the passes from there as a text that `cuirc opt` runs"
    parser.add_argument("--reproducer", type=_path, metavar="FILE", help=help_)
    parser.add_argument("--list-passes", action="store_true", help="list the passes and end")
    parser.add_argument("--help-pass", metavar="NAME", help="print what a pass does, and its options, and end")
    _output(parser)


def _transfer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar=_KERNEL, help="source kernel; `-` reads CuIR from stdin")
    _reference(parser)
    _instance(parser)
    parser.add_argument(
        "--print-pipeline", action="store_true", help="print the proposed pipeline instead of the kernel"
    )
    _output(parser)
    _model(parser)


def _lower(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="SOURCE.cu", help="kernel text with its launch contract beside it")
    parser.add_argument("target", metavar="TARGET.cuir", help="`-` reads stdin")
    parser.add_argument(
        "--emit", choices=("patch", "cu"), default="patch", help="a unified diff, or the whole patched text"
    )
    _instance_of_ir(parser)
    _output(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("left", metavar="A", help=f"{_KERNEL}")
    parser.add_argument("right", metavar="B", help="likewise")
    _instance_of_ir(parser)


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar=_KERNEL, help="`-` reads CuIR from stdin")
    _reference(parser)
    _instance(parser)


def _check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=_path, metavar="DIR", help="output folder of `cuirc adapt`")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of the summary")
    _load(parser)


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=_path, metavar="DIR", help="output folder of `cuirc adapt`")
    parser.add_argument("--peers", default="eager,sdpa,flex", metavar="LIST", help="what to time beside it")
    parser.add_argument(
        "--shape",
        type=_shape,
        metavar="B,Hq,Hk,Lq,Lk,D",
        help="sizes to time at (default: 2,32,32,8192,8192 and the adapted head dim, where it fits)",
    )
    _load(parser)


def _faults(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE.cu", help="kernel text with its launch contract beside it")
    parser.add_argument("--json", action="store_true", help="print every fault as JSON instead of the table")
    parser.add_argument("--every", type=_positive, default=1, metavar="N", help="judge every N-th fault alone")
    _instance(parser)


def _doctor(_: argparse.ArgumentParser) -> None:
    pass


_COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], Add]] = {
    "adapt": (commands.adapt, _adapt),
    "lift": (commands.lift, _lift),
    "contract": (commands.contract, _contract),
    "adopt": (commands.adopt, _adopt),
    "explain": (commands.explain, _explain),
    "verify": (commands.verify, _verify),
    "opt": (opt.opt, _opt),
    "transfer": (commands.transfer, _transfer),
    "lower": (commands.lower, _lower),
    "diff": (commands.diff, _diff),
    "run": (commands.run, _run),
    "check": (commands.check, _check),
    "bench": (commands.bench, _bench),
    "show": (commands.show_folder, _show),
    "graph": (commands.graph, _graph),
    "faults": (commands.faults, _faults),
    "doctor": (commands.doctor, _doctor),
    "evaluate": (commands.evaluate, _evaluate),
    "transcript": (commands.transcript, _transcript),
}
