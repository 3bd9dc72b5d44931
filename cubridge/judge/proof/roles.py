"""Every role walks the key sequence alike, for any number of key tiles: each copy and each `score` takes the steps 0, 1, 2, ..
to the last, once each and in order.

The steps that a statement takes are an interval that the loop around it and the conditions on the step give; in the order of the
text, the intervals of one role must be joined end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from cubridge.ir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Copy,
    CopyAsync,
    Expr,
    For,
    If,
    Index,
    IntLit,
    Kernel,
    Loop,
    Name,
    RegionCall,
    Stmt,
)
from cubridge.ir.walk import map_children, walk
from cubridge.judge.proof import smt
from cubridge.judge.proof.smt import Claim, Number
from cubridge.judge.proof.unproved import Unproved

_PER_STEP: Final = {"score": 1, "mask": 1, "row_update": 2, "row_probs": 3}
_COUNT: Final = smt.integer("count")
_EFFORT: Final = 1_000_000
_FIRST: Final = IntLit(0)


@dataclass(frozen=True, slots=True)
class _Interval:
    """The steps from `first` up to, but without, `end`."""

    first: Number
    end: Number


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is: the loop over steps around it, if any, and what is known of step and count."""

    variable: str | None = None
    first: Expr = _FIRST
    end: Expr = _FIRST
    guards: tuple[Expr, ...] = ()


@dataclass
class _Walk:
    """One role. `visits`: by what is visited, the intervals in the order of the text."""

    names: dict[str, Expr] = field(default_factory=dict[str, Expr])
    visits: dict[str, list[_Interval]] = field(default_factory=dict[str, list[_Interval]])

    def block(self, body: tuple[Stmt, ...], place: _Place) -> None:
        for stmt in body:
            self.statement(stmt, place)

    def statement(self, stmt: Stmt, place: _Place) -> None:
        match stmt:
            case If(condition, then, orelse):
                here = self._guarded(condition, place)
                self.block(then, here)
                self.block(orelse, place if here is place else _unknown(place))
            case For(var, start, stop, body) if _reads_steps(body):
                self._loop(var, start, stop, body, place)
            case For(_, _, _, body) | Loop(body):
                self.block(body, place)
            case Assign(Name(name), value):
                self.names[name] = self._known(value)
            case CopyAsync(_, Index(Attr(_, name)), row) | Copy(_, Index(Attr(_, name)), row):
                self._visit(f"the copy of `p.{name}`", row, place)
            case RegionCall(region, args) if region in _PER_STEP and region != "mask" and region != "row_probs":
                self._visit(f"`{region}`", args[_PER_STEP[region]], place)
            case _:
                pass

    def _loop(self, var: str, start: Expr, stop: Expr, body: tuple[Stmt, ...], place: _Place) -> None:
        first, end = self._known(start), self._known(stop)
        if not (_is_linear(first) and _is_linear(end)):
            self.block(body, place)
            return
        if place.variable is not None:
            raise Unproved("a loop over key tiles stands in another")
        self.names.pop(var, None)
        self.block(body, replace(place, variable=var, first=first, end=end))

    def _guarded(self, condition: Expr, place: _Place) -> _Place:
        """Conditions on step and count narrow the interval; others hold or not for a role, whatever the step."""
        known = self._known(condition)
        reads = {n.id for n in walk(known) if isinstance(n, Name)}
        allowed = {"$count", *([] if place.variable is None else [place.variable])}
        if reads and reads <= allowed:
            return replace(place, guards=(*place.guards, known))
        return place

    def _visit(self, what: str, row: Expr, place: _Place) -> None:
        for node in walk(self._known(row)):
            if isinstance(node, Call) and node.fn == "key_tile":
                self.visits.setdefault(what, []).append(_interval(node.args[1], place))

    def _known(self, expr: Expr) -> Expr:
        match expr:
            case Name(name) if name in self.names:
                return self.names[name]
            case Call("key_count"):
                return Name("$count")
            case _:
                return map_children(expr, lambda x: self._known(x) if isinstance(x, Expr) else x)


def _unknown(place: _Place) -> _Place:
    return replace(place, guards=(*place.guards, Name("$else")))


