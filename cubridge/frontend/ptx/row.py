"""One row of one key tile as a lane computes it: scores, running state, weights, and what the row's output becomes in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cubridge.frontend.ptx.formula import Formula, Formulas, leaves, refuse
from cubridge.frontend.ptx.layout import Layout, Place
from cubridge.frontend.ptx.reach import RegisterKey
from cubridge.frontend.ptx.slices import Slices
from cubridge.frontend.ptx.values import Node, Value, element_of, is_zero, span_of, states_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Attr, Expr, Name
from cubridge.ir.source import Span
from cubridge.ir.trace import Register

_SUMS: Final = ("add", "sum")
NEW_MAXIMUM: Final = Name("m_new")
SCALE: Final = Attr(Name("row"), "o_scale")
MAXIMUM: Final = Attr(Name("row"), "m")
TOTAL: Final = Attr(Name("row"), "l")
SCORE: Final = Name("s")
OUTPUT: Final = Name("o")


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane, and which query row of it is read."""

    warp: int
    lane: int
    row: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A score of the tile, with its formula before the softmax."""

    i: int
    j: int
    score: Formula


@dataclass(frozen=True, slots=True)
class RowStep:
    """What a row does with a key tile: `m` becomes `maximum(row.m, rowmax(s))`, `l` becomes `row.l * row.o_scale +
    partial_rowsum(s)`, where s is the score, then its `weight`. `cast`: what a weight is rounded to before it is multiplied; None
    if it is not."""

    samples: tuple[Sample, ...]
    weight: Formula
    scale: Formula
    cast: str | None
    maximum: RegisterKey
    total: RegisterKey
    lanes: frozenset[int]
    spans: dict[str, Span] = field(compare=False)

    @property
    def form(self) -> tuple[object, ...]:
        """What all rows have in common."""
        return self.weight.expr, self.scale.expr, self.cast, len(self.lanes)


@dataclass(slots=True)
class RowReader:
    """Reads what a lane's row does in one iteration. `slices` are cut at its beginning."""

    slices: Slices
    layout: Layout
    lane: Lane
    end: int
    scores: dict[int, tuple[Place, Place] | None] = field(default_factory=dict[int, "tuple[Place, Place] | None"])

    def read(self, outputs: Mapping[int, RegisterKey]) -> RowStep:
        """`outputs`: by column, the registers that carry the row's output. Errors: CU854."""
        weights, scale, cast = self._output(outputs)
        maximum, top = self._maximum(scale)
        lanes = self._lanes(top)
        scores = self._masked_scores(top, maximum)
        total, added = self._total(weights, scale, lanes)
        formulas = {f.expr: f for f in (self._weight(node, scores.get(j), top) for j, node in weights.items())}
        first = next(iter(weights.values()))
        if len(formulas) != 1:
            raise CuError(Diagnostic("CU854", "the keys of a tile have weights of several forms", first.span))
        if set(scores) != set(weights):
            raise CuError(Diagnostic("CU854", "the maximum of a row is of other keys than its weights", top.span))
        samples = tuple(Sample(self.lane.row, j, Formulas(self._raw).of(node)) for j, node in sorted(scores.items()))
        spans = {"max": top.span, "weight": first.span, "sum": added, "scale": span_of(scale)}
        weight = next(iter(formulas.values()))
        return RowStep(samples, weight, self._scale(scale, top, maximum), cast, maximum, total, lanes, spans)

    def new(self, register: RegisterKey) -> Value:
        """What a register holds at the end of the iteration."""
        return self.slices.register(self.end, Register(register[1], 4), self.lane.lane, self.lane.warp)

    # ---- scores ----

    def score(self, node: Value) -> tuple[Place, Place] | None:
        """The query row and key of a product over the whole head dim; None for anything else."""
        if not isinstance(node, Node) or node.op not in _SUMS:
            return None
        if id(node) not in self.scores:
            self.scores[id(node)] = self._product(node)
        return self.scores[id(node)]

    def _product(self, node: Node) -> tuple[Place, Place] | None:
        columns: set[int] = set()
        rows: set[tuple[Place, Place]] = set()
        for term in leaves(node, _SUMS):
            if is_zero(term):
                continue
            pair = self._factors(term)
            if pair is None or pair[0].column != pair[1].column or pair[0].column in columns:
                return None
            columns.add(pair[0].column)
            rows.add((_row_of(pair[0]), _row_of(pair[1])))
        return rows.pop() if len(rows) == 1 and len(columns) == self.layout.width("q") else None

    def _factors(self, term: Value) -> tuple[Place, Place] | None:
        """Elements of q and k that are multiplied."""
        if not isinstance(term, Node) or term.op != "mul":
            return None
        found = [element_of(a) for a in term.args]
        places = {e.tensor: self.layout.place_of(e.tensor, e.offset) for e in found if e is not None}
        return (places["q"], places["k"]) if set(places) == {"q", "k"} else None

    # ---- the output ----

    def _output(self, outputs: Mapping[int, RegisterKey]) -> tuple[dict[int, Node], Value, str | None]:
        """Weights by key, what the output so far is multiplied by, and what weights are rounded to."""
        weights: dict[int, Node] = {}
        scales: dict[int, Value] = {}
        casts: set[str | None] = set()
        for column, register in outputs.items():
            for term in leaves(self.new(register), _SUMS):
                if is_zero(term):
                    continue
                factor = self._carried_times(term, register)
                if factor is not None:
                    scales[id(factor)] = factor
                    continue
                key, weight, cast = self._weighted(term, column)
                casts.add(cast)
                if weights.setdefault(key, weight) is not weight:
                    raise CuError(Diagnostic("CU854", "a key has two weights", weight.span))
        if len(scales) != 1 or len(casts) != 1 or not weights:
            message = "the output of a row is not scaled and added to alike in all columns"
            raise CuError(Diagnostic("CU854", message, span_of(self.new(next(iter(outputs.values()))))))
        return weights, next(iter(scales.values())), casts.pop()

    def _weighted(self, term: Value, column: int) -> tuple[int, Node, str | None]:
        """A weight times an element of v, whose row is the key."""
        if isinstance(term, Node) and term.op == "mul":
            for value, weight in (term.args, term.args[::-1]):
                element = element_of(value)
                if element is not None and element.tensor == "v" and isinstance(weight, Node):
                    cast = str(weight.data) if weight.op == "cast" else None
                    inner = weight.args[0] if weight.op == "cast" else weight
                    assert isinstance(inner, Node)
                    place = self.layout.place_of("v", element.offset)
                    if place.column != column:
                        message = f"column {column} of the output adds up column {place.column} of the values"
                        raise CuError(Diagnostic("CU854", message, term.span))
                    return place.row, inner, cast
        if isinstance(term, Node):
            refuse(term)
        raise CuError(Diagnostic("CU854", "an integer is added to the output"))

    # ---- the running state ----

    def _maximum(self, scale: Value) -> tuple[RegisterKey, Node]:
        """The carried register that takes the maximum of the scores: the one that the scale of the output reads."""
        for register in states_of(scale):
            found = self.new(register)
            if isinstance(found, Node) and found.op == "max":
                return register, found
        raise CuError(Diagnostic("CU854", "the output of a row is scaled by no running maximum", span_of(scale)))

    def _lanes(self, top: Node) -> frozenset[int]:
        """The lanes that share the row: those whose maxima so far its maximum is of."""
        mine = {id(term) for term in leaves(top, ("max",))}
        return frozenset(lane for (_, lane, _), node in self.slices.states.items() if id(node) in mine)

    def _masked_scores(self, top: Node, maximum: RegisterKey) -> dict[int, Node]:
        """Of each key, the node that the maximum is taken of."""
        found: dict[int, Node] = {}
        for term in leaves(top, ("max",)):
            if isinstance(term, Node) and term.op == "state" and term.data == maximum:
                continue
            places = self._scores_in(term)
            if len(places) != 1:
                message = "a term of the maximum of a row is made of no single score"
                raise CuError(Diagnostic("CU854", message, span_of(term)))
            query, key = places.pop()
            if query.row != self.lane.row or found.setdefault(key.row, term) is not term:  # pyright: ignore[reportArgumentType]
                message = "the maximum of a row takes in scores of another row, or one twice"
                raise CuError(Diagnostic("CU854", message, span_of(term)))
        return found

    def _scores_in(self, node: Value) -> set[tuple[Place, Place]]:
        found: set[tuple[Place, Place]] = set()
        waiting: list[Value] = [node]
        while waiting:
            at = waiting.pop()
            if not isinstance(at, Node):
                continue
            score = self.score(at)
            if score is not None:
                found.add(score)
            else:
                waiting += at.args
        return found

    def _total(self, weights: dict[int, Node], scale: Value, lanes: frozenset[int]) -> tuple[RegisterKey, Span]:
        """The carried register that adds up this lane's weights: its share of those of the row."""
        mine = {id(w): j for j, w in weights.items()}
        for register in sorted(set(self.slices.boundary.carried.values())):
            value = self.new(register)
            terms = [t for t in leaves(value, _SUMS) if not is_zero(t)]
            added = [mine[id(t)] for t in terms if id(t) in mine]
            rest = [t for t in terms if id(t) not in mine]
            if not added:
                continue
            if len(rest) != 1 or self._carried_times(rest[0], register) is not scale:
                raise CuError(Diagnostic("CU854", "the sum of weights is not scaled as the output is", span_of(value)))
            if len(set(added)) != len(added) or len(added) * len(lanes) != len(weights):
                raise CuError(Diagnostic("CU854", "a lane adds up other weights than its share", span_of(value)))
            return register, span_of(value)
        raise CuError(Diagnostic("CU854", "nothing adds up the weights of a row", span_of(scale)))

    def _carried_times(self, term: Value, register: RegisterKey) -> Value | None:
        """What this lane's carried register is multiplied by in a term; None for another term."""
        state = self.slices.states.get((self.lane.warp, self.lane.lane, register))
        if state is None or not isinstance(term, Node) or term.op != "mul" or state not in term.args:
            return None
        return term.args[1] if term.args[0] is state else term.args[0]

    # ---- formulas ----

    def _raw(self, node: Node) -> Expr | None:
        return SCORE if self.score(node) is not None else None

    def _weight(self, node: Node, score: Node | None, top: Node) -> Formula:
        def leaf(at: Node) -> Expr | None:
            if at is score:
                return SCORE
            return MAXIMUM if self._is_maximum(at, top) else None

        return Formulas(leaf).of(node)

    def _is_maximum(self, node: Node, top: Node) -> bool:
        """Is it the maximum of the same values, as another lane takes it."""
        return node is top or (node.op == "max" and _terms(node) == _terms(top))

    def _scale(self, node: Value, top: Node, maximum: RegisterKey) -> Formula:
        before = {id(t) for t in leaves(top, ("max",)) if isinstance(t, Node) and t.data == maximum}

        def leaf(at: Node) -> Expr | None:
            if self._is_maximum(at, top):
                return NEW_MAXIMUM
            return MAXIMUM if id(at) in before and at.op == "state" else None

        return Formulas(leaf).of(node)


def _row_of(place: Place) -> Place:
    return Place(place.tensor, place.b, place.h, place.row, 0)


def _terms(node: Node) -> frozenset[int]:
    return frozenset(map(id, leaves(node, ("max",))))
