"""Finds the attention in the term of one output element.

    out[b, h, i, e] = finalize(sum_j w(s, ..) v[b, kv(h), j, e], row reductions)     s = sum_d q[b, h, i, d] k[b, kv(h), j, d]

The one sum over v is the accumulator. Products of q and k become the symbol `s`, reductions over keys become row symbols;
whatever else touches q, k, v or the output column is refused at the line that made it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import nonneg
from cubridge.frontend.reference.algebra.integers import ONE
from cubridge.frontend.reference.algebra.numbers import integral, split_product
from cubridge.frontend.reference.algebra.predicates import TRUE, at_least_zero, conjunction, implies
from cubridge.frontend.reference.algebra.reals import mul, power
from cubridge.frontend.reference.algebra.reduce import rebuilt_in_place, reduce, replace, substitute
from cubridge.frontend.reference.algebra.selection import is_masking, where
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Index,
    Load,
    Reduce,
    Symbol,
    Term,
    arena,
    const,
    index,
    is_const,
    load,
    symbol,
    walk,
)
from cubridge.frontend.reference.lift import Computed
from cubridge.frontend.reference.printing import text
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.scaling import Scaling
from cubridge.ir.source import NOWHERE, Span

QK: Final = frozenset(("q", "k"))
QKV: Final = frozenset(("q", "k", "v"))


@dataclass(frozen=True, slots=True)
class Axes:
    """The index variables of the attention, with their extents."""

    b: Index
    h: Index
    i: Index
    j: Index
    e: Index
    d_extent: Term
    hk_extent: Term

    @property
    def extents(self) -> dict[str, Term]:
        return {x.name: x.extent for x in (self.b, self.h, self.i, self.j, self.e)}


RowKind = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class Row:
    """A reduction over keys, as the symbol `name`."""

    name: str
    kind: RowKind
    over: Term
    body: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Attention:
    """The parts found, before the normalizer is brought into its stable form. All are terms over symbols and indices."""

    weight: Term
    mask: Term
    rows: tuple[Row, ...]
    finalize: Term
    lse: Term | None
    kv_head: Term
    computed: tuple[Computed, ...]
    span: Span


def place_of(term: Term) -> Span:
    """Where the term was made; of a term that a rewrite made, where a part of it was."""
    places = arena().places
    for part in walk(term):
        span = places.get(part, NOWHERE)
        if span is not NOWHERE:
            return span
    return NOWHERE


S: Final = "s"
ACC: Final = "acc"


def extract(out: Term, lse: Term | None, axes: Axes) -> Attention:
    """Errors: CU480 to CU487, each at the place in the user's code."""
    out = over_all_keys(out, axes)
    lse = None if lse is None else over_all_keys(lse, axes)
    accumulator = _accumulator(out, axes)
    mask, _ = _masked(accumulator, axes)
    out = _with_visible_keys(out, mask, axes)
    lse = None if lse is None else _with_visible_keys(lse, mask, axes)
    out, lse = _without_row_shifts(out, lse)
    accumulator = _accumulator(out, axes)
    mask, body = _masked(accumulator, axes)
    weight, kv_head = _weight_and_head(accumulator, body, axes)
    reader = _Reader(axes, kv_head, accumulator)
    mask = reader.read(mask, axes.j)
    weight = reader.read(weight, axes.j)
    finalize = reader.read(out, None)
    lse = None if lse is None else reader.read(lse, None)
    if "$" + ACC not in finalize.reads:
        refuse("CU480", "the sum over v cancels out of the output", place_of(out))
    return Attention(
        weight, mask, tuple(reader.rows), finalize, lse, kv_head, tuple(reader.computed), place_of(accumulator)
    )


# ---- the accumulator -------------------------------------------------------------------------------------------------


def _accumulator(out: Term, axes: Axes) -> Reduce:
    sums = [r for r in walk(out) if isinstance(r, Reduce) and "v" in r.reads]
    if not sums:
        refuse("CU480", "the output does not come from a sum over the keys of v", place_of(out), "return weights @ v")
    outer = next((r for r in sums if any(isinstance(x, Reduce) and "v" in x.reads for x in walk(r.body))), None)
    if outer is not None:
        refuse(
            "CU480", "the weighted sum of v is reduced again", place_of(outer), "apply what follows outside the kernel"
        )
    if len(sums) > 1:
        refuse(
            "CU480",
            f"{len(sums)} different sums over v: two attentions, or heads, rows or key ranges mixed",
            place_of(sums[0]),
            "an attention kernel computes one weighted sum of v for each row",
        )
    found = sums[0]
    if found.kind != "sum" or found.index.extent is not axes.j.extent:
        what = "summed" if found.kind == "sum" else f"reduced by {found.kind}"
        refuse("CU480", f"v is {what} over {text(found.index.extent)}, not summed over its keys", place_of(found))
    return found


