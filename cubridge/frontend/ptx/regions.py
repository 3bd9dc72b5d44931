"""The regions of a foreign kernel, from where its tiles lie and what its rows compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cubridge.frontend.ptx.finish import FINAL_TOTAL
from cubridge.frontend.ptx.geometry import Geometry, over_tile
from cubridge.frontend.ptx.row import (
    MAXIMUM,
    NEW_MAXIMUM,
    OUTPUT,
    SCALE,
    SCORE,
    TOTAL,
)
from cubridge.frontend.ptx.rows import Rows
from cubridge.ir.algebra.normal import poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import (
    REGIONS,
    Argument,
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    FloatLit,
    Function,
    IntLit,
    Name,
    Record,
    Stmt,
    Unary,
)  # fmt: skip
from cubridge.ir.source import Span

_LOWEST: Final = Unary("-", Name("inf"))


def regions_of(geometry: Geometry, rows: Rows) -> tuple[Function, ...]:
    return tuple(_Regions(geometry, rows).functions())


class _Regions:
    """Writes the regions."""

    def __init__(self, geometry: Geometry, rows: Rows) -> None:
        self.geometry, self.rows, self.step = geometry, rows, rows.step

    def functions(self) -> Iterator[Function]:
        for name in REGIONS:
            body, result, span = getattr(self, f"_{name}")()
            yield Function(name, REGIONS[name], tuple(body), result, span=span)

    def _tile_setup(self) -> tuple[list[Stmt], Expr | None, Span]:
        return [], None, self.geometry.spans["work"]

    def _key_sequence(self) -> tuple[list[Stmt], Expr | None, Span]:
        geometry, span = self.geometry, self.geometry.spans["loop"]
        first, rest = over_tile(geometry.first_key, geometry).divided(Poly.constant(geometry.key_rows))
        if rest.terms:
            raise CuError(Diagnostic("CU853", "the first key tile begins at no multiple of a tile", span))
        count = over_tile(geometry.count, geometry)
        lo, hi = (first, first + count) if geometry.forward else (first + 1 - count, first + 1)
        values = {"lo": to_expr(lo), "hi": _tile_count(hi), **self._full()}
        body: list[Stmt] = [Assign(Name(name), value, span=span) for name, value in values.items()]
        return body, Record("KeySequence", tuple(Argument(n, Name(n)) for n in values)), span

    def _full(self) -> dict[str, Expr]:
        """Between which tiles scores are not hidden: none, or behind the first steps."""
        lo, hi, steps = Name("lo"), Name("hi"), self.rows.scores.steps
        if steps is None:
            return {"full_lo": lo, "full_hi": lo}
        if self.geometry.forward:
            return {"full_lo": Call("minimum", (Binary("+", lo, IntLit(steps)), hi)), "full_hi": hi}
        return {"full_lo": lo, "full_hi": Call("maximum", (Binary("-", hi, IntLit(steps)), lo))}

    def _scale(self) -> Expr:
        assert self.step.scale is not None
        return self.step.scale.expr

    def _key_count(self) -> tuple[list[Stmt], Expr | None, Span]:
        count = Binary("-", _keys("hi"), _keys("lo"))
        return [], Call("maximum", (count, IntLit(0))), self.geometry.spans["loop"]

    def _key_tile(self) -> tuple[list[Stmt], Expr | None, Span]:
        t = Name("t")
        backward = Binary("-", Binary("-", _keys("hi"), IntLit(1)), t)
        return [], Binary("+", _keys("lo"), t) if self.geometry.forward else backward, self.geometry.spans["keys"]

    def _key_masked(self) -> tuple[list[Stmt], Expr | None, Span]:
        span = self.geometry.spans["keys"]
        body, tile, _ = self._key_tile()
        assert tile is not None and not body
        n = Name("n")
        outside = Binary("|", Binary("<", n, _keys("full_lo")), Binary(">=", n, _keys("full_hi")))
        return [Assign(n, tile, span=span)], outside, span

    def _score(self) -> tuple[list[Stmt], Expr | None, Span]:
        span = self.rows.scores.score.span
        return [] if self.rows.scores.score == SCORE else [Assign(SCORE, self.rows.scores.score, span=span)], None, span

    def _mask(self) -> tuple[list[Stmt], Expr | None, Span]:
        if self.rows.scores.mask is None:
            return [], None, self.step.spans["max"]
        span = self.rows.scores.mask.span
        return [Assign(SCORE, Call("where", (self.rows.scores.mask, SCORE, _LOWEST), span=span), span=span)], None, span

    def _row_init(self) -> tuple[list[Stmt], Expr | None, Span]:
        span = self.geometry.spans["loop"]
        return [Assign(MAXIMUM, _LOWEST, span=span), Assign(TOTAL, FloatLit(0.0), span=span)], None, span

    def _row_update(self) -> tuple[list[Stmt], Expr | None, Span]:
        spans = self.step.spans
        top = Call("maximum", (MAXIMUM, Call("rowmax", (SCORE,))), span=spans["max"])
        body: list[Stmt] = [
            Assign(NEW_MAXIMUM, top, span=spans["max"]),
            Assign(SCALE, self._scale(), span=spans["scale"]),
            Assign(MAXIMUM, NEW_MAXIMUM, span=spans["max"]),
        ]
        return body, None, spans["max"]

    def _row_probs(self) -> tuple[list[Stmt], Expr | None, Span]:
        spans = self.step.spans
        total = Binary("+", Binary("*", TOTAL, SCALE), Call("partial_rowsum", (SCORE,)), span=spans["sum"])
        body: list[Stmt] = [
            Assign(SCORE, self.step.weight.expr, span=spans["weight"]),
            Assign(TOTAL, total, span=spans["sum"]),
        ]
        return body, None, spans["weight"]

    def _row_rescale(self) -> tuple[list[Stmt], Expr | None, Span]:
        span = self.step.spans["scale"]
        return [Assign(OUTPUT, Binary("*", OUTPUT, SCALE), span=span)], None, span

    def _row_finalize(self) -> tuple[list[Stmt], Expr | None, Span]:
        output = self.rows.output
        body: list[Stmt] = [Assign(FINAL_TOTAL, Call("add_lanes", (TOTAL,)), span=self.step.spans["sum"])]
        if self.rows.lse is not None:
            body.append(Assign(Name("lse"), self.rows.lse, span=self.rows.lse.span))
        body.append(Assign(OUTPUT, output, span=output.span))
        return body, None, output.span


def _keys(name: str) -> Expr:
    return Attr(Name("keys"), name)


def _tile_count(hi: Poly) -> Expr:
    """`(n - 1) // size + 1` and `(n + size - 1) // size` are `ceil_div(n, size)`."""
    for monomial, coefficient in hi.terms:
        if coefficient != 1 or len(monomial) != 1:
            continue
        match monomial[0]:
            case Binary("//", inner, IntLit(size)):
                rest = hi.without(monomial).as_int()
                found = None if rest is None else _whole(inner, size, rest)
                if found is not None:
                    return found
            case _:
                pass
    return to_expr(hi)


def _whole(inner: Expr, size: int, rest: int) -> Expr | None:
    length = poly(inner) + size * rest - (size - 1)
    return Call("ceil_div", (to_expr(length), IntLit(size)))
