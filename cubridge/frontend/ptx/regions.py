"""The regions of a foreign kernel: what its rows compute, from slices of several lanes, rows and key tiles that must agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cubridge.frontend.ptx.carried import cut
from cubridge.frontend.ptx.finish import FINAL_TOTAL, Stored, finish_formula, stored_rows
from cubridge.frontend.ptx.geometry import Geometry, over_tile
from cubridge.frontend.ptx.masks import Placed, score_and_mask
from cubridge.frontend.ptx.row import (
    MAXIMUM,
    NEW_MAXIMUM,
    OUTPUT,
    SCALE,
    SCORE,
    TOTAL,
    Lane,
    RowReader,
    RowStep,
    Sample,
)
from cubridge.frontend.ptx.run import Run
from cubridge.frontend.ptx.slices import Slices
from cubridge.frontend.ptx.values import Node, Value
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
from cubridge.ir.trace import LANES, Register

_FEWEST_TILES: Final = 2
_LOWEST: Final = Unary("-", Name("inf"))


@dataclass(frozen=True, slots=True)
class Rows:
    """What all rows have in common. `cast`: what weights are rounded to."""

    regions: tuple[Function, ...]
    cast: str | None


@dataclass(frozen=True, slots=True)
class _Read:
    """Of one lane's row: what it does with some key tiles, by their steps, and what it ends with."""

    steps: dict[int, RowStep]
    output: Expr
    lse: Expr | None

    @property
    def form(self) -> tuple[object, ...]:
        first = next(iter(self.steps.values()))
        return first.form, self.output


def read_rows(run: Run, geometry: Geometry) -> Rows:
    """One row over all whole key tiles, a few more over one. Errors: CU854."""
    whole = [t for t, act in run.acts("read", "k") if act.tile.kept == act.tile.rows]
    if len(whole) < _FEWEST_TILES:
        raise CuError(Diagnostic("CU854", "no block that is followed has two whole key tiles", run.loop.span))
    found = [_read_row(run, *chosen, whole if n == 0 else whole[1:2]) for n, chosen in enumerate(_chosen(run))]
    first = next(iter(found[0].steps.values()))
    for read in found:
        for step in read.steps.values():
            _check_alike(step, read, first, found[0])
    samples = [
        _placed(run, geometry, t, sample) for read in found for t, step in read.steps.items() for sample in step.samples
    ]
    score, mask = score_and_mask(samples)
    lse = next((f.lse for f in found if f.lse is not None), None)
    if lse is None and run.acts("store", "lse"):
        raise CuError(
            Diagnostic("CU854", "no lane that is followed shows all that a log-sum-exp is made of", run.loop.span)
        )
    return Rows(tuple(_Regions(geometry, first, found[0], score, mask, lse).functions()), first.cast)


def _check_alike(step: RowStep, read: _Read, first: RowStep, first_read: _Read) -> None:
    span = step.spans["weight"]
    if (step.form, read.output) != (first.form, first_read.output):
        raise CuError(Diagnostic("CU854", "rows of one kernel are computed in several ways", span))
    if read.lse is not None and first_read.lse is not None and read.lse != first_read.lse:
        raise CuError(Diagnostic("CU854", "rows of one kernel have log-sum-exps of several forms", span))
    if step.weight.holes or step.scale.holes:
        raise CuError(Diagnostic("CU854", "a weight depends on its place and not on its score alone", span))


def _chosen(run: Run) -> list[tuple[Slices, Stored]]:
    """A few rows: of the first warp and the last, of lanes apart; with slices of what follows the loop."""
    lanes = [(0, 0), (0, 5), (run.trace.warps - 1, LANES - 4)]
    found: list[tuple[Slices, Stored]] = []
    for warp in sorted({w for w, _ in lanes}):
        ends = cut(run.slices, run.loop, warp, run.loop.stops[warp])
        rows = stored_rows(ends, run.layout, [x for x in lanes if x[0] == warp])
        found += [(ends, row) for row in sorted(rows, key=lambda r: (r.lane, r.row)) if row.is_whole]
    if not found:
        raise CuError(
            Diagnostic("CU854", "no lane that is followed shows all that a row is computed by", run.loop.span)
        )
    return found


