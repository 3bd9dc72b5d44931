"""Sizes of register tiles, from the lane maps and the constants that the fragments' extents are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubridge.frontend.cuda.lemmas import meaning
from cubridge.frontend.cuda.syntax import CExpr, Ident, Infix
from cubridge.frontend.cuda.values import refusal
from cubridge.ir.nodes import Binary, Expr, IntLit, Name, RegisterTile
from cubridge.ir.source import Span
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from cubridge.frontend.cuda.context import Context
    from cubridge.frontend.cuda.expressions import Expressions


def register_tile(lift: Expressions, name: str, dtype: DType, columns: Expr | None, place: Span) -> RegisterTile:
    return RegisterTile(
        name, dtype, table_expr(lift.context, lift.context.fragment_rows.tile_rows, place), columns, span=place
    )


def fragment_columns(lift: Expressions, extent: CExpr, place: Span) -> Expr:
    """The columns of a tile of which a thread holds `extent`: times the lanes that share a row. `X / 4` with 4 lanes is `X`."""
    constants = lift.context.constants
    lanes = lift.context.lanes
    definition = constants.definition(extent.name, place) if isinstance(extent, Ident) else extent
    match definition:
        case Infix("/", Ident(name), divisor) if constants.evaluate(divisor) == lanes:
            whole = constants.value(name, place)
            if isinstance(whole, int) and whole % lanes == 0:
                return constants.use(name, place)
        case _:
            pass
    number = constants.evaluate(extent)
    if not isinstance(number, int):
        raise refusal("the extent of a register tile is an integer", place)
    return IntLit(number * lanes, span=place)


def table_expr(context: Context, text: str, place: Span) -> Expr:
    """An expression of the table of lemmas, with the kernel's constants marked as used."""
    expr = meaning(text)
    _use(context, expr, place)
    return expr


def _use(context: Context, expr: Expr, place: Span) -> None:
    match expr:
        case Name(name) if context.constants.is_constant(name):
            context.constants.use(name, place)
        case Binary(_, left, right):
            _use(context, left, place)
            _use(context, right, place)
        case _:
            pass