def _masked(accumulator: Reduce, axes: Axes) -> tuple[Term, Term]:
    """(mask, body at key j)."""
    body = substitute(accumulator.body, {accumulator.index.name: axes.j})
    if isinstance(body, Apply) and body.op == "where" and is_const(body.args[2], 0):
        return body.args[0], body.args[1]
    return TRUE, body


def _weight_and_head(accumulator: Reduce, body: Term, axes: Axes) -> tuple[Term, Term]:
    """(weight, key head): the factors beside v, and the head that v is read at."""
    number, factors = split_product(body)
    reads = [base for base, exponent in factors if isinstance(base, Load) and base.tensor == "v" and exponent == 1]
    if len(reads) != 1 or any("v" in base.reads for base, _ in factors if base is not reads[0]):
        refuse("CU480", "v enters otherwise than as one factor of the sum over keys", place_of(accumulator))
    batch, head, row, column = reads[0].indices
    if batch is not axes.b or row is not axes.j or column is not axes.e:
        wrong = next(x for x, want in ((batch, axes.b), (row, axes.j), (column, axes.e)) if x is not want)
        refuse(
            "CU481", f"v is read at {_subscript(reads[0])}, not at [b, kv(h), j, e]", _place_of_index(wrong, reads[0])
        )
    if not head.free <= {"h"} or head.reads & QKV:
        message = f"v is read at head {text(head)}, which is not a function of the query head"
        refuse("CU481", message, _place_of_index(head, reads[0]))
    weight: Term = const(float(number)) if number.denominator == 1 else const(number)
    for base, exponent in factors:
        if base is not reads[0]:
            weight = mul(weight, power(base, exponent))
    return weight, head


def _subscript(read: Load) -> str:
    return "[" + ", ".join(map(text, read.indices)) + "]"


def _place_of_index(index: Term, read: Load) -> Span:
    """Where the index was made, else where the element was first read."""
    place = arena().places.get(index, NOWHERE)
    return place_of(read) if place is NOWHERE or isinstance(index, Index) else place


# ---- parts of the keys -----------------------------------------------------------------------------------------------


def over_all_keys(term: Term, axes: Axes) -> Term:
    """Reductions over a slice of the keys as reductions over all of them, the others masked."""
    known: dict[Term, Term] = {}
    for part in walk(term):
        if isinstance(part, Reduce) and part.index.extent is not axes.j.extent:
            start = _slice_start(part, axes)
            if start is not None:
                known[part] = _widened(part, start, axes)
    return over_all_keys(replace(term, known), axes) if known else term


def _slice_start(term: Reduce, axes: Axes) -> Term | None:
    """The first key of the slice that the reduction runs over; None where it runs over something else."""
    rows = {
        x.indices[2]
        for x in walk(term.body)
        if isinstance(x, Load) and x.tensor in ("k", "v") and term.index.name in x.indices[2].free
    }
    if len(rows) != 1:
        return None
    start = integers.sub(rows.pop(), term.index)
    stop = integers.add(start, term.index.extent)
    inside = term.index.name not in start.free and nonneg(start) and nonneg(integers.sub(axes.j.extent, stop))
    return start if inside else None


def _widened(term: Reduce, start: Term, axes: Axes) -> Term:
    key = index(f"{term.index.name}w", axes.j.extent)
    offset = integers.sub(key, start)
    inside = conjunction(
        at_least_zero(offset), at_least_zero(integers.sub(integers.sub(term.index.extent, offset), ONE))
    )
    body = substitute(term.body, {term.index.name: offset})
    match term.kind:
        case "any":
            return reduce("any", key, conjunction(inside, body))
        case kind:
            neutral = {"sum": 0.0, "max": -math.inf, "min": math.inf}[kind]
            return reduce(kind, key, where(inside, body, const(neutral)))


# ---- rows without keys, row shifts -----------------------------------------------------------------------------------


