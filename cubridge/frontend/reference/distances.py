"""What the score reads of captured tensors by the distance i - j becomes one vector by distance, computed before the launch.

An element of it is one load at an affine place: neighbouring rows and columns of a thread share theirs, and what was computed of
distances, indices or several tables is computed once a launch. It reaches as far past both ends as tiles reach past the lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.constructors import construct, rebuilt_in_place
from cubridge.frontend.reference.algebra.reduce import substitute
from cubridge.frontend.reference.algebra.terms import Index, Load, Reduce, Sort, Term, arena, const, index, is_op, walk
from cubridge.frontend.reference.attention import QKV, Axes, place_of
from cubridge.frontend.reference.lift import Lifter
from cubridge.frontend.reference.normalizer import Normalizer
from cubridge.ir.contract import KEY_PADDING

NAME: Final = "by_distance"


def by_distance(found: Normalizer, lifter: Lifter, axes: Axes) -> Normalizer:
    """With one load in the score for each part of captured tensors that are read by distance."""
    return replace(found, score=_Reader(lifter, axes).read(found.score))


@dataclass(frozen=True, slots=True)
class _Reader:
    lifter: Lifter
    axes: Axes

    def read(self, term: Term) -> Term:
        if not self._reads_by_distance(term):
            return term
        vector = self._vector(term)
        if vector is not None:
            return vector
        if is_op(term, "add"):
            return self._sum(term)
        return rebuilt_in_place(term, tuple(self.read(c) for c in term.children()))

    def _sum(self, term: Term) -> Term:
        """The summands by distance as one vector, and the others."""
        of_data = [c for c in term.children() if self._of_distance(c) is not None and any(map(_is_load, walk(c)))]
        others = tuple(self.read(c) for c in term.children() if c not in of_data)
        if not of_data:
            return rebuilt_in_place(term, others)
        vector = self._vector(construct("add", *of_data))
        assert vector is not None
        return construct("add", *others, vector)

    def _reads_by_distance(self, term: Term) -> bool:
        """Is an element of a captured tensor read at a place of both i and j?"""
        pair = {self.axes.i.name, self.axes.j.name}
        return any(_is_load(x) and pair <= x.free and not x.reads & QKV for x in walk(term))

    def _vector(self, term: Term) -> Term | None:
        """The load in place of `term`; None where that is no function of captured tensors and the distance."""
        made = self._of_distance(term)
        if made is None:
            return None
        arena().here = place_of(term)
        outer = [x for x in (self.axes.b, self.axes.h) if x.name in made.free]
        own = [index(f"{x.name}_", x.extent) for x in outer]
        renamed = self._with_places(substitute(made, {x.name: o for x, o in zip(outer, own, strict=True)}))
        place = integers.add(integers.sub(self.axes.i, self.axes.j), self._zero())
        return self.lifter.table(NAME, renamed, (*own, self._places()), (*outer, place))

    def _with_places(self, term: Term) -> Term:
        """With subscripts that follow from sizes alone as tables of their own, which calls share."""
        children = tuple(self._with_places(c) for c in term.children())
        if isinstance(term, Load):
            children = tuple(self._place(c) for c in children)
        return rebuilt_in_place(term, children)

    def _place(self, subscript: Term) -> Term:
        places = self._places()
        plain = isinstance(subscript, Index) or subscript.free != frozenset((places.name,))
        if plain or not all(self.lifter.is_of_sizes(name) for name in subscript.reads):
            return subscript
        return self.lifter.table("places", subscript, (places,), (places,))

    def _of_distance(self, term: Term) -> Term | None:
        """The term over places in the vector, the nearest distance that there is where there is none."""
        i, j = self.axes.i, self.axes.j
        if term.sort is not Sort.REAL or term.reads & QKV or any(isinstance(x, Reduce) for x in walk(term)):
            return None
        known = {x.name for x in (self.axes.b, self.axes.h, i, j)}
        if any(name.startswith("$") for name in term.reads) or not term.free <= known:
            return None
        first, last = integers.sub(const(1), j.extent), integers.sub(i.extent, const(1))
        distance = integers.minimum(integers.maximum(integers.sub(self._places(), self._zero()), first), last)
        made = substitute(term, {i.name: integers.add(j, distance)})
        return None if j.name in made.free else made

    def _zero(self) -> Term:
        """The place of distance 0."""
        return integers.add(self.axes.j.extent, const(KEY_PADDING - 1))

    def _places(self) -> Index:
        return index("t_", integers.add(self.axes.i.extent, self.axes.j.extent, const(2 * KEY_PADDING - 1)))


def _is_load(term: Term) -> bool:
    return isinstance(term, Load)
