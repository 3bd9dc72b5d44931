"""What the launch contract computes from sizes, at sizes where formulas change their branch: blocks, and values of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cubridge.frontend.cuda.views import MISFIT
from cubridge.ir.contract import HostValue, LaunchContract
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.evaluate import evaluate_number, known_number
from cubridge.ir.nodes import Break, Expr, IntLit, Kernel
from cubridge.ir.walk import free_names, walk
from cubridge.verify.ranges import LIMITS

_MACHINE: Final = {"SM_COUNT": 132, "L2_BYTES": 1 << 25}
_LARGEST: Final = (1 << 31) - 1


def launch_faults(kernel: Kernel, contract: LaunchContract, form: Mapping[str, int | float]) -> Iterator[Diagnostic]:
    """CU428 for a grid that is no number of blocks, or not one block for each query tile where no block takes several; and for
    parameters that have no value, those of a variant at any sizes, since preconditions may exclude some. `form`: D and the
    macros of the instantiation."""
    tile = int(evaluate_number(contract.query_tile, form))
    loops = any(isinstance(node, Break) for node in walk(kernel))
    formulas = [(f, f.value.expr) for f in contract.params if isinstance(f.value, HostValue)]
    read = [n.value for e in (contract.grid, *(e for _, e in formulas)) for n in walk(e) if isinstance(n, IntLit)]
    valued: set[str] = set()
    sizes: Mapping[str, int] = {}
    for sizes in (*_sizes(tile, int(evaluate_number(contract.key_tile, form))), *_further(read)):
        names = {**_MACHINE, **form, **sizes}
        grid = known_number(contract.grid, names)
        tiles = sizes["B"] * sizes["Hq"] * -(-sizes["Lq"] // tile)
        if type(grid) is not int or not 1 <= grid <= _LARGEST:
            yield _fault(f"the grid is {grid} blocks", contract.grid, sizes)
        elif not loops and grid != tiles:
            yield _fault(f"the grid has {grid} blocks, one for each query tile would be {tiles}", contract.grid, sizes)
        for field, expr in formulas:
            if not free_names(expr) <= names.keys() or known_number(expr, names) is not None:
                valued.add(field.name)
            elif not field.patched:
                yield _fault(f"`p.{field.name}` has no value", expr, sizes)
    for field, expr in formulas:
        if field.patched and field.name not in valued:
            yield _fault(f"`p.{field.name}` has no value", expr, sizes)


def _sizes(rows: int, keys: int) -> Iterator[dict[str, int]]:
    """Lengths below, at and past whole tiles, one head and one batch, grouped heads, and lengths of long problems."""
    lengths = ((1, 1), (rows, keys), (2 * rows, 3 * keys), (rows + 1, keys - 1), (1, 1 << 21), (1 << 17, 1 << 17))
    for lq, lk in lengths:
        for b, hq, hk in ((1, 1, 1), (2, 6, 3)):
            yield {"B": b, "Hq": hq, "Hk": hk, "Lq": lq, "Lk": lk}


def _further(numbers: Iterable[int]) -> Iterator[dict[str, int]]:
    """Each size at its limit and about every number that a formula reads, the others small."""
    small = {"B": 1, "Hq": 1, "Hk": 1, "Lq": 1, "Lk": 1}
    near = sorted({n + step for n in numbers for step in (-1, 0, 1)})
    for name in ("B", "Hq", "Lq", "Lk"):
        most = LIMITS[name]
        yield from (small | {name: n} for n in (most, *near) if 1 <= n <= most)


def _fault(what: str, expr: Expr, sizes: Mapping[str, int]) -> Diagnostic:
    at = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return Diagnostic(MISFIT, f"{what} at {at}", expr.span)
