"""Captured values: each parameter holds the value of the reference that it is called after, and is read within its extents."""

from __future__ import annotations

from cubridge.ir.capture_names import HOST_NAMES, capture_of
from cubridge.ir.nodes import SIZES, Captured, Field, Kernel, Scalar
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import AttentionSpec, Capture
from cubridge.ir.walk import free_names
from cubridge.judge.proof import smt
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.unproved import Unproved

_AS_INTEGERS = {"bool": ("i32", "bool"), "i32": ("i32",), "f32": ("f32",)}


def check_captures(kernel: Kernel, spec: AttentionSpec, integers: Integers) -> None:
    """Errors: Unproved for a parameter that may hold something else."""
    known = {c.name: c for c in spec.captures}
    for field in kernel.params:
        match field.type:
            case Captured():
                _check_tensor(field, field.type, known, integers)
            case Scalar(_, host) if host is not None:
                free = free_names(host) - {*SIZES, *HOST_NAMES, *kernel.constant_values}
                unknown = sorted(free - {name for name, c in known.items() if not c.extents})
                if unknown:
                    raise Unproved(f"`p.{field.name}` reads `{unknown[0]}`, which is no scalar of the reference")
            case _:
                pass


def _check_tensor(field: Field, kind: Captured, known: dict[str, Capture], integers: Integers) -> None:
    name = capture_of(field)
    capture = known.get(name or "")
    if capture is None:
        raise Unproved(f"`p.{field.name}` holds `{name}`, which the reference does not capture")
    if str(kind.dtype.value) not in _AS_INTEGERS[capture.dtype]:
        raise Unproved(f"`p.{field.name}` is {kind.dtype.value}, and the reference's `{name}` is {capture.dtype}")
    if len(kind.extents) != len(capture.extents):
        raise Unproved(
            f"`p.{field.name}` has {len(kind.extents)} axes, and the reference's `{name}` {len(capture.extents)}"
        )
    for mine, other in zip(kind.extents, capture.extents, strict=True):
        if mine != other and not integers.holds(smt.compared("==", integers.integer(mine), integers.integer(other))):
            message = f"an axis of `p.{field.name}` is {print_expr(mine)}, and in the reference {print_expr(other)}"
            raise Unproved(message)
