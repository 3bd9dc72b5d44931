"""Exact reals: sums of multiples, products of powers, exponentials that merge.

    sum       number + number * product + ..          integer parts of one factor are one polynomial: slope * (j - i)
    product   number * base ** exponent * ..          at most one exp(..) among the bases

Values computed from q, k and v are taken as finite; that is recorded as an assumption where it is used.
"""

from __future__ import annotations

import math
from fractions import Fraction

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import real_nonneg
from cubridge.frontend.reference.algebra.contents import content, scaled, sum_content
from cubridge.frontend.reference.algebra.flags import flag_of
from cubridge.frontend.reference.algebra.numbers import (
    REAL_ONE,
    REAL_ZERO,
    Factors,
    exact,
    is_number,
    is_unit_step,
    number,
    split_product,
    to_real,
)
from cubridge.frontend.reference.algebra.predicates import is_zero
from cubridge.frontend.reference.algebra.selection import MASK_FILL, absorbs, is_masking, push, where
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Load,
    Sort,
    Term,
    apply,
    arena,
    assume,
    const,
    is_const,
    is_op,
    order,
    sizes_only,
    walk,
)
from cubridge.ir.source import Span

# ---- products --------------------------------------------------------------------------------------------------------


def join_product(coefficient: Fraction, powers: dict[Term, Fraction]) -> Term:
    """The canonical product: integers gathered in one polynomial, exponentials in one exp."""
    whole: Term = integers.ONE
    exponent: Term = REAL_ZERO
    kept: list[Term] = []
    coefficient, powers = _with_plain_sums(coefficient, powers)
    for base, power in powers.items():
        if isinstance(base, Apply) and base.op == "exp":
            exponent = add(exponent, mul(number(power), base.args[0]))
        elif isinstance(base, Apply) and base.op == "real" and power == 1:
            whole = integers.mul(whole, base.args[0])
        elif power:
            kept.append(base if power == 1 else apply("pow", (base, number(power)), Sort.REAL))
    common = content(whole)
    coefficient *= common
    primitive = scaled(whole, common)
    if not is_const(primitive, 1):
        kept.append(apply("real", (primitive,), Sort.REAL))
    if not is_const(exponent, 0):
        grown = exp(exponent)
        if not (isinstance(grown, Apply) and grown.op == "exp"):
            return mul(mul(number(coefficient), grown), *kept)
        kept.append(grown)
    return _product_term(coefficient, kept)


def _product_term(coefficient: Fraction, kept: list[Term]) -> Term:
    coefficient = exact(coefficient)
    if not coefficient:
        return REAL_ZERO
    if not kept:
        return number(coefficient)
    chosen = _chosen_by_flag(coefficient, kept)
    if chosen is not None:
        return chosen
    if is_small_integer(coefficient) and len(kept) == 1 and isinstance(kept[0], Apply) and kept[0].op == "real":
        return apply("real", (integers.mul(const(coefficient.numerator), kept[0].args[0]),), Sort.REAL)
    if coefficient != 1 and len(kept) == 1 and is_op(kept[0], "add"):
        return _scaled_sum(kept[0], coefficient)
    if len(kept) == 1 and is_unit_step(kept[0]):
        return where(kept[0].children()[0], number(coefficient), REAL_ZERO)
    args = sorted(kept, key=order)
    if coefficient != 1:
        args.insert(0, number(coefficient))
    return args[0] if len(args) == 1 else apply("mul", tuple(args), Sort.REAL)


def is_small_integer(coefficient: Fraction) -> bool:
    """May it become part of an integer? Kernels index with 32 bits, and a fill of -3e38 is a real."""
    return coefficient.denominator == 1 and abs(coefficient) < 1 << 31


def _chosen_by_flag(coefficient: Fraction, kept: list[Term]) -> Term | None:
    """fill * (1 - flag) and fill * flag, for a fill beyond MASK_FILL and an element of a tensor that holds 0 and 1 alone:
    the additive masks of public code. That it holds nothing else is declared, and checked at each launch."""
    if abs(coefficient) < -MASK_FILL or len(kept) != 1:
        return None
    found = flag_of(kept[0])
    if found is None:
        return None
    flag, at_one, at_zero = found
    arena().flags.setdefault(flag.tensor, arena().here)
    is_set = (
        is_zero(integers.sub(flag, integers.ONE)) if flag.sort is Sort.INT else apply("==", (REAL_ONE, flag), Sort.BOOL)
    )
    return where(is_set, number(coefficient * at_one), number(coefficient * at_zero))


