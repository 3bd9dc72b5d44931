"""One row of one key tile as a lane computes it: scores, running state, weights, and what the row's output becomes in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cubridge.frontend.ptx.formula import Formula, Formulas, leaves, ordered, refuse
from cubridge.frontend.ptx.layout import Layout, Place
from cubridge.frontend.ptx.slices import Key, Slices
from cubridge.frontend.ptx.values import Node, Value, element_of, is_zero, nodes_of, span_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Attr, Expr, Name
from cubridge.ir.source import Span

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
class Ends:
    """What a row has when an iteration is done, by what made it: its output by column, its maximum, its share of the sum. `totals`:
    among them is that share; `maximum`: None where nothing behind the iteration says."""

    outputs: Mapping[int, Key]
    totals: tuple[Key, ...]
    maximum: Key | None


@dataclass(frozen=True, slots=True)
class Link:
    """How a row's state goes through an iteration: the maximum that it has then, what made its share of the sum, the lanes that
    share the row. `scale` and `before` are None of the first key tile, which finds -inf and zeros."""

    top: Node
    scale: Value | None
    total: Key
    lanes: frozenset[int]
    before: Ends | None
    slices: Slices = field(repr=False)

    def is_maximum(self, root: Key) -> bool:
        return is_maximum(self.slices.made(root), self.top)


@dataclass(frozen=True, slots=True)
class RowStep:
    """What a row does with a key tile: `m` becomes `maximum(row.m, rowmax(s))`, `l` becomes `row.l * row.o_scale +
    partial_rowsum(s)`, where s is the score, then its `weight`. `cast`: what a weight is rounded to before it is multiplied; None
    if it is not. `scale` is None of the first key tile."""

    samples: tuple[Sample, ...]
    weight: Formula
    scale: Formula | None
    cast: str | None
    spans: dict[str, Span] = field(compare=False)

    @property
    def is_masked(self) -> bool:
        """Is a score hidden by its place."""
        return any(sample.score.holes for sample in self.samples)


@dataclass(slots=True)
class RowReader:
    """Reads what a lane's row does in one iteration. `slices` end at its beginning."""

    slices: Slices
    layout: Layout
    lane: Lane
    is_first: bool
    scores: dict[int, tuple[Place, Place] | None] = field(default_factory=dict[int, "tuple[Place, Place] | None"])

    def link(self, ends: Ends) -> Link:
        """Errors: CU854 where output and sum are not scaled alike by a running maximum."""
        carried, scale = self._carried(ends.outputs)
        if scale is None:
            top = self._first_maximum(ends)
            return Link(top, None, self._first_total(ends), frozenset(), None, self.slices)
        top = self._running_maximum(scale)
        self._check_top(ends, top)
        before = states_of_terms(leaves(top, ("max",)))
        total, rest = self._scaled_total(ends, scale)
        own = next((root for root in before if root[2] == self.lane.lane), None)
        lanes = frozenset(root[2] for root in before)
        return Link(top, scale, total, lanes, Ends(carried, (rest,), own), self.slices)

    def read(self, ends: Ends, link: Link) -> RowStep:
        """Errors: CU854."""
        weights, cast = self._weights(ends.outputs)
        scores = self._masked_scores(link.top)
        if set(scores) != set(weights):
            message = "the maximum of a row is of other keys than its weights"
            raise CuError(Diagnostic("CU854", message, link.top.span))
        added = self._check_total(link, weights)
        formulas = {
            ordered(f.expr): f for f in (self._weight(node, scores[j], link.top) for j, node in weights.items())
        }
        first = next(iter(weights.values()))
        if len(formulas) != 1:
            raise CuError(Diagnostic("CU854", "the keys of a tile have weights of several forms", first.span))
        samples = tuple(Sample(self.lane.row, j, Formulas(self._raw).of(node)) for j, node in sorted(scores.items()))
        spans = {"max": link.top.span, "weight": first.span, "sum": added, "scale": span_of(link.scale or first)}
        scale = None if link.scale is None else self._scale(link.scale, link.top)
        return RowStep(samples, next(iter(formulas.values())), scale, cast, spans)

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

    def _carried(self, outputs: Mapping[int, Key]) -> tuple[dict[int, Key], Value | None]:
        """What made the output so far, by column, and what it is multiplied by; nothing of the first tile."""
        carried: dict[int, Key] = {}
        scales: dict[int, Value] = {}
        for column, root in outputs.items():
            for found in filter(None, map(self._carried_times, leaves(self.slices.made(root), _SUMS))):
                carried[column], scale = found
                scales[id(scale)] = scale
        alike = len(scales) == 1 and len(set(carried.values())) == len(outputs)
        if not alike and not (self.is_first and not scales):
            message = "the output of a row is not scaled and added to alike in all columns"
            raise CuError(Diagnostic("CU854", message, self._span(outputs)))
        return carried, next(iter(scales.values()), None)

    def _span(self, outputs: Mapping[int, Key]) -> Span:
        return span_of(self.slices.made(next(iter(outputs.values()))))

    def _weights(self, outputs: Mapping[int, Key]) -> tuple[dict[int, Node], str | None]:
        """By key, and what they are rounded to."""
        weights: dict[int, Node] = {}
        casts: set[str | None] = set()
        for column, root in outputs.items():
            for term in leaves(self.slices.made(root), _SUMS):
                if _vanishes(term) or self._carried_times(term) is not None:
                    continue
                key, weight, cast = self._weighted(term, column)
                casts.add(cast)
                if weights.setdefault(key, weight) is not weight:
                    raise CuError(Diagnostic("CU854", "a key has two weights", weight.span))
        if len(casts) != 1:
            raise CuError(Diagnostic("CU854", "weights are rounded in several ways", self._span(outputs)))
        return weights, casts.pop()

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

    def _running_maximum(self, scale: Value) -> Node:
        """The maximum that the scale of the output reads, over maxima so far, one of each lane that shares the row."""
        for node in nodes_of(scale):
            if node.op == "max":
                lanes = [root[2] for root in states_of_terms(leaves(node, ("max",)))]
                if self.lane.lane in lanes and len(set(lanes)) == len(lanes):
                    return node
        raise CuError(Diagnostic("CU854", "the output of a row is scaled by no running maximum", span_of(scale)))

    def _first_maximum(self, ends: Ends) -> Node:
        """Of scores alone, from -inf on."""
        top = None if ends.maximum is None else self.slices.made(ends.maximum)
        if not isinstance(top, Node) or top.op != "max":
            raise CuError(Diagnostic("CU854", "the first key tile leaves no maximum", self._span(ends.outputs)))
        numbers = {t.data for t in leaves(top, ("max",)) if isinstance(t, Node) and t.op == "number"}
        if numbers - {float("-inf")}:
            raise CuError(Diagnostic("CU854", "a row begins with another maximum than -inf", top.span))
        return top

    def _check_top(self, ends: Ends, top: Node) -> None:
        """What goes on as the row's maximum is that of its own scores."""
        goes_on = top if ends.maximum is None else self.slices.made(ends.maximum)
        if is_maximum(goes_on, top):
            return
        if isinstance(goes_on, Node):
            self._masked_scores(goes_on)
        raise CuError(
            Diagnostic("CU854", "weights are relative to another maximum than the one that goes on", top.span)
        )

    def _masked_scores(self, top: Node) -> dict[int, Node]:
        """Of each key, the node that the maximum is taken of."""
        found: dict[int, Node] = {}
        for term in leaves(top, ("max",)):
            if isinstance(term, Node) and term.op in ("state", "number"):
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

    def _scaled_total(self, ends: Ends, scale: Value) -> tuple[Key, Key]:
        """What made this lane's share of the sum of weights, now and before: it is scaled as the output is."""
        unscaled: Value | None = None
        for root in ends.totals:
            value = self.slices.made(root)
            for term in leaves(value, _SUMS):
                found = self._carried_times(term)
                if found is not None and found[1] is scale:
                    return root, found[0]
                if isinstance(term, Node) and term.op == "state" and value is not term:
                    unscaled = value
        if unscaled is not None:
            message = "the sum of weights is not scaled as the output is"
            raise CuError(Diagnostic("CU854", message, span_of(unscaled)))
        raise CuError(Diagnostic("CU854", "nothing adds up the weights of a row", span_of(scale)))

    def _first_total(self, ends: Ends) -> Key:
        """What the next key tile goes on from."""
        if len(ends.totals) != 1:
            message = "nothing goes on from the first key tile as a sum of weights"
            raise CuError(Diagnostic("CU854", message, self._span(ends.outputs)))
        return ends.totals[0]

    def _check_total(self, link: Link, weights: dict[int, Node]) -> Span:
        """This lane adds up its share of the weights of the row."""
        mine = {id(w): j for j, w in weights.items()}
        value = self.slices.made(link.total)
        terms = [t for t in leaves(value, _SUMS) if not _vanishes(t)]
        added = [mine[id(t)] for t in terms if id(t) in mine]
        rest = [t for t in terms if id(t) not in mine]
        share = len(weights) // len(link.lanes) if link.lanes else len(added)
        if len(rest) != (link.before is not None) or len(set(added)) != len(added) or not added or len(added) != share:
            raise CuError(Diagnostic("CU854", "a lane adds up other weights than its share", span_of(value)))
        return span_of(value)

    def _carried_times(self, term: Value) -> tuple[Key, Value] | None:
        """What this lane has carried here, and what that is multiplied by in a term; None for another term."""
        if not isinstance(term, Node) or term.op != "mul":
            return None
        for state, factor in (term.args, term.args[::-1]):
            if isinstance(state, Node) and state.op == "state" and root_of(state)[2] == self.lane.lane:
                return root_of(state), factor
        return None

    # ---- formulas ----

    def _raw(self, node: Node) -> Expr | None:
        return SCORE if self.score(node) is not None else None

    def _weight(self, node: Node, score: Node, top: Node) -> Formula:
        def leaf(at: Node) -> Expr | None:
            if at is score:
                return SCORE
            return MAXIMUM if is_maximum(at, top) else None

        return Formulas(leaf).of(node)

    def _scale(self, node: Value, top: Node) -> Formula:
        before = {id(t) for t in leaves(top, ("max",))}

        def leaf(at: Node) -> Expr | None:
            if is_maximum(at, top):
                return NEW_MAXIMUM
            return MAXIMUM if id(at) in before and at.op == "state" else None

        return Formulas(leaf).of(node)


def root_of(state: Node) -> Key:
    """What made a state."""
    return state.data  # pyright: ignore[reportReturnType]


def states_of_terms(terms: Sequence[Value]) -> list[Key]:
    return [root_of(t) for t in terms if isinstance(t, Node) and t.op == "state"]


def is_maximum(value: Value, top: Node) -> bool:
    """Is it the maximum of the same values, as another lane takes it."""
    return value is top or (isinstance(value, Node) and value.op == "max" and _terms(value) == _terms(top))


def _vanishes(term: Value) -> bool:
    """Zero, or zero times something."""
    return is_zero(term) or (isinstance(term, Node) and term.op == "mul" and any(map(is_zero, term.args)))


def _row_of(place: Place) -> Place:
    return Place(place.tensor, place.b, place.h, place.row, 0)


def _terms(node: Node) -> frozenset[int]:
    return frozenset(map(id, leaves(node, ("max",))))
