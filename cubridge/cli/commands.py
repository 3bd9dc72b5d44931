"""What each subcommand does: read, call the library, print. Options come from `arguments`; results are exit codes.

Modules of the library are imported when a command needs them: importing torch takes longer than most commands run."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge.cli.bar import progress_bar
from cubridge.cli.files import output_folder, progress, read_source, show, write_output
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text

if TYPE_CHECKING:
    from cubridge.driver.model.use import ModelUse
    from cubridge.ir.nodes import Kernel
    from cubridge.passes.pipeline import Pipeline

DIFFERS = 3
"""Exit code where numbers, or kernels, differ."""


def adapt(options: Namespace) -> int:
    """Change an expert kernel so that it computes a reference: all stages and checks.

    Writes kernel.cu, kernel.patch, source.cuir, target.cuir, pipeline.toml, report.json, report.md, view.json (what `cuirc show`
    makes a page of) and timings.json, all or none; with --grad the kernels of the backward pass besides, backward*.cu and
    backward*.cuir, and backward.patch. Where a check rejects a kernel, report.json, report.md, view.json and timings.json alone.
    Where a model takes part, transcript.jsonl and its answers besides, and a run that broke off goes on from these."""
    from cubridge.driver.outputs import FILES

    folder = output_folder(options.output, FILES, ["transcript.jsonl"])
    from cubridge.driver.adapt import adapt as run_adapt
    from cubridge.driver.report import summary

    with progress_bar(options) as bar:
        adaptation = run_adapt(
            options.reference, function=options.function, kernel=options.kernel, shape=options.shape, dtype=options.dtype,
            pipeline=given_pipeline(options), model=_model(options, folder), grad=options.grad, progress=bar,
        )  # fmt: skip
    adaptation.write(folder)
    show(json.dumps(adaptation.report.to_json(), indent=1) if options.json else summary(adaptation.report))
    return 0 if adaptation.report.accepted else DIFFERS


def lift(options: Namespace) -> int:
    """Read a CUDA kernel and print its CuIR, verified.

    A model may read what the rules cannot; what is accepted lies beside the kernel from then on. With --contract it is run at
    several shapes, and read from what it does; what no run showed is said on stderr."""
    if options.contract is not None:
        return _lift_from_runs(options)
    from cubridge.driver.lift_source import lift_source

    lifted = lift_source(options.kernel, options.dtype, options.head_dim, _model(options, options.record))
    write_output(to_text(lifted.kernel), options.output)
    return 0


def _lift_from_runs(options: Namespace) -> int:
    from cubridge.driver.foreign.lift import lift_foreign
    from cubridge.driver.sandbox.process import LARGE_HEADERS, Sandbox

    with Sandbox(LARGE_HEADERS) as child:
        lifted = child.run(lift_foreign, Path(options.kernel), options.contract)
    for remark in lifted.remarks:
        say(options)(f"{remark.span}: {remark.message}")
    write_output(to_text(lifted.kernel), options.output)
    return 0


def contract(options: Namespace) -> int:
    """Write a first contract for a kernel text in another dialect: what is found in it, and blanks to fill.

    `cuirc lift FILE.cu --contract FILE.toml` then reads the kernel from its runs."""
    from cubridge.driver.foreign.first_contract import first_contract

    write_output(first_contract(read_source(str(options.kernel))), options.output)
    return 0


def adopt(options: Namespace) -> int:
    """Make a copy of a kernel in another dialect whose mask and key range are hooks in a header.

    Without a reference the copy gives the same bits; with one, its header says the mask of the reference, and the copy is lifted
    again and judged against it. Writes the copy, cubridge_hooks.cuh, a patch, the CuIR of the copy and its contract."""
    from cubridge.driver.foreign.adopt import adopt as run_adopt
    from cubridge.driver.foreign.adopt import file_names
    from cubridge.driver.sandbox.process import LARGE_HEADERS, Sandbox

    folder = output_folder(options.output, file_names(options.kernel))
    with Sandbox(LARGE_HEADERS) as child:
        adopted = child.run(run_adopt, options.kernel, options.contract, options.reference, options.function)
    adopted.write(folder, options.contract)
    show("\n  ".join((f"{folder}: a copy with hooks, which computes {adopted.computes}", *adopted.unproved)))
    return 0


def explain(options: Namespace) -> int:
    """Say what attention a reference computes, and what is assumed, required and refused."""
    from cubridge.driver.reference import read_reference

    reference = read_reference(options.reference, options.function, options.shape)
    text = reference.explain(options.grad)
    if options.mask or options.tile is not None:
        from cubridge.driver.view.graphs import mask_picture

        text += "\n" + mask_picture(reference, options.shape, options.tile)
    show(text)
    return 0


def show_folder(options: Namespace) -> int:
    """Make a page of what `cuirc adapt` wrote: one HTML file that needs no other and no network.

    It is made of view.json, and of bench.json where `cuirc bench` wrote that; nothing in the folder is run."""
    from cubridge.driver.outputs import PAGE
    from cubridge.driver.view.pages import folder_page

    path = options.output or options.folder / PAGE
    write_output(folder_page(options.folder), path)
    say(options)(str(path))
    return 0


def graph(options: Namespace) -> int:
    """Write the events of a kernel and what waits for what: as DOT, or as SVG where the output's name ends so."""
    from cubridge.driver.view.graphs import graph_text

    output = options.output
    as_svg = options.format == "svg" if options.format else output is not None and output.suffix == ".svg"
    write_output(graph_text(read_kernel(options.file, options), options.counts, as_svg), output)
    return 0