def _with_plain_sums(coefficient: Fraction, powers: dict[Term, Fraction]) -> tuple[Fraction, dict[Term, Fraction]]:
    """Sums among the bases without a sign or a number that all their parts share."""
    plain: dict[Term, Fraction] = {}
    for base, exponent in powers.items():
        if is_op(base, "add") and exponent.denominator == 1:
            common = sum_content(base)
            if common != 1:
                coefficient *= common ** int(exponent)
                base = _scaled_sum(base, 1 / common)
        plain[base] = plain.get(base, Fraction(0)) + exponent
    return coefficient, plain


def _scaled_sum(term: Term, by: Fraction) -> Term:
    total = _Sum()
    for part in term.children():
        total.include(mul(number(by), part))
    return total.term()


def mul(*factors: Term) -> Term:
    """Numbers come last: a number alone with a sum is multiplied into it, and the form may not depend on the order."""
    ordered = sorted(map(to_real, factors), key=is_number)
    result = ordered[0]
    for factor in ordered[1:]:
        result = _mul_two(result, factor)
    return result


def _mul_two(a: Term, b: Term) -> Term:
    pushed = push(_mul_two, a, b)
    if pushed is not None:
        return pushed
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const) and not math.isfinite(x.value):
            return _times_infinity(float(x.value), y)
        if is_const(x, 0):
            _declare(arena().finite, y)
            return REAL_ZERO
        if is_const(x, 1):
            return y
    left, lefts = split_product(a)
    right, rights = split_product(b)
    powers: dict[Term, Fraction] = {}
    for base, power in (*lefts, *rights):
        powers[base] = powers.get(base, Fraction(0)) + power
        if power.denominator != 1 and powers[base].denominator == 1:
            _declare_root(base)
    return join_product(left * right, powers)


def _times_infinity(infinity: float, other: Term) -> Term:
    if isinstance(other, Const):
        return number(infinity * float(other.value) if other.value else math.nan)
    if math.isnan(infinity):
        return number(infinity)
    if _is_captured(other):
        arena().positive.setdefault(other, arena().here)
    elif not real_nonneg(other):
        assume("a factor of an infinite fill is positive")
    return number(infinity)


def _declare(tensors: dict[str, Span], term: Term) -> None:
    """The captured floats of a term that goes: what it would be for NaN and infinities, no term says."""
    if _is_captured(term):
        for x in walk(term):
            if isinstance(x, Load) and x.sort is Sort.REAL:
                tensors.setdefault(x.tensor, arena().here)


def _declare_root(term: Term) -> None:
    """e ** log x, and the square of a root: x, but NaN where it is negative."""
    if _is_captured(term) and not real_nonneg(term):
        arena().roots.setdefault(term, arena().here)


def _is_captured(term: Term) -> bool:
    """Does it follow from what a call gives besides q, k and v?"""
    return bool(term.reads) and not any(name in ("q", "k", "v") or name.startswith("$") for name in term.reads)


def neg(a: Term) -> Term:
    return mul(number(-1.0), a)


def reciprocal(a: Term) -> Term:
    return power(to_real(a), Fraction(-1))


def power(base: Term, exponent: Fraction) -> Term:
    """base ** exponent for a number as exponent."""
    if exponent == 0:
        return REAL_ONE
    if exponent == 1:
        return base
    if isinstance(base, Const):
        return _number_power(base, exponent)
    pushed = push(lambda x: power(x, exponent), base)
    if pushed is not None:
        return pushed
    logistic = _logistic(base) if exponent == -1 else None
    if logistic is not None:
        return logistic
    coefficient, factors = split_product(base)
    if not _powers_distribute(coefficient, factors, exponent):
        return apply("pow", (base, number(exponent)), Sort.REAL)
    for inner, inner_exponent in factors:
        if inner_exponent.denominator != 1 and (inner_exponent * exponent).denominator == 1:
            _declare_root(inner)
    scaled = _number_power(number(coefficient), exponent)
    assert isinstance(scaled, Const)
    if not math.isfinite(scaled.value):
        return apply("pow", (base, number(exponent)), Sort.REAL)
    return join_product(Fraction(scaled.value), {b: p * exponent for b, p in factors})


def _logistic(base: Term) -> Term | None:
    """1 / (1 + c exp(y)) = sigmoid(-(y + log c)) for a positive number or size c."""
    if not (isinstance(base, Apply) and base.op == "add" and len(base.args) == 2 and is_const(base.args[0], 1)):
        return None
    coefficient, factors = split_product(base.args[1])
    plain = [b for b, _ in factors if not is_op(b, "exp")]
    if coefficient <= 0 or len(plain) == len(factors) or any(b.free or b.reads or not real_nonneg(b) for b in plain):
        return None
    return apply("sigmoid", (neg(log(base.args[1])),), Sort.REAL)


