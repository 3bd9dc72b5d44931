"""Runs a pipeline: verified first and after each pass; a fault names the pass and keeps the kernel before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from traceback import extract_tb

from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.families import take_forward
from cubridge.ir.nodes import Kernel
from cubridge.passes.base import Pass, PassContext, fault
from cubridge.passes.pipeline import Pipeline
from cubridge.passes.registry import PASSES

Verify = Callable[[Kernel], None]
"""Raises `CuError` for a kernel that is not valid."""


class Watch:
    """Is told what a pipeline does. Its methods do nothing: each watch overrides those that it needs."""

    def before(self, step: Pass, kernel: Kernel) -> None:
        """`step` runs next, over `kernel`."""

    def after(self, step: Pass, before: Kernel, kernel: Kernel) -> None:
        """`step` has made `kernel`, which is verified, of `before`: the same object where nothing applied."""


class PassFault(CuError):
    """A pass that failed, or left an invalid kernel. `kernel` is the one before it, `pass_name` None for the input; `at` the
    number of the pass in the pipeline, from 0."""

    def __init__(self, error: CuError, pass_name: str | None, kernel: Kernel, at: int = 0) -> None:
        super().__init__(*(_named(d, pass_name) for d in error.diagnostics), exit_code=error.exit_code)
        self.pass_name = pass_name
        self.kernel = kernel
        self.at = at


def run_pipeline(
    kernel: Kernel,
    pipeline: Pipeline,
    ctx: PassContext | None = None,
    verify: Verify | None = None,
    watches: Sequence[Watch] = (),
) -> Kernel:
    """The kernel after all passes. Errors: CU509 for a backward kernel; PassFault."""
    take_forward(kernel.family, kernel.span)
    ctx = ctx or PassContext()
    _check(kernel, None, kernel, verify)
    for at, step in enumerate(pipeline.passes):
        before = kernel
        for watch in watches:
            watch.before(step, before)
        try:
            kernel = _run(step, before, ctx)
        except CuError as error:
            raise PassFault(error, step.name, before, at) from error
        if kernel is not before:
            _check(kernel, step.name, before, verify, at)
        for watch in watches:
            watch.after(step, before, kernel)
    return kernel


def _run(step: Pass, kernel: Kernel, ctx: PassContext) -> Kernel:
    """Errors: those of the pass; CU517 for another exception of a pass that is not built in, or another result."""
    try:
        made = step.run(kernel, ctx)
    except CuError:
        raise
    except Exception as error:
        if step.name in PASSES:
            raise
        raise fault("CU517", f"`{step.name}` fails: {type(error).__name__}: {error}", help=_line_of(error)) from error
    if not isinstance(made, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise fault("CU517", f"`{step.name}` gives {made!r}, which is no kernel")
    return made


def _line_of(error: Exception) -> str:
    last = extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}: {last.line}"


def _check(kernel: Kernel, pass_name: str | None, before: Kernel, verify: Verify | None, at: int = 0) -> None:
    if verify is None:
        return
    try:
        verify(kernel)
    except CuError as error:
        raise PassFault(error, pass_name, before, at) from error


def _named(diagnostic: Diagnostic, pass_name: str | None) -> Diagnostic:
    where = "in the kernel that the pipeline was given" if pass_name is None else f"in pass `{pass_name}`"
    return replace(diagnostic, notes=(*diagnostic.notes, Note(where)))
