"""A key sequence that walks lists, for all sizes. What a list holds is what its predicate says (`TileList`); shown is that the
predicate is the reference's mask, that the key sequence walks the list of its query tile from end to end, and that the mask hides
exactly the keys that the reference hides."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.judge.proof import smt
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.part import Wrong
from cubridge.judge.proof.regions import Execution, Regions
from cubridge.judge.proof.smt import Claim
from cubridge.judge.proof.unproved import Unproved
from cubridge.passes.list_tiles import walked_lists


@dataclass(frozen=True, slots=True)
class ListProof:
    """`seen`: the keys that a row must not miss, j < Lk included; `mask`: those that the mask of the kernel leaves."""

    regions: Regions
    integers: Integers
    seen: Claim
    mask: Claim

    def check(self) -> None:
        """Errors: Wrong with a point; Unproved."""
        kind = walked_lists(self.regions.kernel)
        if kind is None:
            raise Unproved("its lists are walked in another way than list-tiles writes")
        keep = self.integers.boolean(Execution(self.regions, dict(self.regions.tile)).formula(kind.keep))
        inside = smt.compared("<", self.integers.unknown("j"), self.integers.unknown("Lk"))
        self._require(smt.implies(self.seen, keep), "the reference sees it, and no list is made for it")
        self._require(self.seen, "the reference does not see it, and its tile may be listed as full", keep, inside)

    def check_within(self) -> None:
        """Lists hold tiles that begin before the last key."""

    def check_mask(self) -> None:
        """Everywhere, since any tile may be listed as masked. Errors: Wrong with a point; Unproved."""
        if self.integers.holds(smt.compared("==", self.mask, self.seen)):
            return
        self._require(smt.implies(self.seen, self.mask), "the reference sees it, the answer does not")
        self._require(smt.implies(self.mask, self.seen), "the answer sees it, the reference does not")

    def _require(self, claim: Claim, message: str, *given: Claim) -> None:
        point = self.integers.refuted(claim, *given)
        if point is not None:
            raise Wrong(message, point)
