"""Whether a kernel's normalizer is the reference's, in real arithmetic: weights and row sums up to a factor of the row, the
output and the LSE of a row that sees keys, and of one that sees none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cubridge.ir.nodes import Binary, BoolLit, Expr, IntLit
from cubridge.ir.spec import AttentionSpec, RowReduction
from cubridge.ir.walk import free_names
from cubridge.judge.proof import smt
from cubridge.judge.proof.cases import Cases
from cubridge.judge.proof.evaluator import ONE_VALUE, ZERO_VALUE, Evaluator, Infinite, Value
from cubridge.judge.proof.formulas import Formulas, Ratio
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.read import ReadSpec, RowField, new
from cubridge.judge.proof.sums import Atom, Product, Sum
from cubridge.judge.proof.unproved import Unproved

Names = Mapping[str, Value]


def seen_by_kernel(spec: AttentionSpec) -> Expr:
    """The keys that a kernel must not hide: those that the mask or a row reduction of the reference sees."""
    result = spec.mask
    for row in spec.rows:
        if row.over != spec.mask and result != BoolLit(True):
            result = row.over if row.over == BoolLit(True) else Binary("|", result, row.over)
    return result


@dataclass
class Comparison:
    """One kernel against one reference. `shift`: what the reference's m is, in terms of the kernel; `factor`: the kernel's
    weights over the reference's; `matched`: the kernel's field of each row reduction, and its factor. `needed`: what must
    not be 0 for the kernel to have a value in this run, `given`: what the reference itself divides by."""

    read: ReadSpec
    spec: AttentionSpec
    integers: Integers
    formulas: Formulas = field(init=False)
    shift: Ratio = field(init=False, default=ZERO_VALUE)
    factor: Ratio = field(init=False, default=ONE_VALUE)
    needed: list[Sum] = field(init=False, default_factory=list[Sum])
    given: list[Sum] = field(init=False, default_factory=list[Sum])
    matched: dict[str, tuple[RowField, Ratio]] = field(init=False, default_factory=dict[str, tuple[RowField, Ratio]])

    def __post_init__(self) -> None:
        seen = self.integers.boolean(seen_by_kernel(self.spec))
        self.formulas = Formulas(
            Cases(), self.integers, [seen, smt.compared("<", self.integers.unknown("j"), self.integers.unknown("Lk"))]
        )

    # ---- scores and weights ----

    def weights(self) -> None:
        """Errors: Unproved where the weight of a key is not that of the reference times a factor of its row."""
        if "m" in free_names(self.spec.weight):
            self._find_shift()
        self.factor = self._common_factor(self.read.weight, self.spec.weight, self.spec.mask, "the weight")
        if not self.factor.top:
            raise Unproved("the weight of a visible key is 0")

    def _find_shift(self) -> None:
        """The m of the reference for which weights are the same: any does, as the weight is a power of exp(-m)."""
        degree = self._degree()
        self.shift = ZERO_VALUE
        factor = self._common_factor(self.read.weight, self.spec.weight, self.spec.mask, "the weight")
        if self.formulas.sign_of(factor.top) != 1:
            raise Unproved("the weight of a key has another sign")
        self.shift = -self.formulas.log(factor) / degree

    def _degree(self) -> Ratio:
        """The k of a weight that is as exp(-k m). Errors: Unproved if it is not, or the reference does not say that any m does."""
        m = self.formulas.symbol("m")
        degrees: list[Ratio] = []

        def relative() -> bool:
            at_m, at_zero = (self._other(self.spec.weight, {"m": x}) for x in (m, ZERO_VALUE))
            if not (isinstance(at_m, Ratio) and isinstance(at_zero, Ratio)):
                return at_m == at_zero
            if not degrees and at_zero.top:
                exponent = ((at_m / at_zero).top.single or (Product(), 0))[0].exponent
                degrees.append(Ratio(-exponent) / m if exponent is not None else ZERO_VALUE)
            return self.formulas.equal(at_m, at_zero * self.formulas.exp(-m * degrees[0]) if degrees else at_zero)

        if not self.spec.shift or not self._all(relative) or self.formulas.sign_of(degrees[0].top) != 1:
            raise Unproved("the reference's weight is not relative to m")
        return degrees[0]

    def _common_factor(self, device: Expr, other: Expr, over: Expr, what: str) -> Ratio:
        """The row's factor between two formulas of a key, the other one counting where the reference's `over` holds."""
        found: list[Ratio] = []

        def run() -> bool:
            here = self._device(device, {"x": self._device(self.read.score, {})})
            self._other(self.spec.score, {})
            sees = Evaluator(self.formulas, {}, device=False).truth(over)
            there = self._other(other, {"m": self.shift}) if sees else ZERO_VALUE
            if not (isinstance(here, Ratio) and isinstance(there, Ratio)):
                return here == there
            if not found and there.top and here.top and not self.formulas.is_impossible():
                found.append(self._factor(here, there, what))
            return self.formulas.equal(here, there * found[0] if found else there)

        if not self._all(run) and not (found and self._all(run)):
            raise Unproved(f"{what} of a key is another one than the reference's")
        return found[0] if found else ZERO_VALUE

    def _factor(self, here: Ratio, there: Ratio, what: str) -> Ratio:
        top, bottom = here.top * there.bottom, there.top * here.bottom
        quotient = top.over(bottom)
        if quotient is None or any(a in self._of_keys() for a in quotient.atoms()):
            raise Unproved(f"{what} of a key differs from the reference's by more than a factor of the row")
        return Ratio(quotient)

    def _of_keys(self) -> set[Atom]:
        """Atoms that stand for something of a key."""
        found: set[Atom] = {Atom("s"), Atom("j", 0)}
        found |= {
            a
            for loads in self.formulas.loads.values()
            for place, a in loads
            if any("j" in smt.unknowns(p) for p in place)
        }
        found |= {a for value, a in self.formulas.whole if "j" in smt.unknowns(value)}
        grown = True
        while grown:
            calls = ((args, a) for known in self.formulas.calls.values() for args, a in known if a not in found)
            more = {a for args, a in calls if any(x in found for r in args for x in r.atoms())}
            found |= more
            grown = bool(more)
        return found

    # ---- rows ----

    def rows(self) -> None:
        """Errors: Unproved for a row reduction of the reference that no field of the kernel is."""
        wanted = free_names(self.spec.finalize) | (frozenset() if self.spec.lse is None else free_names(self.spec.lse))
        for reduction in self.spec.rows:
            if reduction.name in wanted:
                self.matched[reduction.name] = self._match(reduction)

    def _match(self, reduction: RowReduction) -> tuple[RowField, Ratio]:
        reasons: list[str] = []
        for row in self.read.of_kind(reduction.kind):
            assert row.body is not None
            try:
                factor = self._common_factor(row.body, reduction.body, reduction.over, f"what `row.{row.name}` takes")
                if reduction.kind != "sum" and factor != ONE_VALUE:
                    raise Unproved(f"`row.{row.name}` is a multiple of the reference's")
                return row, factor
            except Unproved as error:
                reasons.append(str(error))
        raise Unproved(reasons[-1] if reasons else f"the kernel has no field for `{reduction.name}`")

    # ---- the end of a row ----

    def output(self) -> None:
        """Errors: Unproved where the output of a row is not the reference's, or not 0 without keys."""
        acc = self.formulas.symbol("acc")
        self._require(
            lambda: self._ends(self.read.finalize, self.spec.finalize, acc),
            "the output of a row is another one than the reference's",
        )
        self._require(
            lambda: _same(self.formulas, self._of_empty_row(self.read.finalize), ZERO_VALUE),
            "the output of a row that sees no key is not 0",
        )

    def lse(self) -> None:
        """Errors: Unproved where the log-sum-exp of a row is not the reference's, of a row without keys too."""
        wanted = self.spec.lse
        assert wanted is not None
        self._require(
            lambda: self._ends(self.read.lse, wanted, self.formulas.symbol("acc")),
            "the log-sum-exp of a row is another one than the reference's",
        )
        self._require(
            lambda: _same(self.formulas, self._of_empty_row(self.read.lse), self._empty_lse(wanted)),
            "the log-sum-exp of a row that sees no key is another one than the reference's",
        )

    def _empty_lse(self, lse: Expr) -> Value:
        """What the formula gives of sums that are 0, and -inf where that is no number."""
        nothing: dict[str, Value] = {"sum": ZERO_VALUE, "max": Infinite(-1), "min": Infinite(1)}
        rows = {r.name: nothing[r.kind] for r in self.spec.rows}
        value = self._other(lse, {**rows, "acc": ZERO_VALUE, "m": self.formulas.symbol("m")})
        return value if isinstance(value, Ratio) else Infinite(-1)

    def _ends(self, device: Expr, other: Expr, acc: Ratio) -> bool:
        sums = {name: self._total(name) for name in self.matched}
        names: dict[str, Value] = {"acc": acc * self.factor}
        names |= {new(row.name).id: sums[name] * factor for name, (row, factor) in self.matched.items()}
        there = self._other(other, {**sums, "acc": acc, "m": self.shift})
        return _same(self.formulas, self._device(device, names), there)

    def _total(self, name: str) -> Ratio:
        """A row reduction: > 0 if all that it adds up is, and it adds up every key that is seen; whole if each part is."""
        reduction = next(r for r in self.spec.rows if r.name == name)
        adds_all = self.integers.holds(self.integers.boolean(reduction.over), *self.formulas.given)
        positive = reduction.kind == "sum" and adds_all and self._is_positive(reduction.body)
        total = self.formulas.symbol(name, 1 if positive else None)
        if reduction.kind == "sum" and isinstance(reduction.body, IntLit):
            self.formulas.whole_numbers.add(name)
        return total

    def _is_positive(self, body: Expr) -> bool:
        cases = self.formulas.cases
        self.formulas.cases = Cases()
        try:
            return self._all(lambda: self._sign(self._other(body, {"m": self.shift})) == 1)
        finally:
            self.formulas.cases = cases

    def _sign(self, value: Value) -> int | None:
        return self.formulas.sign_of(value.top * value.bottom) if isinstance(value, Ratio) else None

    def _of_empty_row(self, device: Expr) -> Value:
        """What the kernel makes of a row before its first key."""
        names: dict[str, Value] = {"acc": ZERO_VALUE}
        names |= {new(r.name).id: self._device(r.initial, {}) for r in self.read.rows}
        return self._device(device, names)

    # ---- evaluation ----

    def _symbols(self) -> dict[str, Value]:
        names = {new(r.name).id: self.formulas.symbol(new(r.name).id) for r in self.read.rows}
        return {"s": self.formulas.symbol("s"), **names}

    def _device(self, expr: Expr, names: Names) -> Value:
        """A formula of the kernel."""
        evaluator = Evaluator(self.formulas, {**self._symbols(), **names}, device=True, guards=self.needed)
        return evaluator.value(expr)

    def _other(self, expr: Expr, names: Names) -> Value:
        """A formula of the reference."""
        evaluator = Evaluator(self.formulas, {"s": self.formulas.symbol("s")}, device=False, guards=self.given)
        if "x" in free_names(expr):
            evaluator.names = {**evaluator.names, "x": evaluator.value(self.spec.score)}
        evaluator.names = {**evaluator.names, **names}
        return evaluator.value(expr)

    def _all(self, claim: Callable[[], bool]) -> bool:
        """Does the claim hold in every case that is possible."""
        return all([*self.formulas.cases.runs(lambda: self._unless_impossible(claim))])

    def _unless_impossible(self, claim: Callable[[], bool]) -> bool:
        self.needed.clear()
        self.given.clear()
        try:
            holds = claim()
            if holds and not all(self._has_value(n) for n in self.needed):
                raise Unproved("the kernel divides by, or takes the logarithm of, what may be 0")
        except Unproved:
            if not self.formulas.is_impossible():
                raise
            holds = True
        return holds or self.formulas.is_impossible()

    def _has_value(self, needed: Sum) -> bool:
        """Is a number that the kernel divides by not 0 wherever the reference has a value."""
        factors = (needed.over(given) for given in self.given)
        if any(factor is not None and self.formulas.sign_of(factor) == 1 for factor in factors):
            return True
        return self.formulas.is_positive(needed)

    def _require(self, claim: Callable[[], bool], message: str) -> None:
        if not self._all(claim):
            raise Unproved(message)


def _same(formulas: Formulas, a: Value, b: Value) -> bool:
    if isinstance(a, Ratio) and isinstance(b, Ratio):
        return formulas.equal(a, b)
    return isinstance(a, Infinite) and a == b
