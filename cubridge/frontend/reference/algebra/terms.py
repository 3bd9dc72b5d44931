"""Terms: the scalar expressions that a traced element is made of, hash-consed so that equal terms are one object.

    Const 3        Size Lq       Index i < Lq     Symbol s       Poly 2*i*Lq - j + 1       Apply exp(..), where(..), j >= 0
    Load bias[b, h, i, j]        Reduce sum(r0 < Lk: ..)

Only the constructors in `integers`, `predicates`, `reals` and `reduce` build terms: they keep the normal forms.
A bound index is named `r<height of the body>`, so equal reductions are equal terms and substitution never captures.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from time import monotonic
from typing import Final, TypeVar
from zlib import crc32

from cubridge.ir.source import NOWHERE, Span

NO_NAMES: Final[frozenset[str]] = frozenset()


class Sort(StrEnum):
    """What a term's value is. Reals are exact; floating point rounding is not modelled."""

    BOOL = "bool"
    INT = "int"
    REAL = "real"


Number = bool | int | float | Fraction


class Term:
    """Base of all terms; compared by identity.

    `free`: names of free indices. `reads`: names of the tensors and, with a leading `$`, of the symbols below.
    `height`: how deep reductions nest. `depth`: how deep the term is. `digest`: a stable hash that orders operands.
    `selects`: a `where` stands in it, outside reductions and subscripts.
    """

    __slots__ = ("depth", "digest", "free", "height", "reads", "selects", "sort")
    sort: Sort
    free: frozenset[str]
    reads: frozenset[str]
    height: int
    depth: int
    digest: int
    selects: bool

    def children(self) -> tuple[Term, ...]:
        return ()

    def __reduce__(self) -> str:
        raise TypeError("terms belong to the arena of one trace")


class Const(Term):
    """A number. A real is a float where one is exact, else a fraction: 1 / 3 stays 1 / 3."""

    __slots__ = ("value",)
    value: Number

    def __repr__(self) -> str:
        return repr(self.value)


class Size(Term):
    """An extent of the problem, at least 1: B, G (query heads of a key head), Hk, Lq, Lk, D."""

    __slots__ = ("name",)
    name: str

    def __repr__(self) -> str:
        return self.name


class Index(Term):
    """An index variable with values 0 .. extent - 1."""

    __slots__ = ("extent", "name")
    name: str
    extent: Term

    def children(self) -> tuple[Term, ...]:
        return (self.extent,)

    def __repr__(self) -> str:
        return self.name


class Symbol(Term):
    """A real that the spec names: the dot product, the score, the row shift, the accumulator, a row reduction."""

    __slots__ = ("name",)
    name: str

    def __repr__(self) -> str:
        return f"${self.name}"


Monomial = tuple[Term, ...]


class Poly(Term):
    """An integer polynomial: monomials of atoms with integer coefficients, in canonical order."""

    __slots__ = ("monomials",)
    monomials: tuple[tuple[Monomial, int], ...]

    def children(self) -> tuple[Term, ...]:
        return tuple(atom for monomial, _ in self.monomials for atom in monomial)

    def __repr__(self) -> str:
        return "(" + " + ".join("*".join([str(c), *map(repr, m)]) for m, c in self.monomials) + ")"


class Apply(Term):
    """An operation on terms; `op` is a key of `rebuild.BUILDERS`."""

    __slots__ = ("args", "op")
    op: str
    args: tuple[Term, ...]

    def children(self) -> tuple[Term, ...]:
        return self.args

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.args))})"


class Load(Term):
    """One element of a named tensor."""

    __slots__ = ("indices", "tensor")
    tensor: str
    indices: tuple[Term, ...]

    def children(self) -> tuple[Term, ...]:
        return self.indices

    def __repr__(self) -> str:
        return f"{self.tensor}[{', '.join(map(repr, self.indices))}]"


class Reduce(Term):
    """`kind` (sum, max, min, any) of `body` over all values of `index`."""

    __slots__ = ("body", "index", "kind")
    kind: str
    index: Index
    body: Term

    def children(self) -> tuple[Term, ...]:
        return (self.index, self.body)

    def __repr__(self) -> str:
        return f"{self.kind}({self.index.name} < {self.index.extent!r}: {self.body!r})"


# ---- the arena -------------------------------------------------------------------------------------------------------


class BudgetError(Exception):
    """The trace made more terms, or took more time, than it may."""


