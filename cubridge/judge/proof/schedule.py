"""The schedule for all sizes: the work tiles are all query tiles of all heads and batches, once each, with the key head of the
reference.

That each work tile is a query tile, and that no two are the same one, is enough: there are as many of both. Of two work tiles
with the same query tile, the values that the schedule computes are shown to be the same one by one, until the work is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.nodes import (
    SIZES,
    Assign,
    Attr,
    Binary,
    Break,
    Call,
    Expr,
    If,
    IntLit,
    Kernel,
    Name,
    Scalar,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.tile_shape import query_tile, size_of
from cubridge.ir.walk import substitute, walk
from cubridge.judge.proof import smt
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.memory import PROOFS
from cubridge.judge.proof.regions import Execution, Regions
from cubridge.judge.proof.smt import Claim, Number
from cubridge.judge.proof.unproved import Unproved

_HEAD: Final = Attr(Name("tile"), "h")
_KEY_HEAD: Final = Attr(Name("tile"), "hk")
_EFFORT: Final = 4_000_000
_DEPTHS: Final = (0, 1, 2)
_QUERY_TILES: Final = "query tiles"


def check_schedule(kernel: Kernel, spec: AttentionSpec, integers: Integers) -> None:
    """Errors: Unproved."""
    found = key_head(kernel)
    if found != spec.kv_head:
        claim = smt.compared("==", integers.integer(found), integers.integer(spec.kv_head))
        if not integers.holds(claim):
            raise Unproved("query heads may read other key heads than the reference's")
    because = _not_once(kernel)
    if because:
        raise Unproved(because)


def key_head(kernel: Kernel) -> Expr:
    """The key head of query head h. Errors: Unproved if it follows from something else."""
    run = Execution(Regions(kernel))
    for statement in kernel.schedule.body:
        match statement:
            case Assign(Attr(Name("tile"), "h"), _):
                run.places[_HEAD] = Name("h")
            case Assign(target, value):
                run.places[target] = run.formula(value)
            case _:
                pass
    if _KEY_HEAD not in run.places:
        raise Unproved("the schedule sets no key head")
    return run.places[_KEY_HEAD]


def _not_once(kernel: Kernel) -> str:
    """Why it is not shown that every query tile is met once; "" if it is. The same for all variants of a kernel."""
    hosts = [(f.name, f.type.host) for f in kernel.params if isinstance(f.type, Scalar) and f.type.dtype.is_int]
    question = (kernel.schedule, hosts, kernel.constants, _counts(kernel))
    return PROOFS.remembered(("schedule", *question), lambda: [why_not_once(kernel)])[0]


def why_not_once(kernel: Kernel) -> str:
    """The same, asked anew: some seconds."""
    try:
        _Schedule(kernel).check()
        return ""
    except Unproved as error:
        return str(error)


def _counts(kernel: Kernel) -> list[str]:
    """The parameters that end a loop over work tiles."""
    found: list[str] = []
    for node in walk(kernel):
        match node:
            case If(Binary(">=", Name(), Attr(Name("p"), name)), (Break(),)):
                found.append(name)
            case _:
                pass
    return found


@dataclass
class _Side:
    """One work tile: the values of its locals, in the order in which they are computed, and of what it is the tile of."""

    name: str
    locals: dict[str, Number] = field(default_factory=dict[str, Number])
    tile: dict[str, Number] = field(default_factory=dict[str, Number])
    divisions: dict[tuple[str, str], tuple[Number, Number]] = field(
        default_factory=dict[tuple[str, str], tuple[Number, Number]]
    )


class _Schedule:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        rows = query_tile(kernel)
        if rows is None or len(kernel.schedule.params) != 1:
            raise Unproved("the schedule has no form that is known here")
        self.rows = size_of(kernel, rows)
        self.blocks = Call("ceil_div", (Name("Lq"), rows))
        self.hosts = {f.name: f.type.host for f in kernel.params if isinstance(f.type, Scalar) and f.type.dtype.is_int}
        self.integers = Integers({}, 1)
        self.facts: list[Claim] = [smt.compared(">=", smt.integer(n), smt.whole(1)) for n in (*SIZES, _QUERY_TILES)]

    def check(self) -> None:
        self._check_count()
        sides = [self._side("1"), self._side("2")]
        first, second = sides
        for name, size in (("b", "B"), ("h", "Hq"), ("q", _QUERY_TILES)):
            inside = smt.between(smt.whole(0), first.tile[name], smt.integer(size))
            self._require(inside, "a work tile may lie outside of the problem")
        self.facts += [smt.compared("==", first.tile[n], second.tile[n]) for n in ("b", "h", "q")]
        work = smt.compared("==", first.locals["work"], second.locals["work"])
        same = {n: smt.compared("==", first.locals[n], second.locals[n]) for n in first.locals if n != "work"}
        while not self._follows_at(work, 1):
            found = next((n for depth in _DEPTHS for n in same if self._follows_at(same[n], depth)), None)
            if found is None:
                raise Unproved("a query tile may be produced twice")
            self.facts.append(same.pop(found))

    def _check_count(self) -> None:
        """Where work tiles are counted, there are as many as query tiles."""
        wanted = Binary("*", Binary("*", Name("B"), Name("Hq")), self.blocks)
        for name in _counts(self.kernel):
            host = self.hosts.get(name)
            if host is None:
                raise Unproved(f"`p.{name}` is not known")
            mine, other = (self.integers.integer(self._plain(e)) for e in (host, wanted))
            if not self.integers.holds(smt.compared("==", mine, other)):
                raise Unproved(f"`p.{name}` is not the number of query tiles")

    def _plain(self, host: Expr) -> Expr:
        """With numbers for the constants of the instantiation."""
        return substitute(host, {n: IntLit(v) for n, v in self.kernel.constant_values.items() if isinstance(v, int)})

    # ---- one work tile ----

    def _side(self, name: str) -> _Side:
        side = _Side(name)
        (work,) = self.kernel.schedule.params
        side.locals["work"] = side.locals[work] = smt.integer(f"work {name}")
        count = smt.integer("B") * smt.integer("Hq") * smt.integer(_QUERY_TILES)
        self.facts.append(smt.between(smt.whole(0), side.locals["work"], count))
        for statement in self.kernel.schedule.body:
            match statement:
                case Assign(Name(local), value):
                    side.locals[local] = self._number(value, side)
                case Assign(Attr(Name("tile"), "q_start"), Binary("*", value, _)):
                    side.tile["q"] = self._number(value, side)
                case Assign(Attr(Name("tile"), "b" | "h" as field_), value):
                    side.tile[field_] = self._number(value, side)
                case _:
                    pass
        return side

    def _number(self, expr: Expr, side: _Side) -> Number:
        """An expression of the schedule; quotients and remainders are unknowns of which is known what makes them these."""
        if expr == self.blocks:
            return smt.integer(_QUERY_TILES)
        match expr:
            case IntLit(value):
                return smt.whole(value)
            case Name(name) if name in side.locals:
                return side.locals[name]
            case Name(name) if name in SIZES:
                return smt.integer(name)
            case Attr(Name("p"), name) if name in self.hosts:
                return self._parameter(name)
            case Attr(Name("tile"), name) if name in side.tile:
                return side.tile[name]
            case Binary("+", left, right):
                return self._number(left, side) + self._number(right, side)
            case Binary("-", left, right):
                return self._number(left, side) - self._number(right, side)
            case Binary("*", left, right):
                return self._number(left, side) * self._number(right, side)
            case Binary("//" | "%" as op, left, right):
                return self._divided(self._number(left, side), self._number(right, side), side)[op == "%"]
            case Call("minimum" | "maximum" as fn, (left, right)):
                a, b = self._number(left, side), self._number(right, side)
                return smt.choose(smt.compared("<=" if fn == "minimum" else ">=", a, b), a, b)
            case _:
                raise Unproved(f"`{print_expr(expr)}` in the schedule has no form that is known here")

    def _parameter(self, name: str) -> Number:
        host = self.hosts[name]
        if host == self.blocks:
            return smt.integer(_QUERY_TILES)
        unknown = smt.integer(f"p.{name}")
        positive = smt.compared(">=", unknown, smt.whole(1))
        if not any(positive.eq(f) for f in self.facts):
            if host is None or not self._is_positive(host):
                raise Unproved(f"`p.{name}` may be 0")
            self.facts.append(positive)
        return unknown

    def _is_positive(self, host: Expr) -> bool:
        """At least 1 for all sizes of grouped heads."""
        match host:
            case Call("minimum", (left, right)) | Binary("*", left, right):
                return self._is_positive(left) and self._is_positive(right)
            case Call("maximum", (left, right)):
                return self._is_positive(left) or self._is_positive(right)
            case Binary("//", Name("Hq"), Name("Hk")):
                return True  # the contract: key heads divide query heads
            case IntLit(value):
                return value >= 1
            case Name(name):
                return name in SIZES
            case _:
                return False

    def _divided(self, value: Number, by: Number, side: _Side) -> tuple[Number, Number]:
        key = (str(value), str(by))
        if key not in side.divisions:
            if not self._follows(smt.compared(">=", by, smt.whole(1))):
                raise Unproved("the schedule may divide by 0")
            n = len(side.divisions)
            quotient, rest = smt.integer(f"quotient {side.name}.{n}"), smt.integer(f"rest {side.name}.{n}")
            self.facts += [
                smt.compared("==", value, quotient * by + rest),
                smt.between(smt.whole(0), rest, by),
            ]
            side.divisions[key] = quotient, rest
        return side.divisions[key]

    # ---- answers ----

    def _follows(self, claim: Claim) -> bool:
        """Does a claim follow from the facts."""
        return any(self._follows_at(claim, depth) for depth in _DEPTHS)

    def _follows_at(self, claim: Claim, depth: int) -> bool:
        """From facts that share an unknown with the claim, or with a fact that does, and so on: the fewer the easier."""
        known = claim
        for _ in range(depth):
            known = smt.all_of(claim, *_touching(known, self.facts))
        return smt.ask(claim, _touching(known, self.facts), _EFFORT, {})[0] is smt.Answer.ALWAYS

    def _require(self, claim: Claim, message: str) -> None:
        if not self._follows(claim):
            raise Unproved(message)


def _touching(claim: Claim, facts: Iterable[Claim]) -> list[Claim]:
    """The facts that have an unknown in common with a claim, other than sizes; and those about sizes and parameters alone."""
    wanted = set(smt.unknowns(claim))
    common = {*SIZES, _QUERY_TILES}
    found: list[Claim] = []
    for fact in facts:
        names = {n for n in smt.unknowns(fact) if " " in n or n in common or n.startswith("p.")}
        special = {n for n in names if n not in common and not n.startswith("p.")}
        if not special or special & wanted:
            found.append(fact)
    return found