def _powers_distribute(coefficient: Fraction, factors: Factors, exponent: Fraction) -> bool:
    """(c x y) ** e = c ** e x ** e y ** e: for whole e always, else where no factor is negative."""
    if exponent.denominator == 1:
        return True
    if len(factors) == 1 and coefficient == 1:
        base, inner = factors[0]
        return real_nonneg(base) or inner.denominator % 2 == 0
    return coefficient > 0 and all(real_nonneg(base) or inner.denominator % 2 == 0 for base, inner in factors)


def _number_power(base: Const, exponent: Fraction) -> Term:
    value = base.value
    if not value:
        return number(0.0 if exponent > 0 else math.inf)
    if not math.isfinite(value):
        return number(_float_power(float(value), float(exponent)))
    if exponent.denominator == 1 and abs(exponent) <= 16:
        return number(exact(Fraction(value) ** int(exponent)))
    return number(_float_power(float(value), float(exponent)))


def _float_power(value: float, exponent: float) -> float:
    try:
        result = value**exponent
    except OverflowError:
        return math.inf
    return math.nan if isinstance(result, complex) else result


def general_power(base: Term, exponent: Term) -> Term:
    """base ** exponent; a base that is a positive constant, or captured and asked to be positive, becomes an exponential."""
    base, exponent = to_real(base), to_real(exponent)
    pushed = push(general_power, base, exponent)
    if pushed is not None:
        return pushed
    if isinstance(exponent, Const) and math.isfinite(exponent.value):
        return power(base, Fraction(exponent.value))
    if isinstance(base, Const) and base.value > 0:
        return exp(mul(number(math.log(base.value)), exponent))
    if _is_captured(base) and not sizes_only(exponent):
        arena().bases.setdefault(base, arena().here)
        return exp(mul(log(base), exponent))
    return apply("power", (base, exponent), Sort.REAL)


# ---- sums ------------------------------------------------------------------------------------------------------------


def add(*summands: Term) -> Term:
    result = to_real(summands[0])
    for summand in summands[1:]:
        result = _add_two(result, to_real(summand))
    return result


def sub(a: Term, b: Term) -> Term:
    return add(a, neg(b))


def _add_two(a: Term, b: Term) -> Term:
    if is_const(a, 0):
        return b
    if is_const(b, 0):
        return a
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const) and is_masking(x) and is_op(y, "where") and absorbs(float(x.value), [y]):
            _declare(arena().absorbed, y)  # else two fills would make a choice of their sums
            return x
    pushed = push(_add_two, a, b)
    if pushed is not None:
        return pushed
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const) and not math.isfinite(x.value):
            _declare(arena().absorbed, y)
            return number(float(x.value) + float(y.value)) if isinstance(y, Const) else x
    total = _Sum()
    total.include(a)
    total.include(b)
    return total.term()


class _Sum:
    """Collects multiples of products. `moving`: factor -> the polynomial that multiplies it."""

    def __init__(self) -> None:
        self.constant = Fraction(0)
        self.plain: dict[Factors, Fraction] = {}
        self.moving: dict[tuple[Factors, Fraction], Term] = {}

    def include(self, term: Term) -> None:
        if isinstance(term, Apply) and term.op == "add":
            for part in term.args:
                self.include(part)
            return
        if _is_step(term):  # where(c, 3.5, 1.5) = 1.5 + where(c, 2, 0)
            condition, high, low = term.children()
            assert isinstance(high, Const) and isinstance(low, Const)
            self.constant += Fraction(low.value)
            term = where(condition, number(Fraction(high.value) - Fraction(low.value)), REAL_ZERO)
        coefficient, factors = split_product(term)
        if len(factors) == 1 and factors[0][1] == 1 and isinstance(factors[0][0], Apply) and factors[0][0].op == "add":
            for part in factors[0][0].args:  # a number times a sum
                self.include(mul(number(coefficient), part))
            return
        if not factors:
            self.constant += coefficient
            return
        whole = next((b for b, p in factors if p == 1 and isinstance(b, Apply) and b.op == "real"), None)
        if whole is None:
            self.plain[factors] = self.plain.get(factors, Fraction(0)) + coefficient
            return
        rest = tuple(f for f in factors if f[0] is not whole)
        unit = Fraction(1) if is_small_integer(coefficient) else abs(coefficient)
        steps = integers.mul(const(int(coefficient / unit)), whole.children()[0])
        self.moving[rest, unit] = integers.add(self.moving.get((rest, unit), integers.ZERO), steps)

    def term(self) -> Term:
        for (rest, unit), p in list(self.moving.items()):  # slope * j + slope = slope * (j + 1)
            extra = self.plain.get(rest) if rest else None
            if extra is not None and (extra / unit).denominator == 1:
                del self.plain[rest]
                self.moving[rest, unit] = integers.add(p, const(int(extra / unit)))
        parts: list[Term] = []
        for (rest, unit), p in self.moving.items():
            if not rest and unit == 1 and self.constant.denominator == 1:
                p, self.constant = integers.add(p, const(self.constant.numerator)), Fraction(0)
            parts.append(mul(join_product(unit, dict(rest)), to_real(p)))
        parts += [join_product(c, dict(factors)) for factors, c in self.plain.items() if c]
        parts = [p for p in parts if not is_const(p, 0)]
        constant = number(exact(self.constant))
        if is_masking(constant) and parts and absorbs(float(constant.value), parts):
            for part in parts:
                _declare(arena().absorbed, part)
            return constant
        if self.constant or not parts:
            parts.append(constant)
        return parts[0] if len(parts) == 1 else apply("add", tuple(sorted(parts, key=order)), Sort.REAL)