def _read_row(run: Run, ends: Slices, stored: Stored, tiles: list[int]) -> _Read:
    outputs = stored.outputs()
    lane = Lane(stored.warp, stored.lane, stored.row)
    steps: dict[int, RowStep] = {}
    for t in tiles:
        iteration = run.loop.iteration(stored.warp, t)
        slices = cut(run.slices, run.loop, stored.warp, iteration.start)
        steps[t] = RowReader(slices, run.layout, lane, iteration.stop).read(outputs)
    last = steps[tiles[-1]]
    _check_start(run, stored, last, list(outputs.values()))
    forms = {finish_formula(ends, stored, v, outputs[c], last).expr for c, v in stored.columns.items()}
    if len(forms) != 1:
        raise CuError(Diagnostic("CU854", "columns of the output are finished in several ways", run.loop.span))
    lse = None if stored.lse is None else finish_formula(ends, stored, stored.lse, None, last).expr
    return _Read(steps, forms.pop(), lse)


def _check_start(run: Run, stored: Stored, step: RowStep, outputs: list[tuple[bool, int]]) -> None:
    """Before the first key tile the maximum is -inf, and sum and output are zero."""
    start = run.loop.starts[stored.warp][0]
    wanted = {step.maximum: float("-inf"), step.total: 0.0, **dict.fromkeys(outputs, 0.0)}
    for register, number in wanted.items():
        value = run.slices.register(start, Register(register[1], 4), stored.lane, stored.warp)
        if _number(value) != number:
            raise CuError(Diagnostic("CU854", f"a row begins with another number than {number}", step.spans["max"]))


def _number(value: Value) -> float | None:
    if isinstance(value, Node) and value.op == "number" and isinstance(value.data, float):
        return value.data
    return 0.0 if isinstance(value, Poly) and value.as_int() == 0 else None


def _placed(run: Run, geometry: Geometry, t: int, sample: Sample) -> Placed:
    start, key = geometry.work.row, geometry.key_row(t)
    i = start + (sample.i - run.slices.numeric(start))
    return Placed(sample.score, i, key + (sample.j - run.slices.numeric(key)))


class _Regions:
    """Writes the regions."""

    def __init__(
        self, geometry: Geometry, step: RowStep, read: _Read, score: Expr, mask: Expr | None, lse: Expr | None
    ) -> None:
        self.geometry, self.step, self.read, self.score, self.mask, self.lse = geometry, step, read, score, mask, lse

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
        values = {"lo": to_expr(lo), "hi": _tile_count(hi), "full_lo": Name("lo"), "full_hi": Name("lo")}
        body: list[Stmt] = [Assign(Name(name), value, span=span) for name, value in values.items()]
        return body, Record("KeySequence", tuple(Argument(n, Name(n)) for n in values)), span

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
        span = self.score.span
        return [] if self.score == SCORE else [Assign(SCORE, self.score, span=span)], None, span

    def _mask(self) -> tuple[list[Stmt], Expr | None, Span]:
        if self.mask is None:
            return [], None, self.step.spans["max"]
        span = self.mask.span
        return [Assign(SCORE, Call("where", (self.mask, SCORE, _LOWEST), span=span), span=span)], None, span

    def _row_init(self) -> tuple[list[Stmt], Expr | None, Span]:
        span = self.geometry.spans["loop"]
        return [Assign(MAXIMUM, _LOWEST, span=span), Assign(TOTAL, FloatLit(0.0), span=span)], None, span

    def _row_update(self) -> tuple[list[Stmt], Expr | None, Span]:
        spans = self.step.spans
        top = Call("maximum", (MAXIMUM, Call("rowmax", (SCORE,))), span=spans["max"])
        body: list[Stmt] = [
            Assign(NEW_MAXIMUM, top, span=spans["max"]),
            Assign(SCALE, self.step.scale.expr, span=spans["scale"]),
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
        output = self.read.output
        body: list[Stmt] = [Assign(FINAL_TOTAL, Call("add_lanes", (TOTAL,)), span=self.step.spans["sum"])]
        if self.lse is not None:
            body.append(Assign(Name("lse"), self.lse, span=self.lse.span))
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
