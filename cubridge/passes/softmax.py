"""The running softmax that a source kernel computes, found by what its regions do and not by the names of its fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cubridge.ir.algebra.exprs import MINUS_INF
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import (
    TILE_ARGUMENTS,
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    Field,
    If,
    Kernel,
    Name,
    Partial,
    Row,
    Scalar,
    Stmt,
)
from cubridge.ir.walk import substitute
from cubridge.passes.base import fault
from cubridge.passes.scale import Scale, scale_of

LOG2E: Final = Scale(powers=((Name("LOG2E"), 1.0),))


@dataclass(frozen=True, slots=True)
class Softmax:
    """Names. `scale`: the parameter that turns scores into exponents of 2. Row state: `maximum`, in score units; `exponent`,
    the maximum as an exponent; `total`, the partial sum of weights; `rescale`, what a key tile multiplies the output by."""

    scale: str
    maximum: str
    exponent: str
    total: str
    rescale: str


def softmax_of(kernel: Kernel) -> Softmax:
    """Errors: CU512 if the normalizer regions are no running softmax, as after a rewrite of the normalizer."""
    match without_locals(kernel.region("row_probs").body):
        case (Assign(Name("s"), weight), Assign(Attr(Name("row"), total), sum)):
            scale, exponent = _exponential(kernel, weight)
            found = Softmax(scale, _maximum(kernel), exponent, total, _total(kernel, sum, total))
        case _:
            raise _no_softmax(kernel, "row_probs")
    if not _rescales(without_locals(kernel.region("row_rescale").body), found.rescale):
        raise _no_softmax(kernel, "row_rescale")
    _check_types(kernel, found)
    return found


def without_locals(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The assignments to tiles and state, with the locals put in; a local in a condition too."""
    values: dict[str, Expr] = {}
    kept: list[Stmt] = []
    for statement in body:
        statement = substitute(statement, values)
        match statement:
            case Assign(Name(name), value) if name not in TILE_ARGUMENTS:
                values[name] = value
            case _:
                kept.append(statement)
    return tuple(kept)


def _exponential(kernel: Kernel, weight: Expr) -> tuple[str, str]:
    """The scale and the exponent of `exp2(s * p.scale - row.exponent)`."""
    match weight:
        case Call("exp2", (Binary("-", Binary("*", Name("s"), Attr(Name("p"), scale)), Attr(Name("row"), exponent)),)):
            return scale, exponent
        case _:
            raise _no_softmax(kernel, "row_probs")


def _total(kernel: Kernel, sum: Expr, total: str) -> str:
    """The rescale of `row.total * row.rescale + partial_rowsum(s)`."""
    match sum:
        case Binary(
            "+",
            Binary("*", Attr(Name("row"), before), Attr(Name("row"), rescale)),
            Call("partial_rowsum", (Name("s"),)),
        ):
            if before == total:
                return rescale
        case _:
            pass
    raise _no_softmax(kernel, "row_probs")


def row(name: str) -> Attr:
    return Attr(Name("row"), name)


def unit(kernel: Kernel, softmax: Softmax) -> Scale:
    """What one unit of score is in the exponent of e: the host value of the exponent's scale over log2(e)."""
    field = next(f for f in kernel.params if f.name == softmax.scale)
    assert isinstance(field.type, Scalar) and field.type.host is not None
    return scale_of(field.type.host) / LOG2E


def _maximum(kernel: Kernel) -> str:
    for statement in kernel.region("row_init").body:
        match statement:
            case Assign(Attr(Name("row"), name), value) if value == MINUS_INF:
                return name
            case _:
                pass
    raise _no_softmax(kernel, "row_init")


def _rescales(body: tuple[Stmt, ...], rescale: str) -> bool:
    match body:
        case (Assign(Name(local), _), *rest) if rest and local != "o":
            return _rescales(tuple(rest), rescale)
        case (If(_, then, ()),):
            return _rescales(then, rescale)
        case (Assign(Name("o"), Binary("*", Name("o"), factor)),):
            return factor == row(rescale)
        case _:
            return False


def _check_types(kernel: Kernel, found: Softmax) -> None:
    types = {f.name: f.type for f in kernel.row_state}
    rows = (found.maximum, found.exponent, found.rescale)
    param = next((f for f in kernel.params if f.name == found.scale), None)
    has_host = isinstance(param, Field) and isinstance(param.type, Scalar) and param.type.host is not None
    if not (
        has_host and isinstance(types.get(found.total), Partial) and all(isinstance(types.get(r), Row) for r in rows)
    ):
        raise _no_softmax(kernel, "row_probs")


def _no_softmax(kernel: Kernel, region: str) -> CuError:
    return fault(
        "CU512",
        "the normalizer of the kernel is no running softmax",
        kernel.region(region).span,
        help="run the rewrites of score and normalizer on the source kernel, the normalizer's last",
    )


def with_scale(kernel: Kernel, softmax: Softmax, new: Scale) -> Kernel:
    """The kernel whose score unit is `new`."""
    host = (new * LOG2E).to_expr()

    def change(field: Field) -> Field:
        if field.name != softmax.scale:
            return field
        assert isinstance(field.type, Scalar)
        return replace(field, type=replace(field.type, host=host))

    params = tuple(change(f) for f in kernel.params)
    return kernel if params == kernel.params else replace(kernel, params=params)
