"""What is said of a long problem at which a kernel differs, and of which part of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.nodes import Assign, Attr, Function, Name, Node, Scalar
from cubridge.ir.source import NOWHERE
from cubridge.ir.walk import walk

if TYPE_CHECKING:
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.spec import Shape

CODE: Final = "CU317"


def diagnostic(message: str, *nodes: Node) -> Diagnostic:
    """`nodes`: what may be to blame, likeliest first; what passes made has often no place of its own."""
    placed = (node.span for part in nodes for node in walk(part) if node.span is not NOWHERE)
    return Diagnostic(CODE, message, next(placed, NOWHERE))


def assigned(function: Function, name: str) -> Node:
    """Where a function assigns `name` or `tile.name`, else all of it."""
    for statement in function.body:
        match statement:
            case Assign(Name(id) | Attr(_, id)) if id == name:
                return statement
            case _:
                pass
    return function


def parts_of_weight(
    kernel: Kernel, wanted: float, got: float, visited: bool, masked: bool, otherwise: Node, alone: bool
) -> tuple[Node, ...]:
    """The parts of the kernel that a wrong weight points to; `alone`: of a key tile that is looked at as if there were no other."""
    mask = assigned(kernel.region("mask"), "s")
    if wanted and not visited:
        return kernel.region("key_sequence"), mask
    if got and not wanted and not masked:
        return kernel.region("key_masked"), mask
    return (mask,) if alone and bool(wanted) != bool(got) else (otherwise,)


def scale_of(kernel: Kernel) -> Node:
    """What scores are multiplied by: the score region, or where it does nothing, the parameter that exponents take."""
    score = kernel.region("score")
    hosts = (f for f in kernel.params if not f.fixed and isinstance(f.type, Scalar) and f.type.host is not None)
    return assigned(score, "s") if score.body else next(hosts, score)


def sizes(shape: Shape) -> str:
    return ", ".join(f"{name}={size}" for name, size in shape.sizes().items())
