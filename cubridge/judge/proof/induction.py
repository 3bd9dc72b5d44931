"""Shows that row state means what `read` says of it: at the start, after each key tile, and for any new reference.

Of a row, either no key was seen yet: references are as `row_init` left them, sums and output are 0; or some: references are
finite, sums add up their body over the keys seen, and the output adds up weight times value, all relative to the references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from cubridge.ir.nodes import Call, Expr, Name
from cubridge.ir.walk import free_names, map_children
from cubridge.judge.proof import smt
from cubridge.judge.proof.cases import Cases
from cubridge.judge.proof.evaluator import NAN, ONE_VALUE, ZERO_VALUE, Evaluator, Infinite, Value
from cubridge.judge.proof.formulas import LINEAR_EFFORT, Formulas, Ratio, linear
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.read import ReadSpec, RowField, new, old
from cubridge.judge.proof.smt import Claim, Number
from cubridge.judge.proof.sums import Product, Sum, number
from cubridge.judge.proof.unproved import Unproved

HIDDEN: Final = Infinite(-1)
_FARTHEST: Final = 44
"""How far, as a power of e, the largest weight of a row may be from 1: within 2^64, which fp32 sums hold."""
Names = Mapping[str, Value]


def check_induction(read: ReadSpec, integers: Integers) -> None:
    """Errors: Unproved with the first thing that is not shown."""
    _Induction(read, Formulas(Cases(), integers)).check()


@dataclass
class _Induction:
    read: ReadSpec
    formulas: Formulas

    def check(self) -> None:
        self._in_every_case(self._start)
        self._in_every_case(self._tile_without_keys)
        self._in_every_case(self._first_keys)
        for seen in (True, False):
            self._in_every_case(lambda seen=seen: self._further_keys(seen))
        self._in_every_case(self._hidden_keys)
        bodies = (self.read.weight, *(r.body for r in self.read.of_kind("sum") if r.body is not None))
        for body in dict.fromkeys(bodies):
            if free_names(body) & {new(r.name).id for r in self._references()}:
                for first in (True, False):
                    self._in_every_case(lambda body=body, first=first: self._near(body, first))

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

    def _near(self, body: Expr, first: bool) -> None:
        """The largest weight of a row stays near 1, so that neither it nor the sums leave what fp32 holds."""
        before = self._before(seen=not first)
        top = self.formulas.symbol("top")
        scores = [self.formulas.symbol("largest"), *([] if first else [self.formulas.symbol("top before")])]
        moved = {new(r.name).id: self._stepped(r, before, seen=True) for r in self._references()}
        goal = self._exponent(body, {**moved, "x": top})
        if goal is None:
            return
        facts: list[tuple[Sum, int]] = []
        if not first:
            previous = {new(r.name).id: before[old(r.name).id] for r in self._references()}
            facts += _bounds(self._exponent(body, {**previous, "x": scores[1]}))
        facts += self.formulas.sign_facts()
        if not _is_near(goal, facts, self.formulas, top, scores):
            raise Unproved("weights may overflow or vanish: the reference of a row may be far from its largest score")

    def _exponent(self, body: Expr, names: Names) -> Sum | None:
        """The power of e that a weight is; None of a weight of 0."""
        value = self._value(body, names)
        if value == ZERO_VALUE:
            return None
        exponents = {p.exponent for p in value.top.terms} if isinstance(value, Ratio) else set[Sum | None]()
        if len(exponents) != 1 or None in exponents:
            raise Unproved("a weight is relative to the reference and no exponential")
        return exponents.pop()

    # ---- claims ----

    def _require_zero(self, value: Value, message: str) -> None:
        if not isinstance(value, Ratio) or not self.formulas.is_zero(value.top):
            raise Unproved(message)

    def _require_equal(self, a: Value, b: Value, message: str) -> None:
        if not (isinstance(a, Ratio) and isinstance(b, Ratio) and self.formulas.equal(a, b)):
            raise Unproved(message)


def _bounds(exponent: Sum | None) -> list[tuple[Sum, int]]:
    return [] if exponent is None else [(exponent + number(_FARTHEST), 1), (number(_FARTHEST) - exponent, 1)]


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


def _is_near(goal: Sum, facts: list[tuple[Sum, int]], formulas: Formulas, top: Ratio, scores: list[Ratio]) -> bool:
    """Is the exponent `goal` within bounds, where `top` is the largest of `scores`."""
    unknowns: dict[Product, Number] = {}
    below = [(top - s).top for s in scores]

    def relations(fact: Sum, op: str) -> list[Claim]:
        """The fact, and its multiples that speak of products of the goal."""
        multiples = [fact, *(fact * m for m in _multipliers(goal, fact, formulas))]
        return [smt.compared(op, linear(m, unknowns), smt.fraction(0)) for m in multiples]

    known = [r for fact, sign in facts for r in relations(fact, {1: ">", -1: "<", 0: "=="}[sign])]
    known += [r for distance in below for r in relations(distance, ">=")]
    known.append(smt.any_of(*(smt.all_of(*relations(distance, "==")) for distance in below)))
    claim = smt.between(smt.fraction(-_FARTHEST), linear(goal, unknowns), smt.fraction(_FARTHEST + 1))
    known += _known_numbers(unknowns)
    return smt.ask(claim, known, LINEAR_EFFORT, {})[0] is smt.Answer.ALWAYS


def _multipliers(goal: Sum, fact: Sum, formulas: Formulas) -> list[Sum]:
    """Positive factors that turn a product of the fact into one of the goal."""
    found: dict[Sum, None] = {}
    for wanted in goal.terms:
        for product in fact.terms:
            factor = Sum({wanted.times(product.inverse()): number(1).terms[Product()]})
            if formulas.sign_of(factor) == 1:
                found[factor] = None
    return [*found]


def _known_numbers(unknowns: Mapping[Product, Number]) -> list[Claim]:
    """Bounds of products that are numbers: powers of log(2)."""
    found: list[Claim] = []
    for product, unknown in unknowns.items():
        match [*product.powers]:
            case [(atom, power)] if atom.name == "LN2" and product.exponent is None:
                value = 0.6931471805599453 ** float(power)
                low, high = Fraction(value * 0.999), Fraction(value * 1.001)
                found.append(smt.between(smt.fraction(low), unknown, smt.fraction(high)))
            case _:
                pass
    return found
