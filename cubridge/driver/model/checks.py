"""What CuIR that a model wrote goes through in a child process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from cubridge.driver.transfer import check_structure
from cubridge.engine.values.launch import Launch
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Assign, Captured, Expr, If, Kernel, Name, Stmt, TileList
from cubridge.ir.walk import children, substitute
from cubridge.judge.blame import blame
from cubridge.judge.runners import LAUNCH_CONSTANTS, ValueRunner, deals_unequal_work
from cubridge.judge.well_formed import verify_kernel, verify_statically
from cubridge.passes.list_check import list_fault
from cubridge.passes.regions import mask_predicate, with_region
from cubridge.passes.tile_check import tile_fault

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.spec import AttentionSpec
    from cubridge.judge.problem import Problem

NUMBERS: Final = "CU316"
"""Code of kernels that compute other values."""
_MAX_PAD: Final = 1024
_MAX_FORMULA: Final = 20_000


def verify_target(source: Kernel, target: Kernel) -> None:
    """A target written out: static rules, the source's structure, the order engine. Errors: CU2xx, CU723."""
    check_growth(target)
    verify_statically(target)
    check_structure(source, target)
    verify_lifted(target)


def verify_lifted(kernel: Kernel) -> None:
    """A source kernel written out: static rules and the order engine. Errors: CU2xx, CU723."""
    check_growth(kernel)
    check_pads(kernel)
    verify_kernel(kernel)


def run_values(kernel: Kernel, problem: Problem) -> tuple[Tensor, Tensor | None]:
    """(out, lse) on the value engine. Errors: CU3xx."""
    return ValueRunner(kernel).run(problem, lse=problem.lse is not None)


def find_blame(kernel: Kernel, problem: Problem, spec: AttentionSpec, row: tuple[int, int, int]) -> tuple[str, str]:
    """Which region makes row (b, h, i) differ from a spec: its name, and what is wrong."""
    launch = Launch(
        problem.shape, problem.captures, LAUNCH_CONSTANTS, want_lse=problem.lse is not None,
        counters=deals_unequal_work(kernel),
    )  # fmt: skip
    found = blame(kernel, spec, (problem.q, problem.k, problem.v), launch, row)
    return found.part, found.message


def check_key_sequence(kernel: Kernel) -> None:
    """The key sequence against the mask of the same kernel, at lengths that no run of the check has; the sequences of passes are
    checked so as well. A mask of another form than one `where` over a predicate is left to the runs. Errors: CU316."""
    predicate = mask_predicate(with_region(kernel, "mask", _without_locals(kernel.region("mask").body)))
    lists = any(isinstance(f.type, TileList) for f in kernel.params)
    find = partial(list_fault, exact=False) if lists else tile_fault
    try:
        fault = None if predicate is None else find(kernel, predicate)
    except (KeyError, CuError):
        return  # it reads what has no value before a launch
    if fault is not None:
        wrong = {
            "skipped": "is not visited, and some row sees a key of it",
            "unmasked": "is walked without its mask",
            "outside": "is read where there is no list",
        }
        sizes = ", ".join(f"{name}={fault.values[Name(name)]}" for name in ("Lq", "Lk"))
        message = f"key tile {fault.tile} {wrong[fault.what]}, in the query tile at row {fault.q_start} ({sizes})"
        raise CuError(Diagnostic(NUMBERS, message, kernel.region("key_sequence").span))


def _without_locals(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """A body of assignments with its locals put in where they are read; any other body as it is."""
    values: dict[str, Expr] = {}
    stores: list[Stmt] = []
    for statement in body:
        if not (isinstance(statement, Assign) and isinstance(statement.target, Name)) or stores:
            return body
        value = substitute(statement.value, values)
        if statement.target.id == "s":
            stores.append(replace(statement, value=value))
        else:
            values[statement.target.id] = value
    return tuple(stores)


def check_growth(kernel: Kernel) -> None:
    """Values are formulas of those before them; of `x1 = x0 * x0`, written again and again, whoever writes them out never ends.
    Errors: CU723."""
    for region in (*kernel.regions, kernel.schedule):
        _check_growth(region.body, {})


def _check_growth(body: tuple[Stmt, ...], sizes: dict[Expr, int]) -> None:
    """`sizes`: nodes of the formula of each place."""
    for statement in body:
        match statement:
            case Assign(target, value):
                sizes[target] = _size(value, sizes)
                if sizes[target] > _MAX_FORMULA:
                    message = f"with what it reads written out, this value has more than {_MAX_FORMULA} operations"
                    raise CuError(Diagnostic("CU723", message, statement.span))
            case If(_, then, orelse):
                _check_growth(then, sizes)
                _check_growth(orelse, sizes)
            case _:
                pass


def _size(expr: Expr, sizes: dict[Expr, int]) -> int:
    return sizes.get(expr) or 1 + sum(_size(x, sizes) for x in children(expr) if isinstance(x, Expr))


def check_pads(kernel: Kernel) -> None:
    """Padding of captured tensors takes memory at every launch. Errors: CU723."""
    for field_ in kernel.params:
        if isinstance(field_.type, Captured) and field_.type.pad > _MAX_PAD:
            message = f"`{field_.name}` is padded to a multiple of {field_.type.pad} elements"
            raise CuError(Diagnostic("CU723", message, field_.span, help=f"at most {_MAX_PAD}"))
