"""`cuirc graph`, and the mask of a reference as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cubridge.driver.view.mask import MOST_ELEMENTS, elements, mask_of, visible_elements
from cubridge.driver.view.timeline import event_graph
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.show.graph import dot, graph_svg
from cubridge.show.terminal import mask_text

if TYPE_CHECKING:
    from cubridge.driver.reference import TracedReference
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.spec import Shape

_TILE: Final = 16
_COLUMNS: Final = 72


def graph_text(kernel: Kernel, counts: tuple[int, ...], as_svg: bool) -> str:
    """The events of a block whose work tiles have `counts` key tiles. Errors: as `kernel_events`."""
    timeline, edges = event_graph(kernel, counts)
    return graph_svg(timeline, edges) if as_svg else dot(kernel.name, timeline, edges)


def mask_picture(reference: TracedReference, shape: Shape | None, tile: tuple[int, int] | None) -> str:
    """At `shape`, or the sizes that the reference was read at. `tile`: of a sign; by default square, as small as a line holds.
    Errors: CU111 for a mask that is too large to draw."""
    shape = shape or reference.traced.shape
    count = elements(reference.attention.spec.mask, shape)
    if count > MOST_ELEMENTS:
        message = f"the mask has {count} elements, and at most {MOST_ELEMENTS} are drawn"
        raise CuError(Diagnostic("CU111", message, help="give a smaller --shape"), exit_code=2)
    dtype = "fp16" if str(reference.traced.dtype) == "torch.float16" else "bf16"
    side = _TILE
    while max(shape.Lk, shape.Lq) > side * _COLUMNS:
        side *= 2
    return mask_text(mask_of(visible_elements(reference, shape, dtype), shape, tile or (side, side)))
