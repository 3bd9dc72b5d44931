"""A reference as the user gives it, file or live callable, traced and ready to be checked against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge.frontend.reference.load import Reference, load_reference
from cubridge.frontend.reference.trace import DTYPES, trace
from cubridge.frontend.reference.traced import Traced, says
from cubridge.ir.diagnostics import Diagnostic, Refused
from cubridge.judge.attention import Attention

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.gradient import GradientSpec
    from cubridge.ir.spec import Shape
    from cubridge.judge.attention import Captures, Extra


@dataclass(frozen=True, slots=True)
class TracedReference:
    """`traced`: what the tracer knows; `attention`: the same for the checker. `path`: the file it was read from, if one."""

    traced: Traced
    attention: Attention
    path: str | None

    @property
    def name(self) -> str:
        return self.attention.name

    def explain(self, grad: bool = False) -> str:
        """What was found, for a person. `grad`: and its gradient. Errors: with `grad`, as `gradient`."""
        from cubridge.derive.explain import explain_gradient
        from cubridge.frontend.reference.explain import explain

        return explain(self.traced) + (explain_gradient(self.gradient()) if grad else "")

    def gradient(self) -> GradientSpec:
        """The gradient of what was read, by q, k and v. Errors: CU530 to CU532, see `derive`; CU533 for a captured value that is
        made of q, k or v."""
        from cubridge.derive.gradient import derive

        for capture in self.attention.spec.captures:
            made_of = sorted(self.traced.inputs_of(capture.name) & {"q", "k", "v"})
            if made_of:
                message = f"`{capture.name}` is computed from {' and '.join(made_of)}, and its part of their gradient would be lost"
                help = "compute it before the attention and hand it over"
                raise Refused(Diagnostic("CU533", message, capture.span, help=help))
        found = derive(self.attention.spec)
        return replace(found, still=tuple(map(self._with_sources, found.still)))

    def _with_sources(self, capture: str) -> str:
        """The capture, and what it is made of."""
        sources = sorted(self.traced.inputs_of(capture) - {capture})
        return f"{capture} (of {', '.join(sources)})" if sources else capture


def read_reference(
    reference: Path | Callable[..., object],
    function: str | None = None,
    shape: Shape | None = None,
    extra_inputs: Callable[..., object] | None = None,
    dtype: str = "bf16",
) -> TracedReference:
    """Load and trace. `extra_inputs` belongs to a live callable; a file has its own. `dtype`: of q, k and v; what a
    reference means may depend on it (`finfo.min`). Errors: CU47x to CU49x, located."""
    if isinstance(reference, Path):
        loaded = load_reference(reference, function)
    else:
        loaded = Reference.of(reference, extra_inputs)  # pyright: ignore[reportArgumentType]
    return trace_reference(loaded, shape, dtype, str(reference) if isinstance(reference, Path) else None)


def trace_reference(loaded: Reference, shape: Shape | None, dtype: str, path: str | None = None) -> TracedReference:
    """`path`: the file it was loaded from. Errors: CU47x to CU49x, located."""
    traced = trace(loaded, shape, DTYPES[dtype])
    return TracedReference(traced, _attention(loaded.name, traced), path)


def reread(
    reference: TracedReference, extra_inputs: Callable[[Shape, str], dict[str, object]], dtype: str
) -> TracedReference:
    """The same function read with other examples of its extra arguments. Errors: CU47x to CU49x."""
    loaded = replace(reference.traced.reference, extra_inputs=extra_inputs)  # pyright: ignore[reportArgumentType]
    traced = trace(loaded, None, DTYPES[dtype])
    return TracedReference(traced, _attention(loaded.name, traced), reference.path)


def means_the_same(reference: TracedReference, dtype: str) -> bool:
    """Does the reference compute the same of q, k, v in another element type? Errors: CU47x to CU49x."""
    traced = reference.traced
    return says(trace(traced.reference, traced.shape, DTYPES[dtype]).spec) == says(traced.spec)


def _attention(name: str, traced: Traced) -> Attention:
    def captures(shape: Shape, extra: Extra, inputs: dict[str, Tensor]) -> Captures:
        return traced.captures(shape.sizes(), {**extra, **inputs})  # pyright: ignore[reportArgumentType]

    return Attention(name, traced.spec, traced.extra, captures, traced.oracle, traced.half)  # pyright: ignore[reportArgumentType]