def _with_visible_keys(term: Term, mask: Term, axes: Axes) -> Term:
    """The term for rows that see a key: rows that see none give 0 whatever the reference does."""
    known: dict[Term, Term] = {}
    for part in walk(term):
        if isinstance(part, Reduce) and part.kind == "any" and part.index.extent is axes.j.extent:
            if implies(mask, substitute(part.body, {part.index.name: axes.j})):
                known[part] = TRUE
    return replace(term, known) if known else term


def _without_row_shifts(out: Term, lse: Term | None) -> tuple[Term, Term | None]:
    """Sets to 0 each row constant inside an exponential that provably does not change the results."""
    probe = symbol("t")
    refused: set[Term] = set()
    while True:
        candidate = next((c for c in _shift_candidates(out, lse) if c not in refused), None)
        if candidate is None:
            return out, lse
        scaling = Scaling(probe)
        free_of_it = scaling.factor(replace(out, {candidate: probe})) == 0
        if free_of_it and lse is not None:
            free_of_it = scaling.addend(replace(lse, {candidate: probe})) == 0
        if free_of_it:
            zero = {candidate: const(0.0)}
            out, lse = replace(out, zero), None if lse is None else replace(lse, zero)
        else:
            refused.add(candidate)


def _shift_candidates(*terms: Term | None) -> list[Term]:
    """Row constants computed from scores that stand as summands of exponents, outermost first."""
    found: dict[Term, None] = {}
    for term in terms:
        for part in walk(term) if term is not None else ():
            if not (isinstance(part, Apply) and part.op == "exp"):
                continue
            exponent = part.args[0]
            for summand in exponent.args if isinstance(exponent, Apply) and exponent.op == "add" else (exponent,):
                _, factors = split_product(summand)
                if len(factors) == 1 and factors[0][1] == 1 and _is_row_statistic(factors[0][0]):
                    found[factors[0][0]] = None
    return list(found)


def _is_row_statistic(term: Term) -> bool:
    """Reads scores only below reductions, and no index of a key or column."""
    return bool(term.reads & QK) and term.free <= {"b", "h", "i"} and not isinstance(term, Symbol)


