"""Which query tile a block of a foreign kernel has, and which key tiles it walks, as formulas that all runs confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cubridge.frontend.ptx.layout import Coordinates
from cubridge.frontend.ptx.loops import count_formula
from cubridge.frontend.ptx.rounding import Rounding, rounded_down
from cubridge.frontend.ptx.run import Run
from cubridge.ir.algebra.normal import floor_div, poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Attr, Binary, Expr, IntLit, Name
from cubridge.ir.source import Span
from cubridge.ir.walk import map_children


@dataclass(frozen=True, slots=True)
class Geometry:
    """`work`: of the query tile; `head_kv`: of its keys; `first_key`: row of the first key tile; `count`: how many; `forward`: each
    further right than the one before."""

    query_rows: int
    key_rows: int
    work: Coordinates
    head_kv: Poly
    first_key: Poly
    count: Poly
    forward: bool
    spans: dict[str, Span]
    rounding: Rounding

    def key_row(self, t: int) -> Poly:
        return self.first_key + (self.key_rows * t if self.forward else -self.key_rows * t)


def read_geometry(runs: Sequence[Run]) -> Geometry:
    """`runs`: the one with the most key tiles first. Errors: CU853 where runs disagree, or a block is no query tile."""
    run = runs[0]
    queries, keys = run.acts("copy", "q"), run.acts("read", "k")
    if len(queries) != 1 or not keys:
        raise CuError(Diagnostic("CU853", "a block copies no one tile of queries to shared memory", run.loop.span))
    tile, first = queries[0][1].tile, keys[0][1].tile
    rows = {act.tile.rows for r in runs for _, act in r.acts("copy", "k") + r.acts("copy", "v")}
    if len(rows) != 1:
        raise CuError(Diagnostic("CU853", "tiles of keys and of values have several sizes", keys[0][1].span))
    work = run.coordinates("q", tile.row)
    of_keys = run.coordinates("k", first.row)
    step = keys[1][1].tile.row - first.row if len(keys) > 1 else first.rows
    count, rounding = rounded_down(count_formula(run.slices, run.loop), run.loop.span)
    begin = rounding.down(of_keys.row)
    geometry = Geometry(
        tile.rows, first.rows, work, of_keys.h, begin, count, step > 0,
        {"work": queries[0][1].span, "keys": keys[0][1].span, "loop": run.loop.span}, rounding,
    )  # fmt: skip
    _same_places(run, geometry, of_keys)
    for each in runs:
        _confirm(geometry, each)
    return geometry


def _same_places(run: Run, geometry: Geometry, of_keys: Coordinates) -> None:
    """Keys, values and outputs lie, by their formulas, where their query tile and each other do."""
    spans = geometry.spans
    work, values = geometry.work, run.acts("read", "v")
    found = [("keys", of_keys, replace(of_keys, b=work.b), spans["keys"])]
    found += [("values", run.coordinates("v", act.tile.row), of_keys, act.span) for _, act in values[:1]]
    for tensor in ("o", "lse"):
        stored = run.acts("store", tensor)
        found += [(f"`{tensor}`", run.coordinates(tensor, act.tile.row), work, act.span) for _, act in stored[:1]]
    for what, has, should, span in found:
        if not all(a.equals(b) for a, b in ((has.b, should.b), (has.h, should.h), (has.row, should.row))):
            raise CuError(
                Diagnostic("CU853", f"the formula of where {what} lie is of another tile than it should be", span)
            )


def _confirm(geometry: Geometry, run: Run) -> None:
    """The numbers of one run are those of the formulas."""
    number = run.slices.numeric
    tile = run.acts("copy", "q")[0][1]
    said = (number(geometry.work.b), number(geometry.work.h), number(geometry.work.row))
    _same("the query tile of a block", said, (tile.tile.b, tile.tile.h, tile.tile.row), tile.span)
    keys = [act for _, act in run.acts("read", "k")]
    _same("the number of key tiles", number(geometry.count), len(keys), geometry.spans["loop"])
    _same("the number of iterations", run.loop.count, len(keys), geometry.spans["loop"])
    for t, act in enumerate(keys):
        said = (number(geometry.work.b), number(geometry.head_kv), number(geometry.key_row(t)))
        _same(f"key tile {t} of a block", said, (act.tile.b, act.tile.h, act.tile.row), act.span)
    values = [act for _, act in run.acts("read", "v")]
    for key, value in zip(keys, values, strict=False):
        at = (key.tile.b, key.tile.h, key.tile.row)
        _same("a tile of values, by its keys,", at, (value.tile.b, value.tile.h, value.tile.row), value.span)
    for tensor in ("o", "lse"):
        for _, act in run.acts("store", tensor):
            at = (tile.tile.b, tile.tile.h, tile.tile.row)
            _same(f"what is stored of `{tensor}`", at, (act.tile.b, act.tile.h, act.tile.row), act.span)


def _same(what: str, said: object, had: object, span: Span) -> None:
    if said != had:
        raise CuError(Diagnostic("CU853", f"{what} is {had} in a run, and its formula says {said}", span))


def over_tile(value: Poly, geometry: Geometry) -> Poly:
    """A formula of block coordinates over the query tile's own: its rows, its head. Errors: CU853."""
    start, head, batch = geometry.work.row, geometry.work.h, geometry.work.b
    for part, name in ((start, "q_start"), (head, "h"), (batch, "b")):
        value = _solved(value, part, name)
    if any(isinstance(a, Name) and a.id.startswith("block_") for a in value.atoms()):
        raise CuError(
            Diagnostic("CU853", "the key tiles of a block depend on more than its query tile", geometry.spans["loop"])
        )
    return value


