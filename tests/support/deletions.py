"""Every kernel that lacks one statement, for tests that something notices."""

from __future__ import annotations

from collections.abc import Iterator

from cubridge.ir.nodes import Assign, Attr, Gemm, Kernel, Name, Op, RegionCall, RingNext, Stmt
from cubridge.ir.paths import Path, Splice, paths


def deletions(kernel: Kernel) -> Iterator[tuple[Stmt, Kernel]]:
    """Each operation, gemm, region call and state write, with the kernel that lacks it."""
    for path, node in paths(kernel):
        step = path.steps[-1] if path.steps else None
        if isinstance(node, Stmt) and isinstance(step, int) and _counts(node, path):
            changed = Splice(path.parent, step, (node,), ()).apply(kernel)
            assert isinstance(changed, Kernel)
            yield node, changed


def _counts(stmt: Stmt, path: Path) -> bool:
    match stmt:
        case Assign(Attr(Name(scope))):
            return scope in ("row", "tile")
        case Gemm() | RegionCall() | Op():
            return not isinstance(stmt, RingNext) or path.steps[0] == "body"
        case _:
            return False