# ---- reading the parts -----------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Replaces q.k by `s` and reductions over keys by row symbols, from the inside out."""

    axes: Axes
    kv_head: Term
    accumulator: Reduce
    rows: list[Row] = field(default_factory=list)
    computed: list[Computed] = field(default_factory=list)
    memo: dict[tuple[Term, Index | None], Term] = field(default_factory=dict)

    def read(self, term: Term, key: Index | None) -> Term:
        """`key`: the index over keys that is bound here; None where there is none."""
        if not (term.reads & QKV or self.axes.e.name in term.free or _has_reduction(term)):
            return term
        found = self.memo.get((term, key))
        if found is None:
            found = self.memo[term, key] = self._read(term, key)
        return found

    def _read(self, term: Term, key: Index | None) -> Term:
        if term is self.accumulator:
            return symbol(ACC)
        if self._is_of_one_side(term, key):
            return self._captured(term, key)
        if isinstance(term, Reduce):
            return self._reduction(term, key)
        if isinstance(term, Load) and term.tensor in QKV:
            refuse("CU482", f"{term.tensor} is used outside q.k and the sum over keys", place_of(term), _OUTSIDE)
        children = term.children()
        if self.axes.e in children:
            refuse("CU482", "the output column enters the formula", place_of(term), _OUTSIDE)
        changed = tuple(self.read(c, key) for c in children)
        same = all(a is b for a, b in zip(children, changed, strict=True))
        return term if same else rebuilt_in_place(term, changed)

    def _reduction(self, term: Reduce, key: Index | None) -> Term:
        over_keys = term.index.extent is self.axes.j.extent
        if term.reads >= QK and _is_product_sum(term):
            return self._dot_product(term, key)
        if "v" in term.reads:
            refuse("CU480", f"v is reduced by {term.kind} outside the weighted sum", place_of(term))
        if term.reads & QK:
            if not _is_over_keys(term):
                if term.reads >= QK:
                    self._refuse_reduction(term)
                return self._captured(term, key)
            if not over_keys:
                self._refuse_reduction(term)
            return self._row(term, key)
        if over_keys and self.axes.i.name in term.free and key is None:
            return self._row(term, key)
        return self._captured(term, key)

    def _refuse_reduction(self, term: Reduce) -> None:
        """A reduction of scores over something else than the keys of the row."""
        rows = any(isinstance(x, Load) and x.tensor == "q" and term.index in x.indices[:3] for x in walk(term.body))
        what = {0: "the batch", 1: "heads", 2: "query rows"}
        for x in walk(term.body):
            if rows and isinstance(x, Load) and x.tensor == "q" and term.index in x.indices[:3]:
                axis = what[x.indices.index(term.index)]
                refuse(
                    "CU483",
                    f"{_VERB[term.kind]} over {axis}: scores of different rows are mixed",
                    place_of(term),
                    _MIXED,
                )
        refuse(
            "CU483",
            f"{_VERB[term.kind]} over {text(term.index.extent)} of values computed from q and k is not a reduction over keys",
            place_of(term),
            _MIXED,
        )

    # ---- s -----------------------------------------------------------------------------------------------------------

    def _dot_product(self, term: Reduce, key: Index | None) -> Term:
        axes, index = self.axes, term.index
        reads = {x.tensor: x for x in walk(term.body) if isinstance(x, Load) and x.tensor in QK}
        if index.extent is not axes.d_extent:
            self._refuse_reduction(term)
        number, factors = split_product(term.body)
        loads = [base for base, exponent in factors if isinstance(base, Load) and exponent == 1]
        if number != 1 or len(factors) != 2 or {x.tensor for x in loads} != QK:
            refuse("CU484", "q and k are changed per column before their product", place_of(term), _BEFORE)
        q, k = reads["q"], reads["k"]
        self._check_query(q, term, key)
        batch, head, row, column = k.indices
        if key is None or batch is not axes.b or row is not key or column is not index:
            at = _subscript(k) if key is not None else "no key index"
            wrong = next((x for x, want in ((batch, axes.b), (row, key), (column, index)) if x is not want), row)
            refuse("CU484", f"k is read at {at}, not at [b, kv(h), j, d]", _place_of_index(wrong, k), _BEFORE)
        if head is not self.kv_head:
            message = f"k is read at head {text(head)}, v at head {text(self.kv_head)}"
            refuse("CU484", message, _place_of_index(head, k), "map both alike")
        return symbol(S)

    def _check_query(self, q: Load, term: Reduce, key: Index | None) -> None:
        axes = self.axes
        batch, head, row, column = q.indices
        if key is not None and row is key:
            refuse("CU483", "normalised over query rows, not over keys", place_of(term), "use dim=-1")
        if batch is not axes.b or head is not axes.h or row is not axes.i or column is not term.index:
            wanted = ((batch, axes.b), (head, axes.h), (row, axes.i), (column, term.index))
            wrong = next(x for x, want in wanted if x is not want)
            refuse("CU484", f"q is read at {_subscript(q)}, not at [b, h, i, d]", _place_of_index(wrong, q), _BEFORE)

    # ---- rows and captures -------------------------------------------------------------------------------------------

    def _row(self, term: Reduce, key: Index | None) -> Term:
        """A reduction over keys of this row."""
        if key is not None and key.name in term.free:
            refuse(
                "CU485",
                "a reduction over keys inside another: a cumulative sum or two softmaxes",
                place_of(term),
                _PASSES,
            )
        kind = _ROW_KINDS.get(term.kind)
        if kind is None:
            refuse("CU485", f"`{term.kind}` over the keys of a row is not a number", place_of(term))
        body, over = term.body, TRUE
        for x in walk(body):
            if isinstance(x, Load) and x.tensor == "q" and term.index in x.indices:
                refuse("CU483", "normalised over query rows, not over keys", place_of(term), "use dim=-1")
        if isinstance(body, Apply) and body.op == "where" and _is_neutral(body.args[2], term.kind):
            over, body = body.args[0], body.args[1]
        at_j = {term.index.name: self.axes.j}
        over = substitute(self.read(over, term.index), at_j)
        body = substitute(self.read(body, term.index), at_j)
        for row in self.rows:
            if row.kind == kind and row.over is over and row.body is body:
                return symbol(row.name)
        row = Row(f"R{len(self.rows) + 1}", kind, over, body, place_of(term))
        self.rows.append(row)
        if kind == "sum" and integral(body) is not None:
            arena().whole_symbols.add(symbol(row.name))
        return symbol(row.name)

    def _is_of_one_side(self, term: Term, key: Index | None) -> bool:
        """A value of the row made from q alone, or of the key made from k alone: the factor of a normalised q or k."""
        axes = self.axes
        match term.reads & QKV:
            case found if found == {"q"} and term.free <= {"b", "h", "i"}:
                pass
            case found if found == {"k"} and key is not None and term.free <= {"b", "h", key.name}:
                pass
            case _:
                return False
        if any(isinstance(x, Load) and x.tensor in QK for x in _outside_reductions(term)):
            return False
        reductions = [x for x in walk(term) if isinstance(x, Reduce) and x.reads & QK]
        return all(x.index.extent is axes.d_extent and not _is_over_keys(x) for x in reductions)

    def _captured(self, term: Term, key: Index | None) -> Term:
        """A value of q alone, of k alone or of captures: a tensor computed before the launch."""
        self._check_reads(term)
        term_, indices, subscripts = self._own_axes(term, key)
        for known in self.computed:
            if known.term is term_:
                return load(known.name, subscripts, term.sort)
        stem = f"{'q' if 'q' in term.reads else 'k'}_factor" if term.reads & QK else "computed"
        used = sum(c.name.startswith(stem) for c in self.computed)
        name = f"{stem}{used + 1}" if used else stem
        self.computed.append(Computed(name, indices, term_, place_of(term)))
        return load(name, subscripts, term.sort)

    def _check_reads(self, term: Term) -> None:
        for x in walk(term):
            if isinstance(x, Load) and x.tensor == "q" and x.indices[:3] != (self.axes.b, self.axes.h, self.axes.i):
                refuse("CU484", f"q is read at {_subscript(x)}, not at [b, h, i, d]", place_of(term), _BEFORE)
        if self.axes.e.name in term.free:
            refuse("CU482", "the output column enters the formula", place_of(term), _OUTSIDE)

    def _own_axes(self, term: Term, key: Index | None) -> tuple[Term, tuple[Index, ...], tuple[Term, ...]]:
        """The term over index variables of its own, and the subscripts that read it here. Of k alone it varies with the key
        head, not with the query head."""
        subscripts: list[Term] = []
        if "h" in term.free and self.kv_head is not self.axes.h:
            head = index("hk", self.axes.hk_extent)
            by_head = replace(term, {self.kv_head: head})
            if "h" not in by_head.free:
                term, subscripts = by_head, [self.kv_head]
        free = sorted((x for x in walk(term) if isinstance(x, Index) and x.name in term.free), key=_axis_order)
        own = tuple(index("j_" if x is key else f"{x.name}_", x.extent) for x in free)
        renamed = substitute(term, {x.name: y for x, y in zip(free, own, strict=True)})
        places = tuple(subscripts[0] if x.name == "hk" else x for x in free)
        return renamed, own, places