def _solved(value: Poly, part: Poly, name: str) -> Poly:
    """`value` with the block coordinate put away that `part` is made of, for `tile.NAME`."""
    blocks = [m for m, _ in part.terms if len(m) == 1 and isinstance(m[0], Name) and m[0].id.startswith("block_")]
    if len(blocks) != 1:
        return value
    (atom,) = blocks[0]
    unit, rest = part.coefficient(blocks[0]), part.without(blocks[0])
    return _Solver(atom, unit, Poly.atom(Attr(Name("tile"), name)) - rest).poly(value)


@dataclass(frozen=True, slots=True)
class _Solver:
    """`unit` times `atom` is `by`."""

    atom: Expr
    unit: int
    by: Poly

    def poly(self, value: Poly) -> Poly:
        found = Poly(())
        for monomial, coefficient in self._gathered(value).terms:
            others = tuple(self.expr(a) for a in monomial if a != self.atom)
            if monomial.count(self.atom) == 1 and coefficient % self.unit == 0:
                found = found + Poly(((others, coefficient // self.unit),)) * self.by
            elif monomial == (self.atom,) and coefficient > 0 and self.unit % coefficient == 0:
                found = found + floor_div(self.by, Poly.constant(self.unit // coefficient))
            else:
                found = found + Poly(((tuple(map(self.expr, monomial)), coefficient),))
        return found

    def _gathered(self, value: Poly) -> Poly:
        """A part of the unit goes into a division that makes it whole: 2 * x + y // 16 is (32 * x + y) // 16."""
        part = value.coefficient((self.atom,))
        if part <= 0 or self.unit % part or part == self.unit:
            return value
        for monomial, factor in value.terms:
            match monomial:
                case (Binary("//", inner, IntLit(size)),) if factor == 1 and size * part == self.unit:
                    whole = to_expr(poly(inner) + Poly.atom(self.atom) * self.unit)
                    rest = value.without(monomial).without((self.atom,))
                    return rest + Poly.atom(Binary("//", whole, IntLit(size)))
                case _:
                    pass
        return value

    def expr(self, atom: Expr) -> Expr:
        """The parts of an atom that is made of others."""
        if atom == self.atom:
            return atom
        return map_children(atom, lambda x: to_expr(self.poly(poly(x))) if isinstance(x, Expr) else x)
