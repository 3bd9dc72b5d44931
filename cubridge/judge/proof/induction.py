"""Shows that row state means what `read` says of it: at the start, after each key tile, and for any new reference.

Of a row, either no key was seen yet: references are as `row_init` left them, sums and output are 0; or some: references are
finite, sums add up their body over the keys seen, and the output adds up weight times value, all relative to the references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Final

from cubridge.ir.nodes import Binary, Call, Expr, Name, Node, Unary
from cubridge.ir.walk import free_names, map_children, walk
from cubridge.judge.proof import smt
from cubridge.judge.proof.cases import Cases
from cubridge.judge.proof.evaluator import NAN, ONE_VALUE, ZERO_VALUE, Evaluator, Infinite, Value
from cubridge.judge.proof.formulas import LINEAR_EFFORT, Formulas, Ratio, linear, within
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.intervals import interval_of
from cubridge.judge.proof.read import ReadSpec, RowField, new, old
from cubridge.judge.proof.smt import Claim, Number
from cubridge.judge.proof.sums import ZERO, Product, Sum, number
from cubridge.judge.proof.unproved import Unproved

HIDDEN: Final = Infinite(-1)
_FARTHEST: Final = 44
"""How far, as a power of e, the largest weight of a row may be from 1: within 2^64, which fp32 sums hold."""
_TOP_BEFORE: Final = "top before"
_ORDERS: Final = (("largest",), ("largest", _TOP_BEFORE), (_TOP_BEFORE, "largest"))
"""The largest score of the first tile; of a later one, and the largest before it."""
Names = Mapping[str, Value]


def check_induction(read: ReadSpec, integers: Integers, is_relative: bool) -> None:
    """`is_relative`: the reference's weights are relative to any number of the row.
    Errors: Unproved with the first thing that is not shown."""
    _Induction(read, Formulas(Cases(), integers), is_relative).check()


@dataclass
class _Induction:
    read: ReadSpec
    formulas: Formulas
    is_relative: bool

    def check(self) -> None:
        self._in_every_case(self._start)
        self._in_every_case(self._tile_without_keys)
        self._in_every_case(self._first_keys)
        for seen in (True, False):
            self._in_every_case(lambda seen=seen: self._further_keys(seen))
        self._in_every_case(self._hidden_keys)
        bodies = (self.read.weight, *(r.body for r in self.read.of_kind("sum") if r.body is not None))
        for parts in dict.fromkeys(self._relative_parts(b) for b in bodies):
            for top, *others in _ORDERS if parts else ():
                self._in_every_case(lambda parts=parts, top=top, others=others: self._near(parts, top, (*others,)))
        for body in dict.fromkeys(bodies) if self.is_relative else ():
            if not self._relative_parts(body):
                self._in_every_case(lambda body=body: self._bounded(body))

    def _in_every_case(self, step: Callable[[], None]) -> None:
        for _ in self.formulas.cases.runs(lambda: self._unless_impossible(step)):
            pass

    def _unless_impossible(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Unproved:
            if not self.formulas.is_impossible():
                raise

    # ---- values ----

    def _references(self) -> tuple[RowField, ...]:
        return self.read.of_kind("reference", "max", "min")

    def _value(self, expr: Expr, names: Names) -> Value:
        evaluator = Evaluator(self.formulas, names, device=True)
        value = evaluator.value(expr)
        if not all(self.formulas.is_positive(guard) for guard in evaluator.guards):
            raise Unproved("the row state divides by, or takes the logarithm of, what may be 0")
        return value

    def _initial(self, row: RowField) -> Value:
        return self._value(row.initial, {})

    def _before(self, seen: bool) -> dict[str, Value]:
        """The references before a tile, of a row that has seen keys or none."""
        return {
            old(r.name).id: self.formulas.symbol(old(r.name).id) if seen else self._initial(r)
            for r in self._references()
        }

    def _after(self) -> dict[str, Value]:
        """References after a tile in which keys are seen: any numbers."""
        return {new(r.name).id: self.formulas.symbol(new(r.name).id) for r in self._references()}

    def _stepped(self, row: RowField, before: Names, seen: bool) -> Value:
        """A reference after a tile, in which keys are seen or none."""
        return self._value(*self._maxima(row.step, before, seen))

    def _maxima(self, expr: Expr, names: Names, seen: bool) -> tuple[Expr, Names]:
        """The formula with names for the maxima of the tile."""
        values = dict(names)

        def change(node: Expr) -> Expr:
            if isinstance(node, Call) and node.fn == "rowmax":
                name = f"largest {node.args[0]!r}"
                values[name] = self._largest(node.args[0], names, seen)
                return Name(name)
            return map_children(node, lambda x: change(x) if isinstance(x, Expr) else x)

        return change(expr), values

    def _largest(self, body: Expr, names: Names, seen: bool) -> Value:
        """The maximum of a formula over the keys of the tile. Of one that grows with the score it is that of the largest."""
        hidden = self._value(body, {**names, "x": HIDDEN})
        if hidden != HIDDEN:
            raise Unproved("a maximum of the row counts keys that it does not see")
        if not seen:
            return HIDDEN
        top = self._value(body, {**names, "x": self.formulas.symbol("largest")})
        rest = self._value(body, {**names, "x": ZERO_VALUE})
        if isinstance(top, Ratio) and isinstance(rest, Ratio):
            slope = (top - rest) / self.formulas.symbol("largest")
            if self.formulas.sign_of(slope.top) == 1 and slope.bottom.single and not _reads(slope, "largest"):
                return top
        return self.formulas.symbol(f"largest {body!r}")

    # ---- the steps ----

    def _start(self) -> None:
        for row in self.read.of_kind("sum"):
            self._require_zero(self._initial(row), f"`row.{row.name}` does not start at 0")
        for row in self.read.of_kind("max", "min"):
            if self._initial(row) != Infinite(-1 if row.kind == "max" else 1):
                raise Unproved(f"`row.{row.name}` does not start at the end of the numbers")

    def _tile_without_keys(self) -> None:
        before = self._before(seen=False)
        after = {new(r.name).id: self._stepped(r, before, seen=False) for r in self._references()}
        for row in self._references():
            if after[new(row.name).id] != before[old(row.name).id]:
                raise Unproved(f"a tile without visible keys moves `row.{row.name}`")
        self._require_zero(self._value(self.read.weight, {**after, "x": HIDDEN}), "a hidden key has a weight")
        self._keeps_zero({**before, **after}, ZERO_VALUE)

    def _first_keys(self) -> None:
        before = self._before(seen=False)
        for row in self._references():
            if not isinstance(self._stepped(row, before, seen=True), Ratio):
                raise Unproved(f"`row.{row.name}` is not finite after the first key")
        self._keeps_zero({**before, **self._after()}, self.formulas.symbol("added"))

    def _keeps_zero(self, names: Names, added: Ratio) -> None:
        """Output and sums that are 0 stay so, but for what the tile adds."""
        output = self._value(self.read.rescale, {**names, "acc": ZERO_VALUE})
        self._require_zero(output, "the output is not 0 before the first key")
        for row in self.read.of_kind("sum"):
            step = self._value(_named_sums(row.step), {**names, old(row.name).id: ZERO_VALUE, "added": added})
            gain = self._value(_named_sums(row.step), {**names, old(row.name).id: ZERO_VALUE, "added": ONE_VALUE})
            self._require_equal(step, _times(gain, added), f"`row.{row.name}` is not 0 before the first key")

    def _further_keys(self, seen: bool) -> None:
        before = self._before(seen=True)
        for row in self._references():
            if not isinstance(self._stepped(row, before, seen), Ratio):
                raise Unproved(f"`row.{row.name}` is not finite once a key is seen")
        after = self._after()
        names = {**before, **after}
        factor = self._value(self.read.rescale, {**names, "acc": ONE_VALUE})
        output = self.formulas.symbol("acc")
        scaled = self._value(self.read.rescale, {**names, "acc": output})
        self._require_equal(scaled, _times(factor, output), "the output is not multiplied by a number of its row")
        self._follows(factor, self.read.weight, before, after, "the output")
        for row in self.read.of_kind("sum"):
            self._sum_follows(row, before, after)

    def _sum_follows(self, row: RowField, before: Names, after: Names) -> None:
        assert row.body is not None
        step = _named_sums(row.step)
        total, added = self.formulas.symbol("total"), self.formulas.symbol("added")

        def stepped(of_total: Ratio, of_added: Ratio) -> Value:
            return self._value(step, {**before, **after, old(row.name).id: of_total, "added": of_added})

        factor, gain = stepped(ONE_VALUE, ZERO_VALUE), stepped(ZERO_VALUE, ONE_VALUE)
        both = stepped(total, added)
        message = f"`row.{row.name}` is not multiplied and added to alone"
        self._require_equal(both, _sum(_times(factor, total), _times(gain, added)), message)
        if gain != ONE_VALUE:
            raise Unproved(f"`row.{row.name}` adds up a multiple of what it is the sum of")
        self._follows(factor, row.body, before, after, f"`row.{row.name}`")

    def _follows(self, factor: Value, body: Expr, before: Names, after: Names, what: str) -> None:
        """A factor turns what is relative to the references before the tile into what is relative to those after."""
        x = self.formulas.symbol("x")
        earlier = {new(r.name).id: before[old(r.name).id] for r in self._references()}
        was, now = self._value(body, {**earlier, "x": x}), self._value(body, {**after, "x": x})
        message = f"{what} is not rescaled as the reference moves"
        self._require_equal(_times(factor, was), now, message)

    def _hidden_keys(self) -> None:
        """In tiles where the row sees some key."""
        names = {**self._after(), "x": HIDDEN}
        self._require_zero(self._value(self.read.weight, names), "a hidden key has a weight")
        for row in self.read.of_kind("sum"):
            assert row.body is not None
            self._require_zero(self._value(row.body, names), f"`row.{row.name}` counts hidden keys")

    # ---- how far the reference is from the largest score ----

    def _near(self, parts: tuple[Expr, ...], top: str, others: tuple[str, ...]) -> None:
        """The largest weight of a row stays near 1, so that neither it nor the sums leave what fp32 holds. `top`: which score is
        the largest, that of the tile or, if there is one, that before."""
        before = self._before(seen=_TOP_BEFORE in (top, *others))
        scores = {name: self.formulas.symbol(name) for name in (top, *others)}
        moved = {new(r.name).id: self._stepped(r, before, seen=True) for r in self._references()}
        goals = self._exponents(parts, {**moved, "x": scores[top]})
        if not goals:
            return
        known: tuple[Sum, ...] = ()
        if _TOP_BEFORE in scores:
            previous = {new(r.name).id: before[old(r.name).id] for r in self._references()}
            known = self._exponents(parts, {**previous, "x": scores[_TOP_BEFORE]})
        below = [(scores[top] - scores[other]).top for other in others]
        if not _is_near(goals, known, below, self.formulas):
            raise Unproved("weights may overflow or vanish: the reference of a row may be far from its largest score")

    def _bounded(self, body: Expr) -> None:
        """Without a reference of the row, it is the scores that keep every weight near 1."""
        score = self._value(self.read.score, {"s": self.formulas.symbol("s")})
        goals = self._exponents((body,), {"x": score})
        if goals and not _is_near(goals, (), [], self.formulas):
            raise Unproved("weights may overflow or vanish: the scores have no bounds, and the row has no reference")

    def _relative_parts(self, body: Expr) -> tuple[Expr, ...]:
        """What of a weight is relative to the references: the exponentials that it is a sum of, or the whole of it."""
        references = {new(r.name).id for r in self._references()}
        if not free_names(body) & references:
            return ()
        calls = [x for x in walk(body) if _is_exponential(x) and free_names(x) & references]
        each = tuple(sorted((x for x in dict.fromkeys(calls) if isinstance(x, Call)), key=repr))
        return each if len(each) > 1 and _adds(body, each) else (body,)

    def _exponents(self, parts: tuple[Expr, ...], names: Names) -> tuple[Sum, ...]:
        """The powers of e that they are; none of a weight of 0."""
        return tuple(dict.fromkeys(e for part in parts for e in self._exponents_of(part, names)))

    def _exponents_of(self, part: Expr, names: Names) -> tuple[Sum, ...]:
        value = self._value(part, names)
        if value == ZERO_VALUE:
            return ()
        exponents = dict.fromkeys(p.exponent for p in value.top.terms) if isinstance(value, Ratio) else {}
        may_be_1 = any(_is_exponential(x) for x in walk(part))
        if not exponents or not (may_be_1 or all(exponents)):
            raise Unproved("a weight is relative to the reference and no exponential")
        return tuple(e or ZERO for e in exponents)

    # ---- claims ----

    def _require_zero(self, value: Value, message: str) -> None:
        if not isinstance(value, Ratio) or not self.formulas.is_zero(value.top):
            raise Unproved(message)

    def _require_equal(self, a: Value, b: Value, message: str) -> None:
        if not (isinstance(a, Ratio) and isinstance(b, Ratio) and self.formulas.equal(a, b)):
            raise Unproved(message)


def _is_exponential(node: Node) -> bool:
    return isinstance(node, Call) and node.fn in ("exp", "exp2")


def _adds(body: Expr, parts: tuple[Expr, ...]) -> bool:
    """Is no part multiplied by an exponential, or inside of a function that may be larger than it."""
    if body in parts or not any(x in parts for x in walk(body)):
        return True
    match body:
        case Unary("-", operand) | Call("abs", (operand,)):
            return _adds(operand, parts)
        case Binary("+" | "-", left, right) | Call("maximum" | "minimum" | "where", (*_, left, right)):
            return _adds(left, parts) and _adds(right, parts)
        case Binary("*", left, right):
            with_some = [x for x in (left, right) if any(map(_is_exponential, walk(x)))]
            return len(with_some) == 1 and _adds(with_some[0], parts)
        case Binary("/", left, right):
            return not any(map(_is_exponential, walk(right))) and _adds(left, parts)
        case _:
            return False


def _named_sums(step: Expr) -> Expr:
    """A step with `added` for the sum of the tile."""
    if isinstance(step, Call) and step.fn == "partial_rowsum":
        return Name("added")
    return map_children(step, lambda x: _named_sums(x) if isinstance(x, Expr) else x)


def _times(a: Value, b: Value) -> Value:
    return a * b if isinstance(a, Ratio) and isinstance(b, Ratio) else NAN


def _sum(a: Value, b: Value) -> Value:
    return a + b if isinstance(a, Ratio) and isinstance(b, Ratio) else NAN


def _reads(value: Ratio, name: str) -> bool:
    return any(a.name == name for a in value.atoms())


def _is_near(goals: tuple[Sum, ...], known: tuple[Sum, ...], below: list[Sum], formulas: Formulas) -> bool:
    """Are the exponents `goals` within bounds, as `known` were: none too large, and one not too small. `below`: what is no less
    than 0."""
    unknowns: dict[Product, Number] = {}
    far = number(_FARTHEST)
    signs = [(part, sign) for fact, sign in formulas.sign_facts() for part in (fact, *_of_exponents(fact))]
    multipliers = _multipliers(goals, [*(fact for fact, _ in signs), *below, *known], formulas)

    def relations(fact: Sum, op: str) -> list[Claim]:
        """The fact, and its multiples that speak of products of the goals."""
        return [
            smt.compared(op, linear(m, unknowns), smt.fraction(0)) for m in (fact, *(fact * m for m in multipliers))
        ]

    facts = [r for fact, sign in signs for r in relations(fact, {1: ">", -1: "<", 0: "=="}[sign])]
    facts += [r for exponent in known for r in relations(far - exponent, ">")]
    if known:
        facts.append(smt.any_of(*(smt.all_of(*relations(exponent + far, ">")) for exponent in known)))
    facts += [r for distance in below for r in relations(distance, ">=")]
    sizes = [linear(goal, unknowns) for goal in goals]
    none_too_large = smt.all_of(*(smt.compared("<=", size, smt.fraction(_FARTHEST)) for size in sizes))
    one_large_enough = smt.any_of(*(smt.compared(">=", size, smt.fraction(-_FARTHEST)) for size in sizes))
    facts += _known_numbers(unknowns)
    return smt.ask(smt.all_of(none_too_large, one_large_enough), facts, LINEAR_EFFORT, {})[0] is smt.Answer.ALWAYS


def _of_exponents(fact: Sum) -> tuple[Sum, ...]:
    """a - b, whose sign is that of c exp(a) - c exp(b)."""
    match [*fact.terms.items()]:
        case [(p, c), (q, d)] if not (p.powers or q.powers) and c == -d:
            difference = (p.exponent or ZERO) - (q.exponent or ZERO)
            return (difference if c > 0 else -difference,)
        case _:
            return ()


def _multipliers(goals: tuple[Sum, ...], facts: list[Sum], formulas: Formulas) -> list[Sum]:
    """Positive factors that turn a product of a fact into one of a goal."""
    found: dict[Sum, None] = {}
    wanted, given = ({p: None for value in values for p in value.terms} for values in (goals, facts))
    for goal, fact in product(wanted, given):
        factor = Sum({goal.times(fact.inverse()): Fraction(1)})
        if formulas.sign_of(factor) == 1:
            found[factor] = None
    return [*found]


def _known_numbers(unknowns: Mapping[Product, Number]) -> list[Claim]:
    """Bounds of products: powers of log(2), and what functions have."""
    found: list[Claim] = []
    for known, unknown in unknowns.items():
        found += within(unknown, interval_of(known))
        match [*known.powers]:
            case [(atom, power)] if atom.name == "LN2" and known.exponent is None:
                value = 0.6931471805599453 ** float(power)
                low, high = Fraction(value * 0.999), Fraction(value * 1.001)
                found.append(smt.between(smt.fraction(low), unknown, smt.fraction(high)))
            case _:
                pass
    return found