_ORDER: Final = {"b": 0, "h": 1, "hk": 1, "i": 2, "j": 3}


def _axis_order(x: Index) -> int:
    return _ORDER.get(x.name, 3)


def _has_reduction(term: Term) -> bool:
    return term.height > 0


def _is_neutral(term: Term, kind: str) -> bool:
    match kind:
        case "sum":
            return is_const(term, 0)
        case "max":
            return is_masking(term)
        case _:
            return isinstance(term, Const) and (term.value == math.inf or term.value >= 1e8)


def _is_product_sum(term: Reduce) -> bool:
    """A sum whose body multiplies elements of q and k, rather than one of values made of scores."""
    if term.kind != "sum":
        return False
    direct = {x.tensor for x in _outside_reductions(term.body) if isinstance(x, Load)}
    return direct >= QK


def _is_over_keys(term: Reduce) -> bool:
    """Does the index select keys (or something else than a column) below?"""
    inside = [x for x in walk(term.body) if isinstance(x, Load) and x.tensor in QK]
    return any(term.index.name in subscript.free for x in inside for subscript in x.indices[:3])


def _outside_reductions(term: Term) -> list[Term]:
    found: list[Term] = []
    stack = [term]
    while stack:
        top = stack.pop()
        found.append(top)
        if not isinstance(top, Reduce):
            stack.extend(top.children())
    return found


_ROW_KINDS: Final[dict[str, RowKind]] = {"sum": "sum", "max": "max", "min": "min"}
_VERB: Final = {"sum": "a sum", "max": "a maximum", "min": "a minimum", "any": "a test", "all": "a test"}
_OUTSIDE: Final = "apply it to q, k, v before, or to the output after the kernel"
_BEFORE: Final = "change q and k before the kernel, and pass the changed ones"
_MIXED: Final = "a kernel computes each row from its own scores; normalise over the last dimension"
_PASSES: Final = "a kernel passes over the keys once"
