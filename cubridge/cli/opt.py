"""`cuirc opt`: a pipeline over one kernel, and what can be seen of its run."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from cubridge.cli.commands import given_pipeline, load_passes, read_kernel, say
from cubridge.cli.files import progress, read_source, show, write_output
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text

if TYPE_CHECKING:
    from cubridge.driver.watches import Dumps
    from cubridge.ir.nodes import Kernel
    from cubridge.passes.pipeline import Pipeline
    from cubridge.passes.runner import PassFault


def opt(options: Namespace) -> int:
    """Run a pass pipeline over a CuIR kernel.

    The text of `--reproducer` names its pipeline in its first line, and needs no other."""
    if options.list_passes or options.help_pass is not None:
        return _pages(options)
    from cubridge.driver.watches import Timing
    from cubridge.judge.well_formed import verify_statically
    from cubridge.passes.base import PassContext
    from cubridge.passes.runner import PassFault, run_pipeline

    kernel, pipeline = _read(options)
    if options.print_pipeline:
        progress(pipeline.to_text())
    timing = Timing()
    verify = None if options.no_verify else timing.timed(verify_statically)
    try:
        kernel = run_pipeline(kernel, pipeline, PassContext(say(options)), verify, (_dumps(options), timing))
    except PassFault as fault:
        if options.reproducer is not None:
            _write_reproducer(fault, pipeline, options)
        raise
    if options.timing:
        progress(timing.table())
    write_output(to_text(kernel), options.output)
    return 0


def _read(options: Namespace) -> tuple[Kernel, Pipeline]:
    """The kernel, and the pipeline that is given or that the text names. Errors: CU111 where one is missing."""
    from cubridge.driver.kernels import is_kernel_text
    from cubridge.driver.reproducer import pipeline_of
    from cubridge.passes.own import all_passes
    from cubridge.passes.pipeline import parse_text

    if options.file is None:
        raise _usage("a kernel is missing", "give `sm80`, `sm90a`, a file, or `-` for stdin")
    pipeline = given_pipeline(options)
    if is_kernel_text(options.file):
        kernel, named = read_kernel(options.file, options), None
    else:
        file = read_source(options.file)
        kernel, named = parse(file), pipeline_of(file)
    if pipeline is None and named is not None:
        pipeline = parse_text(named, all_passes())
    if pipeline is None:
        raise _usage("a pipeline is missing", "give -p PIPELINE or --pipeline-file FILE.toml")
    return kernel, pipeline


def _usage(message: str, help: str) -> CuError:
    return CuError(Diagnostic("CU111", message, help=help), exit_code=2)


def _dumps(options: Namespace) -> Dumps:
    from cubridge.driver.watches import NONE, Chosen, Dumps

    def chosen(text: str | None) -> Chosen:
        return NONE if text is None else Chosen(frozenset(n.strip() for n in text.split(",") if n.strip()))

    return Dumps(
        progress, chosen(options.print_ir_before), chosen(options.print_ir_after),
        options.print_ir_after_change, options.print_ir_diff,
    )  # fmt: skip


def _write_reproducer(fault: PassFault, pipeline: Pipeline, options: Namespace) -> None:
    from cubridge.driver.reproducer import reproducer

    write_output(reproducer(fault, pipeline), options.reproducer)
    say(options)(f"{options.reproducer}: the kernel before the pass that failed, and the passes from there")


def _pages(options: Namespace) -> int:
    """The list of passes, or the help of one."""
    from cubridge.driver.pass_pages import help_of, listed
    from cubridge.ir.source import SourceFile
    from cubridge.passes.options import Text
    from cubridge.passes.own import all_passes
    from cubridge.passes.pipeline import pass_class

    load_passes(options)
    if options.list_passes:
        show(listed(all_passes()))
    else:
        name = Text(options.help_pass, SourceFile.from_text("--help-pass", options.help_pass), 0)
        show(help_of(pass_class(name, all_passes())))
    return 0