def verify(options: Namespace) -> int:
    """Verify a kernel: static rules, order engine, value engine on small problems, and for CUDA text the emulator.

    A text is looked at in every form that its contract lists, or in those of --dtype and --head-dim. It should compute full
    attention, or REF.py, or, for target.cuir of `cuirc adapt`, what the report beside it names. Ends with 3 where the kernel is
    well-formed and computes something else."""
    from cubridge.driver.folder import claimed_reference
    from cubridge.driver.kernels import is_kernel_text
    from cubridge.driver.reference import read_reference
    from cubridge.driver.verify import WRONG_VALUES, Examined, examine_ir, examine_text, not_proved

    if options.reference is None:
        reference = None if is_kernel_text(options.file) else claimed_reference(Path(options.file))
    else:
        reference = read_reference(options.reference, options.function, None)
    attention = None if reference is None else reference.attention
    if is_kernel_text(options.file):
        found = examine_text(options.file, options.dtype, options.head_dim, attention)
        said = f" in {'the form' if len(found.forms) == 1 else 'any of the forms'}"
    else:
        kernel = parse(read_source(options.file))
        faults = examine_ir(kernel, attention)
        found, said = Examined(faults, unproved=() if faults else not_proved(kernel, attention)), ""
    if found.faults:
        raise CuError(*found.faults, exit_code=DIFFERS if all(f.code in WRONG_VALUES for f in found.faults) else 1)
    lines = [f"{options.file}: no fault found{said}", *map(str, found.forms)]
    show("\n  ".join((*lines, *found.unproved)))
    return 0


def transfer(options: Namespace) -> int:
    """Turn a source kernel in CuIR into one that computes a reference, by rules or by a model."""
    from cubridge.driver.model.stages import ModelStages
    from cubridge.driver.reference import read_reference
    from cubridge.driver.transfer import transfer as run_transfer

    kernel = read_kernel(options.file, options)
    reference = read_reference(options.reference, options.function, options.shape)
    model = _model(options, options.record)
    if model is None:
        transferred = run_transfer(kernel, reference.attention.spec)
    else:
        with ModelStages(model) as stages:
            transferred = stages.transfer_ir(kernel, reference)
    for remark in transferred.remarks:
        say(options)(remark)
    text = transferred.pipeline.to_text() + "\n" if options.print_pipeline else to_text(transferred.kernel)
    write_output(text, options.output)
    return 0


def lower(options: Namespace) -> int:
    """Patch a CUDA kernel so that it says what a CuIR kernel says.

    The CuIR must be well-formed; what it computes, `cuirc verify` says."""
    from cubridge.driver.kernels import choose_forward
    from cubridge.driver.lift import lift_kernel
    from cubridge.driver.lower import lower_kernel
    from cubridge.driver.transfer import check_structure
    from cubridge.judge.well_formed import verify_kernel

    kernel = choose_forward(options.kernel)
    target = parse(read_source(options.target))
    dtype, head_dim = _form(options, target)
    lifted = lift_kernel(kernel, dtype, head_dim)
    check_structure(lifted.kernel, target)
    verify_kernel(target)
    patched = lower_kernel(kernel, lifted, target, dtype, head_dim)
    write_output(patched.patch if options.emit == "patch" else patched.text, options.output)
    return 0


def diff(options: Namespace) -> int:
    """Show where two CuIR kernels differ; prints nothing and ends with 0 where they do not, with 1 where they do."""
    from cubridge.backend.text.diff import render_diff

    text = render_diff(*_two_kernels(options))
    write_output(text, None)
    return 1 if text else 0


def run(options: Namespace) -> int:
    """Run a CuIR kernel on the value engine against a reference."""
    from cubridge.driver.reference import read_reference
    from cubridge.driver.verify import run_against

    kernel = read_kernel(options.file, options)
    results = run_against(kernel, read_reference(options.reference, options.function, options.shape), options.shape)
    for result in results:
        show(f"{result.shape} {result.inputs}: error {result.worst:.3f} of the bound {result.detail}".rstrip())
    return 0 if all(r.accepted for r in results) else DIFFERS


def check(options: Namespace) -> int:
    """Check the results of `cuirc adapt` again, from the files in their folder."""
    from cubridge.driver.folder import recheck
    from cubridge.driver.report import summary

    load_passes(options)
    report = recheck(options.folder)
    show(json.dumps(report.to_json(), indent=1) if options.json else summary(report))
    return 0 if report.accepted else DIFFERS