@dataclass(slots=True)
class Arena:
    """What the terms of one trace share: the table that makes them unique, where each was made, facts, assumptions."""

    max_terms: int = 400_000
    max_seconds: float = 20.0
    here: Span = NOWHERE
    table: dict[tuple[object, ...], Term] = field(default_factory=dict)
    places: dict[Term, Span] = field(default_factory=dict)
    facts: list[Term] = field(default_factory=list)  # integers known to be >= 0 (preconditions)
    assumptions: dict[str, Span] = field(default_factory=dict)
    subscripts: dict[tuple[Term, Term], Span] = field(default_factory=dict)  # integers that must be in range(extent)
    flags: dict[str, Span] = field(default_factory=dict)  # tensors that must hold 0 and 1 alone
    no_flags: frozenset[str] = NO_NAMES  # tensors and numbers that were seen to hold others
    finite: dict[str, Span] = field(default_factory=dict)  # tensors that are multiplied by 0
    absorbed: dict[str, Span] = field(default_factory=dict)  # tensors that are added to a fill
    positive: dict[Term, Span] = field(default_factory=dict)  # captured factors of an infinite fill
    divisors: dict[Term, Span] = field(default_factory=dict)  # integers that must not be 0
    roots: dict[Term, Span] = field(default_factory=dict)  # captured numbers that must not be negative
    bases: dict[Term, Span] = field(default_factory=dict)  # captured numbers that powers are of, which must be positive
    limits: dict[tuple[Term, int], Span] = field(default_factory=dict)  # integers, and what their type holds in size
    whole_symbols: set[Term] = field(default_factory=set)  # symbols of row reductions that are integers
    bit_operations: dict[Span, str] = field(default_factory=dict)  # `&` on numbers, a likely slip of precedence
    nonnegative: dict[Term, bool] = field(default_factory=dict)  # memo of bounds.nonneg
    negations: dict[Term, Term] = field(default_factory=dict)  # memo of predicates.negation
    implications: dict[tuple[Term, Term], bool] = field(default_factory=dict)  # memo of predicates.implies
    junctions: dict[tuple[object, ...], Term] = field(default_factory=dict)  # memo of and, or
    started: float = field(default_factory=monotonic)

    def learn(self, conditions: list[Term]) -> None:
        """Take these conditions on sizes as true from here on. What was tried without them may now be shown."""
        self.facts = [t.children()[0] for t in conditions if is_op(t, ">=0")]
        for memo in (self.nonnegative, self.negations, self.implications, self.junctions):
            memo.clear()

    def admit(self, key: tuple[object, ...], term: Term) -> None:
        self.table[key] = term
        self.places[term] = self.here
        size = len(self.table)
        if size > self.max_terms or (size % 1024 == 0 and monotonic() - self.started > self.max_seconds):
            raise BudgetError


_ARENA: ContextVar[Arena] = ContextVar("arena")


@contextmanager
def new_arena(arena: Arena | None = None) -> Generator[Arena]:
    """All terms made inside belong to one arena."""
    arena = arena or Arena()
    token = _ARENA.set(arena)
    try:
        yield arena
    finally:
        _ARENA.reset(token)


def arena() -> Arena:
    return _ARENA.get()


def assume(what: str) -> None:
    """Record that the normal form relies on `what`."""
    current = _ARENA.get()
    current.assumptions.setdefault(what, current.here)


# ---- raw constructors ------------------------------------------------------------------------------------------------

AnyTerm = TypeVar("AnyTerm", bound=Term)


def _digest(*parts: str | int) -> int:
    """Equal in every run: only integers are hashed, never a string."""
    return hash(tuple(crc32(part.encode()) if isinstance(part, str) else part for part in parts))


def _finish(
    key: tuple[object, ...],
    term: AnyTerm,
    sort: Sort,
    free: frozenset[str] = NO_NAMES,
    reads: frozenset[str] = NO_NAMES,
    height: int = 0,
    depth: int = 0,
) -> AnyTerm:
    term.sort, term.free, term.reads, term.height, term.depth = sort, free, reads, height, depth
    term.selects = isinstance(term, Apply) and (term.op == "where" or any(a.selects for a in term.args))
    _ARENA.get().admit(key, term)
    return term


def _below(kids: tuple[Term, ...]) -> tuple[frozenset[str], frozenset[str], int, int]:
    free, reads, height, depth = NO_NAMES, NO_NAMES, 0, 0
    for kid in kids:
        if kid.free is not free:
            free = free | kid.free if free else kid.free
        if kid.reads is not reads:
            reads = reads | kid.reads if reads else kid.reads
        if kid.height > height:
            height = kid.height
        if kid.depth > depth:
            depth = kid.depth
    return free, reads, height, depth + 1


_SHARED: dict[tuple[object, ...], Term] = {}
"""Constants and sizes belong to every arena, so that modules may name them."""


