"""The region functions of a key sequence, from the pieces that a query tile visits and those it sees whole."""

from __future__ import annotations

from typing import Final

from cubridge.ir.algebra.exprs import both, either
from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.algebra.signs import at_most, nonnegative
from cubridge.ir.nodes import Argument, Assign, Attr, Binary, Call, Expr, IntLit, Kernel, Name, Record
from cubridge.passes.pieces import END, START, Piece, always, larger, smaller
from cubridge.passes.regions import assign, with_region
from cubridge.passes.shape import tile_shape

_KEYS: Final = Name("keys")


def with_key_sequence(kernel: Kernel, visits: tuple[Piece, ...], fulls: tuple[Piece, ...]) -> Kernel:
    """The kernel that walks the key tiles of `visits` from the right, and masks those outside of `fulls`."""
    fulls = tuple(p for p in fulls if not _is_thin(p, kernel))
    writer = _Writer(Facts.of(kernel), tile_shape(kernel).keys)
    kernel = with_region(kernel, "key_sequence", *writer.sequence(visits, fulls))
    kernel = with_region(kernel, "key_count", (), _count(len(visits)))
    kernel = with_region(kernel, "key_tile", *_tile(len(visits)))
    return with_region(kernel, "key_masked", *_masked(len(visits), len(fulls)))


def _is_thin(piece: Piece, kernel: Kernel) -> bool:
    """Is the piece never wide enough for a whole tile: left out, it costs nothing here, and at worst a mask elsewhere."""
    keys = poly(tile_shape(kernel).keys)
    return at_most(piece.high + 1, piece.low + keys, Facts.of_instantiation(kernel))


class _Writer:
    """Collects the locals of `key_sequence`."""

    def __init__(self, facts: Facts, block_kv: Expr) -> None:
        self.facts = facts
        self.block_kv = block_kv
        self.body: list[Assign] = []
        self.fields: list[str] = []

    def sequence(self, visits: tuple[Piece, ...], fulls: tuple[Piece, ...]) -> tuple[tuple[Assign, ...], Record]:
        if len(visits) == 2:
            self._two(*visits)
        else:
            low, high = self._visit(visits[0]) if visits else (IntLit(0), IntLit(0))
            self._field("lo", low)
            self._field("hi", high)
        for prefix, piece in zip(("full", "also"), fulls or (None,), strict=False):
            low, high = (IntLit(0), IntLit(0)) if piece is None else self._full(piece)
            self._field(f"{prefix}_lo", low)
            self._field(f"{prefix}_hi", high)
        return tuple(self.body), Record("KeySequence", tuple(Argument(n, Name(n)) for n in self.fields))

    def _field(self, name: str, value: Expr) -> None:
        self.body.append(assign(name, value))
        self.fields.append(name)

    def _local(self, name: str, value: Expr) -> Expr:
        self.body.append(assign(name, value))
        return Name(name)

    def _two(self, first: Piece, second: Piece) -> None:
        """The hull of two runs of tiles, and the gap between them: `gap` tiles that end at `gap_hi`."""
        ends: list[tuple[Expr, Expr]] = []
        for name, piece in (("a", first), ("b", second)):
            low, high = self._visit(piece)
            low = low if isinstance(low, IntLit) else self._local(f"{name}_lo", low)
            at_least_low = high if low == IntLit(0) and self._never_negative(piece) else Call("maximum", (low, high))
            ends.append((low, self._local(f"{name}_hi", at_least_low)))
        (a_lo, a_hi), (b_lo, b_hi) = ends
        first_lo = IntLit(0) if IntLit(0) in (a_lo, b_lo) else Call("minimum", (a_lo, b_lo))
        last_lo = (b_lo if a_lo == IntLit(0) else a_lo) if IntLit(0) in (a_lo, b_lo) else Call("maximum", (a_lo, b_lo))
        self._field("lo", first_lo)
        self._field("hi", Call("maximum", (a_hi, b_hi)))
        self._field("gap_hi", last_lo)
        self._field("gap", Call("maximum", (Binary("-", last_lo, Call("minimum", (a_hi, b_hi))), IntLit(0))))

    def _never_negative(self, piece: Piece) -> bool:
        return nonnegative(always(piece).high, self.facts)

    def _visit(self, piece: Piece) -> tuple[Expr, Expr]:
        piece = always(piece)
        low = larger(piece.low, START, self.facts)
        return self._floor(low), Call("ceil_div", (to_expr(self._capped(piece.high)), self.block_kv))

    def _full(self, piece: Piece) -> tuple[Expr, Expr]:
        piece = always(piece)
        low = larger(piece.low, START, self.facts)
        return self._ceil(low), self._floor(self._capped(piece.high))

    def _capped(self, high: Poly) -> Poly:
        return smaller(END, high, self.facts)

    def _floor(self, value: Poly) -> Expr:
        return IntLit(0) if value == START else Binary("//", to_expr(value), self.block_kv)

    def _ceil(self, value: Poly) -> Expr:
        return IntLit(0) if value == START else Call("ceil_div", (to_expr(value), self.block_kv))


def _key(name: str) -> Attr:
    return Attr(_KEYS, name)


def _from_the_right() -> Expr:
    return Binary("-", Binary("-", _key("hi"), IntLit(1)), Name("t"))


def _count(pieces: int) -> Expr:
    tiles = Binary("-", _key("hi"), _key("lo"))
    return Call("maximum", (tiles if pieces < 2 else Binary("-", tiles, _key("gap")), IntLit(0)))


def _tile(pieces: int) -> tuple[tuple[Assign, ...], Expr]:
    n = _from_the_right()
    if pieces < 2:
        return (), n
    right = Name("right")
    return (assign(right, n),), Call(
        "where", (Binary("<", right, _key("gap_hi")), Binary("-", right, _key("gap")), right)
    )


def _masked(visits: int, fulls: int) -> tuple[tuple[Assign, ...], Expr]:
    n = Name("n")
    outside = [
        either(Binary("<", n, _key(f"{prefix}_lo")), Binary(">=", n, _key(f"{prefix}_hi")))
        for prefix in ("full", "also")[: max(1, fulls)]
    ]
    body, tile = _tile(visits)
    return (*body, assign(n, tile)), both(*outside)