def bench(options: Namespace) -> int:
    """Time an adapted kernel beside its peers, on a GPU, and keep the times in its folder for `cuirc show`."""
    from cubridge.driver.suites.bench import bench_folder

    load_passes(options)
    with progress_bar(options) as bar:
        measured = bench_folder(options.folder, options.peers.split(","), options.shape, bar)
    show(measured.to_text())
    return 0


def faults(options: Namespace) -> int:
    """Break a kernel in every way that a table of operators knows, and show who catches each fault: rules, engines, emulator."""
    from cubridge.driver.suites.faults import fault_table

    with progress_bar(options) as bar:
        table = fault_table(options.kernel, options.dtype, options.head_dim, bar.say, options.every, bar)
    show(json.dumps(table.to_json(), indent=1) if options.json else table.to_text())
    return DIFFERS if table.missed else 0


def doctor(_: Namespace) -> int:
    """Say which tools, packages and devices are here, and what works without those that are not."""
    from cubridge.driver.doctor import examine_machine

    lines, complete = examine_machine()
    show("\n".join(lines))
    return 0 if complete else 5


def evaluate(options: Namespace) -> int:
    """Run methods, variants, lengths and samples of a suite, and count what is accepted; goes on where it broke off."""
    folder = output_folder(options.output, ["results.json", "table.md"], ["state.jsonl"])
    from cubridge.driver.suites.cluster import Cluster
    from cubridge.driver.suites.evaluate import evaluate as run_suite
    from cubridge.driver.suites.spread import spread_of
    from cubridge.driver.suites.suite import read_suite

    spread = spread_of(options.jobs) if options.ray is None else Cluster(options.ray)
    with progress_bar(options) as bar:
        results = run_suite(read_suite(options.suite), folder, bar, spread)
    write_output(json.dumps(results.to_json(), indent=1) + "\n" if options.json else results.to_text(), None)
    return 0


def transcript(options: Namespace) -> int:
    """Show a conversation with a model as a readable page."""
    from cubridge.llm.transcript import read_transcript, to_page

    write_output(to_page(read_transcript(options.file)), None)
    return 0


def _model(options: Namespace, folder: Path | None) -> ModelUse | None:
    """`folder`: where the transcript goes, and the answers if no other place is given."""
    from cubridge.driver.model.config import ModelConfig, read_config, with_options

    named = options.proposer
    config = read_config(Path(named)) if named.endswith(".toml") else ModelConfig(proposer=named)
    config = with_options(
        config, options.lowering, options.allow_model_cuda, options.accept, options.max_rounds, options.max_tokens, options.max_usd,
        options.model_timeout,
    )  # fmt: skip
    if folder is None:
        return config.use(None, None)
    folder.mkdir(parents=True, exist_ok=True)
    return config.use(folder / "transcript.jsonl", options.record or folder / "replies")


def read_kernel(file: str, options: Namespace) -> Kernel:
    """CuIR from a file, or lifted from a kernel text in the form that the options say."""
    from cubridge.driver.kernels import is_kernel_text

    if not is_kernel_text(file):
        return parse(read_source(file))
    from cubridge.driver.lift_source import lift_source

    return lift_source(file, options.dtype, options.head_dim, None).kernel


def _two_kernels(options: Namespace) -> list[Kernel]:
    """A kernel text beside CuIR is read in the form of that."""
    from cubridge.driver.kernels import is_kernel_text

    files = (options.left, options.right)
    read = {file: parse(read_source(file)) for file in files if not is_kernel_text(file)}
    options.dtype, options.head_dim = _form(options, *read.values())
    return [read[file] if file in read else read_kernel(file, options) for file in files]


def _form(options: Namespace, *kernels: Kernel) -> tuple[str, int]:
    """Element type and head dim: as asked for, else those of the first kernel, else bf16 and 128."""
    from cubridge.ir.tile_shape import dtype_of, head_dim

    first = kernels[0] if kernels else None
    return (
        options.dtype or (dtype_of(first) if first else "bf16"),
        options.head_dim or (head_dim(first) if first else 128),
    )


def say(options: Namespace) -> Callable[[str], None]:
    """Prints what happens on stderr, or nothing where stderr is one JSON text."""
    return progress if options.diagnostics == "text" else _silent


def _silent(_: str) -> None:
    pass


def load_passes(options: Namespace) -> None:
    """Those of the file that `--load` names: the user's own code, which is run."""
    if options.load is not None:
        from cubridge.frontend.reference.load import import_file

        import_file(options.load, "passes")


def given_pipeline(options: Namespace) -> Pipeline | None:
    """Its passes may be of the file that `--load` names."""
    from cubridge.passes.own import all_passes
    from cubridge.passes.pipeline import parse_text, parse_toml

    load_passes(options)
    if options.pipeline_file is not None:
        return parse_toml(read_source(str(options.pipeline_file)), all_passes())
    return None if options.pipeline is None else parse_text(options.pipeline, all_passes())