def const(value: Number) -> Const:
    kind = type(value)
    if kind is Fraction and float(value) == value:
        value, kind = float(value), float
    key = (Const, kind, repr(value) if kind is float else value)
    found = _SHARED.get(key)
    if found is None:
        found = Const()
        found.value = value
        found.sort = Sort.BOOL if kind is bool else Sort.INT if kind is int else Sort.REAL
        found.free, found.reads, found.height, found.depth = NO_NAMES, NO_NAMES, 0, 0
        found.digest, found.selects = _digest("const", repr(value)), False
        _SHARED[key] = found
    assert isinstance(found, Const)
    return found


def size(name: str) -> Size:
    key = (Size, name)
    found = _SHARED.get(key)
    if found is None:
        found = Size()
        found.name = name
        found.sort, found.free, found.reads, found.height, found.depth = Sort.INT, NO_NAMES, NO_NAMES, 0, 0
        found.digest, found.selects = _digest("size", name), False
        _SHARED[key] = found
    assert isinstance(found, Size)
    return found


def index(name: str, extent: Term) -> Index:
    key = (Index, name, extent)
    found = _ARENA.get().table.get(key)
    if found is not None:
        assert isinstance(found, Index)
        return found
    term = Index()
    term.name, term.extent = name, extent
    term.digest = _digest("index", name)
    return _finish(key, term, Sort.INT, extent.free | {name}, extent.reads, depth=1)


def symbol(name: str) -> Symbol:
    key = (Symbol, name)
    found = _ARENA.get().table.get(key)
    if found is not None:
        assert isinstance(found, Symbol)
        return found
    term = Symbol()
    term.name = name
    term.digest = _digest("symbol", name)
    return _finish(key, term, Sort.REAL, NO_NAMES, frozenset(("$" + name,)))


def raw_poly(monomials: tuple[tuple[Monomial, int], ...]) -> Poly:
    key = (Poly, monomials)
    found = _ARENA.get().table.get(key)
    if found is not None:
        assert isinstance(found, Poly)
        return found
    term = Poly()
    term.monomials = monomials
    term.digest = _digest("poly", *(x for m, c in monomials for x in (c, *(a.digest for a in m))))
    return _finish(key, term, Sort.INT, *_below(term.children()))


def apply(op: str, args: tuple[Term, ...], sort: Sort) -> Apply:
    key = (Apply, op, args, sort)
    found = _ARENA.get().table.get(key)
    if found is not None:
        assert isinstance(found, Apply)
        return found
    term = Apply()
    term.op, term.args = op, args
    term.digest = _digest(op, *(a.digest for a in args))
    return _finish(key, term, sort, *_below(args))


def load(tensor: str, indices: tuple[Term, ...], sort: Sort) -> Load:
    key = (Load, tensor, indices)
    found = _ARENA.get().table.get(key)
    if found is not None:
        assert isinstance(found, Load)
        return found
    term = Load()
    term.tensor, term.indices = tensor, indices
    term.digest = _digest("load", tensor, *(a.digest for a in indices))
    free, reads, height, depth = _below(indices)
    return _finish(key, term, sort, free, reads | {tensor}, height, depth)


def raw_reduce(kind: str, over: Index, body: Term) -> Reduce:
    key = (Reduce, kind, over, body)
    found = _ARENA.get().table.get(key)
    if found is not None:
        assert isinstance(found, Reduce)
        return found
    term = Reduce()
    term.kind, term.index, term.body = kind, over, body
    term.digest = _digest("reduce", kind, over.digest, body.digest)
    free, reads, height, depth = _below((over.extent, body))
    return _finish(key, term, body.sort, free - {over.name}, reads, height + 1, depth)


# ---- questions -------------------------------------------------------------------------------------------------------


def order(term: Term) -> tuple[int, int, int]:
    """The canonical order of operands: constants first, then by reduction depth, then by structure."""
    return (not isinstance(term, Const), term.height, term.digest)


def is_const(term: Term, value: float | None = None) -> bool:
    return isinstance(term, Const) and (value is None or term.value == value)


def is_op(term: Term, op: str) -> bool:
    return isinstance(term, Apply) and term.op == op


def op_args(term: Term, op: str) -> tuple[Term, ...]:
    """The operands if the term is an `op`, else the term alone: flattens sums, products, conjunctions."""
    return term.args if isinstance(term, Apply) and term.op == op else (term,)


def walk(term: Term) -> Iterator[Term]:
    """Every distinct subterm, outermost first."""
    seen: set[Term] = set()
    stack = [term]
    while stack:
        top = stack.pop()
        if top in seen:
            continue
        seen.add(top)
        yield top
        stack.extend(reversed(top.children()))


def sizes_only(term: Term) -> bool:
    """No index, no tensor element, no symbol: the same number for the whole launch."""
    return not term.free and not term.reads