def _reads_steps(body: tuple[Stmt, ...]) -> bool:
    return any(isinstance(n, Call) and n.fn in ("key_tile", "key_masked") for s in body for n in walk(s))


def _is_linear(expr: Expr) -> bool:
    return all(
        isinstance(n, IntLit) or n == Name("$count") or (isinstance(n, Binary) and n.op in "+-") for n in walk(expr)
    )


def _integer(expr: Expr) -> Number:
    match expr:
        case IntLit(value):
            return smt.whole(value)
        case Name("$count"):
            return _COUNT
        case Name(name):
            return smt.integer(name)
        case Binary("+", left, right):
            return _integer(left) + _integer(right)
        case Binary("-", left, right):
            return _integer(left) - _integer(right)
        case _:
            raise Unproved("a step of the key sequence that is no sum")


def _interval(step: Expr, place: _Place) -> _Interval:
    """The steps that a visit takes while its loop runs, where its guards hold."""
    value = _integer(step)
    if place.variable is None:
        end = smt.choose(_all(place.guards), value + 1, value)
        return _Interval(value, end)
    t = smt.integer(place.variable)
    first, end = _integer(place.first), _integer(place.end)
    shift = smt.simplified(value - t)
    if smt.as_int(shift) is None:
        raise Unproved("a step of the key sequence that does not follow its loop")
    low, high = first + shift, end + shift
    for guard in place.guards:
        high = _narrowed(guard, t, shift, high)
    return _Interval(low, smt.choose(smt.compared(">", high, low), high, low))


def _narrowed(guard: Expr, t: Number, shift: Number, high: Number) -> Number:
    """The end of an interval under a guard `step < limit`, or one on the count alone."""
    match guard:
        case Binary("<" | "<=" as op, left, right):
            limit = smt.simplified(_integer(right) - (_integer(left) - t))
            if str(t) not in smt.unknowns(limit):
                bound = limit + shift + (1 if op == "<=" else 0)
                return smt.choose(smt.compared("<", bound, high), bound, high)
        case _:
            pass
    condition = _condition(guard)
    if str(t) in smt.unknowns(condition):
        raise Unproved("a condition on the step of a key tile is no upper limit")
    return smt.choose(condition, high, smt.whole(-1))


def _condition(guard: Expr) -> Claim:
    match guard:
        case Binary("<" | "<=" | ">" | ">=" | "==" | "!=" as op, left, right):
            return smt.compared(op, _integer(left), _integer(right))
        case _:
            raise Unproved("a condition on the step of a key tile that is no comparison")


def _all(guards: tuple[Expr, ...]) -> Claim:
    return smt.all_of(*(_condition(g) for g in guards))


def check_roles(kernel: Kernel) -> None:
    """Errors: Unproved where a role may leave out, repeat or change the order of steps."""
    for body in _roles(kernel.body):
        walked = _Walk()
        walked.block(body, _Place())
        for what, intervals in walked.visits.items():
            _check_joined(what, intervals)


def _roles(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """The bodies that different warps run: the branches of a condition on the thread that visit keys."""
    for n, stmt in enumerate(body):
        if isinstance(stmt, If) and stmt.orelse and all(_reads_steps(b) for b in (stmt.then, stmt.orelse)):
            for branch in (stmt.then, stmt.orelse):
                yield from _roles((*body[:n], *branch, *body[n + 1 :]))
            return
    yield body


def _check_joined(what: str, intervals: list[_Interval]) -> None:
    end = smt.whole(0)
    claims: list[Claim] = []
    for interval in intervals:
        empty = smt.compared("==", interval.first, interval.end)
        claims.append(smt.any_of(empty, smt.compared("==", interval.first, end)))
        end = smt.choose(empty, end, interval.end)
    claim = smt.all_of(*claims, smt.compared("==", end, _COUNT))
    counted = [smt.compared(">=", _COUNT, smt.whole(0))]
    if smt.ask(claim, counted, _EFFORT, {})[0] is not smt.Answer.ALWAYS:
        raise Unproved(f"{what} may not take every step of the key sequence once and in order")