def _is_step(term: Term) -> bool:
    """A choice between two finite numbers, neither a fill nor 0."""
    if not is_op(term, "where"):
        return False
    _, high, low = term.children()
    numbers = (
        isinstance(high, Const) and isinstance(low, Const) and math.isfinite(high.value) and math.isfinite(low.value)
    )
    return numbers and not is_const(low, 0) and not is_masking(low)


# ---- exponential and logarithm ------------------------------------------------------------------------------------------


_UNDERFLOW = -700.0


def exp(x: Term) -> Term:
    """exp(c log y + z) = y ** c exp(z); a masking constant gives 0."""
    x = to_real(x)
    pushed = push(exp, x)
    if pushed is not None:
        return pushed
    if isinstance(x, Const):
        if is_masking(x) and x.value != -math.inf:
            assume(f"a fill of {float(x.value):g} is a mask: its weight is 0 wherever the row sees a key")
        elif x.value < _UNDERFLOW and x.value != -math.inf:
            return apply("exp", (x,), Sort.REAL)  # not 0: beside scores as low it is the weight of a bias
        return number(math.exp(x.value) if x.value < 709 else math.inf)
    outside: Term = REAL_ONE
    inside: list[Term] = []
    for part in x.args if isinstance(x, Apply) and x.op == "add" else (x,):
        coefficient, factors = split_product(part)
        if len(factors) == 1 and factors[0][1] == 1 and isinstance(factors[0][0], Apply) and factors[0][0].op == "log":
            _declare_root(factors[0][0].args[0])
            outside = mul(outside, power(factors[0][0].args[0], coefficient))
        elif (
            len(factors) == 1 and factors[0][1] == 1 and isinstance(factors[0][0], Apply) and factors[0][0].op == "add"
        ):
            inside += [mul(number(coefficient), p) for p in factors[0][0].args]
        else:
            inside.append(part)
    if outside is REAL_ONE and len(inside) == (len(x.args) if isinstance(x, Apply) and x.op == "add" else 1):
        return apply("exp", (x,), Sort.REAL)
    return mul(exp(add(*inside)), outside) if inside else outside


def log(x: Term) -> Term:
    """log(number * exp(y) * rest) = log(number) + y + log(rest)."""
    x = to_real(x)
    pushed = push(log, x)
    if pushed is not None:
        return pushed
    if isinstance(x, Const):
        return number(math.log(x.value) if x.value > 0 else -math.inf if not x.value else math.nan)
    coefficient, factors = split_product(x)
    exponent = next((b.children()[0] for b, p in factors if isinstance(b, Apply) and b.op == "exp" and p == 1), None)
    if exponent is not None and coefficient > 0:
        rest = {b: p for b, p in factors if not (isinstance(b, Apply) and b.op == "exp")}
        return add(exponent, log(join_product(coefficient, rest)))
    if (
        coefficient > 0
        and len(factors) == 1
        and (coefficient != 1 or factors[0][1] != 1)
        and factors[0][1].numerator % 2
    ):
        base, exponent_of_base = factors[0]
        inner = apply("log", (base,), Sort.REAL)
        return add(number(math.log(coefficient)), mul(number(exponent_of_base), inner))
    return apply("log", (x,), Sort.REAL)
