"""The key sequence for all sizes: which key tiles a query tile visits, and which of them without the mask.

Shown is that no key that a row sees lies outside the visited tiles, that every key of an unmasked tile is seen by every row, that
masked tiles hide exactly the keys that the reference hides, and that no tile is visited twice or begins before the first key."""

from __future__ import annotations

from dataclasses import dataclass, field

from cubridge.ir.nodes import Call, Expr, IntLit, Name
from cubridge.ir.walk import substitute
from cubridge.judge.proof import smt
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.part import Wrong
from cubridge.judge.proof.regions import Regions
from cubridge.judge.proof.smt import Claim, Number
from cubridge.judge.proof.unproved import Unproved


@dataclass
class KeyProof:
    """`seen`: the keys that a row must not miss, j < Lk included; `mask`: those that the mask of the kernel leaves."""

    regions: Regions
    integers: Integers
    seen: Claim
    mask: Claim
    tile: Expr = field(init=False)
    count: Number = field(init=False)
    masked: Claim = field(init=False)
    in_tile: tuple[Claim, ...] = field(init=False)

    def __post_init__(self) -> None:
        integers, regions = self.integers, self.regions
        q_start, number = integers.unknown("q_start"), integers.unknown("query tile")
        fields = regions.record("key_sequence")
        self.tile = regions.returned("key_tile", fields)
        steps = (integers.unknown("t"), integers.unknown("u"))
        self.count = integers.integer(regions.returned("key_count", fields))
        self.masked = integers.boolean(regions.returned("key_masked", fields))
        first = self._tile(steps[0]) * regions.keys
        self.in_tile = (self._is_step(steps[0]), smt.between(first, integers.unknown("j"), first + regions.keys))
        integers.facts += [
            smt.compared("==", q_start, number * regions.rows),
            smt.between(smt.whole(0), q_start, integers.unknown("Lq")),
            smt.between(q_start, integers.unknown("i"), q_start + regions.rows),
        ]

    def check(self) -> None:
        """Errors: Wrong with a point; Unproved."""
        t, u = self.integers.unknown("t"), self.integers.unknown("u")
        before = smt.compared(">=", self._tile(t), smt.whole(0))
        self._require(before, "a key tile begins before the first key", self._is_step(t))
        other = smt.compared("!=", self._tile(t), self._tile(u))
        order = smt.compared("<", t, u)
        self._require(other, "a key tile is visited twice", self._is_step(t), self._is_step(u), order)
        self._require(self._is_visited(), "the reference sees it, and it is never visited", self.seen)
        unmasked = (*self.in_tile, smt.negation(self.masked))
        self._require(self.seen, "the reference does not see it, and its tile is walked as full", *unmasked)

    def check_within(self) -> None:
        """No key tile begins past the last key. Errors: Unproved."""
        t = self.integers.unknown("t")
        before = smt.compared("<", self._tile(t) * self.regions.keys, self.integers.unknown("Lk"))
        if not self.integers.holds(before, self._is_step(t)):
            raise Unproved("a key tile past the last key may be visited, where captured values are read")

    def check_mask(self) -> None:
        """In masked tiles. Errors: Wrong with a point; Unproved."""
        if self.integers.holds(smt.compared("==", self.mask, self.seen)):
            return
        given = (*self.in_tile, self.masked)
        hidden = "the reference sees it, the answer does not"
        self._require(smt.implies(self.seen, self.mask), hidden, *given)
        shown = "the answer sees it, the reference does not"
        self._require(smt.implies(self.mask, self.seen), shown, *given)

    def _require(self, claim: Claim, message: str, *given: Claim) -> None:
        point = self.integers.refuted(claim, *given)
        if point is not None:
            raise Wrong(message, point)

    def _is_step(self, t: Number) -> Claim:
        return smt.between(smt.whole(0), t, self.count)

    def _tile(self, step: Number) -> Number:
        """The key tile of a step."""
        return self.integers.integer(substitute(self.tile, {"t": Name(str(step))}))

    def _is_visited(self) -> Claim:
        """Some step has the tile of key j: a step is found by solving each branch of `key_tile` for it."""
        t = self.integers.unknown("t")
        wanted = smt.floor_div(self.integers.unknown("j"), smt.whole(self.regions.keys))
        steps = [self._step_of(leaf, wanted) for leaf in _branches(self.tile)]
        right = smt.compared("==", self._tile(t), wanted)
        return smt.any_of(*(smt.all_of(self._is_step(s), smt.put(right, t, s)) for s in steps))

    def _step_of(self, leaf: Expr, wanted: Number) -> Number:
        first, second = (self.integers.integer(substitute(leaf, {"t": IntLit(n)})) for n in (0, 1))
        slope = smt.as_int(smt.simplified(second - first))
        if slope not in (1, -1):
            raise Unproved("`key_tile` is no step up or down by one tile")
        return (wanted - first) * slope


def _branches(tile: Expr) -> list[Expr]:
    match tile:
        case Call("where", (_, then, otherwise)):
            return [*_branches(then), *_branches(otherwise)]
        case _:
            return [tile]
