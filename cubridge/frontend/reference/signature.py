"""The parameters of a reference: where each is written, and whether the extra inputs fill those that need it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from inspect import Parameter
from typing import Final

from torch import Tensor

from cubridge.frontend.reference.load import POSITIONAL, Reference
from cubridge.frontend.reference.refusal import fail
from cubridge.ir.nodes import SIZES
from cubridge.ir.source import Span

_INPUTS: Final = ("q", "k", "v")
_NUMBERS: Final = frozenset((*SIZES, "G"))
"""Names of sizes in formulas; a number by one of them would stand for the size. `G` is Hq // Hk."""


def check_arguments(reference: Reference, extra: Mapping[str, object]) -> None:
    """May the reference be called with q, k, v and these? Errors: CU473, at the parameter."""
    parameters = reference.signature().parameters
    positional = [p for p in parameters.values() if p.kind in POSITIONAL]
    for name in extra:
        if name in _INPUTS or name in (p.name for p in positional[:3]):
            fail("CU473", f"`extra_inputs` gives `{name}`, which is q, k or v", reference.builder_span)
        if name in _NUMBERS and not isinstance(extra[name], Tensor):
            message = f"the number `{name}` has the name of a size"
            fail(
                "CU473",
                message,
                parameter_span(reference, name),
                "rename it, or read the size from the shapes of q, k, v",
            )
    for parameter in (*positional[3:], *(p for p in parameters.values() if p.kind is Parameter.KEYWORD_ONLY)):
        if parameter.name not in extra and parameter.default is Parameter.empty:
            _missing(reference, parameter.name)
        if parameter.name in extra and parameter.kind is Parameter.POSITIONAL_ONLY:
            message = f"`{parameter.name}` takes no name, by which extra inputs are given"
            fail("CU473", message, parameter_span(reference, parameter.name), "drop the `/`")


def _missing(reference: Reference, name: str) -> None:
    gives = "nothing gives" if reference.extra_inputs is None else "`extra_inputs` does not give"
    fail(
        "CU473",
        f"{gives} the argument `{name}`",
        parameter_span(reference, name),
        f"let `extra_inputs(shape, device)` return a dict with `{name}`, or give it a default",
    )


def parameter_span(reference: Reference, name: str) -> Span:
    """Where the parameter is written; the function where its text cannot be told."""
    file, line = reference.file, reference.span.location[0]
    for node in ast.walk(ast.parse(file.data)) if file.data else ():
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        if min(n.lineno for n in (node, *decorators)) != line:
            continue
        arguments = node.args
        for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if a.arg == name:
                start = file.line_starts[a.lineno - 1] + a.col_offset
                return Span(file, start, start + len(name.encode()))
    return reference.span
