"""Does a contract say what a launch can compute: names that have values there, and whole numbers for every form of the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from cubridge.ir.capture_names import HOST_NAMES
from cubridge.ir.contract import KEY_PADDING, LaunchContract, instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import NAMED_CONSTANTS, SIZES, Expr, Index, Name, Record
from cubridge.ir.source import Span
from cubridge.ir.walk import walk

MAX_INT: Final = (1 << 31) - 1


def check_identifier(name: str, what: str, span: Span) -> None:
    """Errors: CU451."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        _fail(f"{what} `{name}` is no identifier", span)


def check_contract(contract: LaunchContract) -> None:
    """Errors: CU451, at the expression."""
    macros = {*(m.name for m in contract.macros), *(name for _, selecting in contract.dtypes for name, _ in selecting)}
    for macro in contract.macros:
        _check_names("a macro", macro.values, {"D"})
    of_form = {n: getattr(contract, n) for n in ("block", "shared_bytes", "query_tile", "key_tile")}
    for name, expr in of_form.items():
        _check_names(f"`{name}`", (expr,), macros)
    _check_names("`grid`", (contract.grid,), {*SIZES, *macros, *HOST_NAMES})
    for tensor in contract.tensors:
        _check_names("a shape", tensor.shape, {*SIZES, *macros})
    for box in contract.tensor_maps:
        _check_names("a box", box.box, {*SIZES, *macros})
    for dtype, _ in contract.dtypes:
        for head_dim in contract.head_dims:
            forms = instantiations(contract, dtype, head_dim)
            for form in forms:
                for name, expr in of_form.items():
                    _check_count(name, expr, dict(form.macros), least=0 if name == "shared_bytes" else 1)
            _check_tiles("key", contract.key_tile, [dict(form.macros) for form in forms])
    every = [f for t, _ in contract.dtypes for d in contract.head_dims for f in instantiations(contract, t, d)]
    _check_tiles("query", contract.query_tile, [dict(form.macros) for form in every])


def _check_tiles(kind: str, size: Expr, forms: list[dict[str, int]]) -> None:
    """A patch is written once for all that may be compiled, and pads what it reads of keys and rows to whole tiles of each."""
    tiles = {int(evaluate_number(size, form)) for form in forms}
    for tile in sorted(tiles):
        if len(tiles) > 1 and KEY_PADDING % tile:
            values = "values of keys are" if kind == "key" else "values by distance are"
            message = (
                f"`{kind}_tile` is one of several, and {tile} does not divide {KEY_PADDING}, to which {values} padded"
            )
            _fail(message, size.span, f"take divisors of it, or one {kind} tile alone")


def _check_names(what: str, exprs: Iterable[Expr], known: set[str]) -> None:
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Name) and node.id not in known and node.id not in NAMED_CONSTANTS:
                _fail(f"{what} may not read `{node.id}`", node.span, f"it may read {', '.join(sorted(known))}")
            if isinstance(node, (Index, Record)):
                _fail(f"{what} is one number", node.span)


def _check_count(name: str, expr: Expr, macros: Mapping[str, int], least: int) -> None:
    try:
        value = evaluate_number(expr, macros)
    except CuError as error:
        found = error.diagnostics[0]
        _fail(f"`{name}`: {found.message}", found.span)
    if type(value) is not int or not least <= value <= MAX_INT:
        given = ", ".join(f"{n}={v}" for n, v in macros.items())
        _fail(f"`{name}` is {value} where {given}; a whole number from {least} is needed", expr.span)


def _fail(message: str, span: Span, help: str | None = None) -> NoReturn:
    raise CuError(Diagnostic("CU451", message, span, help=help))
