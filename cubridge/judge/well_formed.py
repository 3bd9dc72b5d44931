"""Is a kernel well-formed, whatever it computes: static rules, then the order engine over tiny runs."""

from __future__ import annotations

from cubridge.engine.order.engine import check_order
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Kernel
from cubridge.verify.verifier import verify


def find_faults(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """All faults of the static rules; if there are none, those of the order engine."""
    return verify(kernel) or check_order(kernel)


def verify_kernel(kernel: Kernel) -> None:
    """Errors: CU2xx, every fault."""
    faults = find_faults(kernel)
    if faults:
        raise CuError(*faults)


def verify_statically(kernel: Kernel) -> None:
    """The static rules alone, as between passes. Errors: CU2xx."""
    faults = verify(kernel)
    if faults:
        raise CuError(*faults)
