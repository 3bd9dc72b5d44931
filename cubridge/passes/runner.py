"""Runs a pipeline: verified first and after each pass; a fault names the pass and keeps the kernel before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.nodes import Kernel
from cubridge.passes.base import PassContext
from cubridge.passes.pipeline import Pipeline

Verify = Callable[[Kernel], None]
"""Raises `CuError` for a kernel that is not valid."""
After = Callable[[str, Kernel], None]
"""Takes the name of a pass and the kernel after it."""


class PassFault(CuError):
    """A pass that failed, or left an invalid kernel. `kernel` is the one before it, `pass_name` None for the input."""

    def __init__(self, error: CuError, pass_name: str | None, kernel: Kernel) -> None:
        super().__init__(*(_named(d, pass_name) for d in error.diagnostics), exit_code=error.exit_code)
        self.pass_name = pass_name
        self.kernel = kernel


def run_pipeline(
    kernel: Kernel,
    pipeline: Pipeline,
    ctx: PassContext | None = None,
    verify: Verify | None = None,
    after: After | None = None,
) -> Kernel:
    """The kernel after all passes. Errors: PassFault."""
    ctx = ctx or PassContext()
    _check(kernel, None, kernel, verify)
    for step in pipeline.passes:
        before = kernel
        try:
            kernel = step.run(before, ctx)
        except CuError as error:
            raise PassFault(error, step.name, before) from error
        if kernel is not before:
            _check(kernel, step.name, before, verify)
        if after is not None:
            after(step.name, kernel)
    return kernel


def _check(kernel: Kernel, pass_name: str | None, before: Kernel, verify: Verify | None) -> None:
    if verify is None:
        return
    try:
        verify(kernel)
    except CuError as error:
        raise PassFault(error, pass_name, before) from error


def _named(diagnostic: Diagnostic, pass_name: str | None) -> Diagnostic:
    where = "in the kernel that the pipeline was given" if pass_name is None else f"in pass `{pass_name}`"
    return replace(diagnostic, notes=(*diagnostic.notes, Note(where)))
