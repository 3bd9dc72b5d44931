"""Operations on each element: arithmetic, comparisons, selection, functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, Final

from cubridge.frontend.reference.algebra import functions, integers, predicates, reals
from cubridge.frontend.reference.algebra.comparisons import cast, compare, is_minus_infinity, to_bool
from cubridge.frontend.reference.algebra.numbers import REAL_ONE, REAL_ZERO, number, to_int, to_real
from cubridge.frontend.reference.algebra.predicates import conjunction, disjunction, negation
from cubridge.frontend.reference.algebra.selection import push, where
from cubridge.frontend.reference.algebra.table import bitwise_and, integer_floordiv
from cubridge.frontend.reference.algebra.terms import Const, Reduce, Sort, Term, arena, assume, const, is_op, op_args
from cubridge.frontend.reference.lift import ATTENTION_INPUTS, Handler, Lifted, Lifter, NoElementForm, sort_of_output
from cubridge.frontend.reference.record import Call

Element = Callable[..., Term]

_IGNORED: Final = frozenset(("device", "dtype", "layout", "pin_memory", "memory_format", "non_blocking", "copy"))


def elementwise(function: Element) -> Handler:
    """A handler that applies `function` to the broadcast elements of the operands."""

    def handler(lifter: Lifter, call: Call) -> Lifted:
        operands = [lifter.value(a) for a in call.args]
        options = {k: v for k, v in call.kwargs.items() if k not in _IGNORED}
        out = call.outputs()[0]
        shape, sort = lifter.shape(out), sort_of_output(call)
        return lambda *ix: cast(function(*(o.broadcast(ix, shape) for o in operands), **options), sort)

    return handler


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def _real(a: Term, b: Term) -> bool:
    return Sort.REAL in (a.sort, b.sort)


def _add(a: Term, b: Term, alpha: Any = 1) -> Term:
    if not (isinstance(alpha, int) and alpha == 1):
        b = _mul(b, const(alpha))
    return reals.add(a, b) if _real(a, b) else _integers(integers.add, a, b)


def _integers(function: Element, *args: Term) -> Term:
    args = tuple(map(to_int, args))
    pushed = push(partial(_integers, function), *args)
    return pushed if pushed is not None else function(*args)


def _mul(a: Term, b: Term) -> Term:
    if _real(a, b):
        return reals.mul(a, b)
    return conjunction(a, b) if a.sort is b.sort is Sort.BOOL else _integers(integers.mul, a, b)


def _sub(a: Term, b: Term, alpha: Any = 1) -> Term:
    return _add(a, _mul(b, const(-1)), alpha)


def _div(a: Term, b: Term, rounding_mode: str | None = None) -> Term:
    if not _real(a, b) and rounding_mode is not None:
        a, b = to_int(a), to_int(b)
        return integer_floordiv(a, b) if rounding_mode == "floor" else _truncated(a, b)
    quotient = reals.mul(a, reals.reciprocal(to_real(b)))
    if rounding_mode is None:
        return quotient
    return functions.unary("floor" if rounding_mode == "floor" else "truncate", quotient)


def _truncated(a: Term, b: Term) -> Term:
    """The quotient of two integers, rounded towards zero."""
    if integers.nonneg(a) and integers.positive(b):
        return integer_floordiv(a, b)
    quotient = integer_floordiv(_integers(integers.absolute, a), _integers(integers.absolute, b))
    negative = _xor(compare("<", a, integers.ZERO), compare("<", b, integers.ZERO))
    return where(negative, _integers(integers.neg, quotient), quotient)


def _remainder(a: Term, b: Term) -> Term:
    return _sub(a, _mul(_div(a, b, "floor"), b))


def _fmod(a: Term, b: Term) -> Term:
    return _sub(a, _mul(_div(a, b, "trunc"), b))


def _pow(a: Term, b: Term) -> Term:
    if a.sort is Sort.INT and isinstance(b, Const) and b.sort is Sort.INT and 0 <= b.value <= 8:
        result: Term = integers.ONE
        for _ in range(int(b.value)):
            result = _integers(integers.mul, result, a)
        return result
    return reals.general_power(a, b)


def _abs(a: Term) -> Term:
    return functions.unary("abs", a) if a.sort is Sort.REAL else _integers(integers.absolute, a)


# ---- functions -------------------------------------------------------------------------------------------------------


def _scaled_exp(base: float) -> Element:
    return lambda a: reals.exp(reals.mul(a, number(math.log(base))))


def _scaled_log(base: float) -> Element:
    return lambda a: reals.mul(reals.log(a), number(1 / math.log(base)))


def _softplus(a: Term, beta: Term = REAL_ONE, threshold: Term | None = None) -> Term:
    grown = reals.add(REAL_ONE, reals.exp(reals.mul(beta, a)))
    return reals.mul(reals.log(grown), reals.reciprocal(to_real(beta)))


def _gelu(a: Term, approximate: str = "none") -> Term:
    half = reals.mul(a, number(0.5))
    if approximate == "tanh":
        inner = reals.add(a, reals.mul(number(0.044715), a, a, a))
        step = functions.unary("tanh", reals.mul(number(math.sqrt(2 / math.pi)), inner))
    else:
        step = functions.unary("erf", reals.mul(a, number(math.sqrt(0.5))))
    return reals.mul(half, reals.add(REAL_ONE, step))


def _elu(a: Term, alpha: Term = REAL_ONE, scale: Term = REAL_ONE, input_scale: Term = REAL_ONE) -> Term:
    below = reals.mul(alpha, reals.sub(reals.exp(reals.mul(a, input_scale)), REAL_ONE))
    return reals.mul(scale, where(compare("<", REAL_ZERO, a), a, below))


def _leaky_relu(a: Term, slope: Term | None = None) -> Term:
    return where(compare("<", REAL_ZERO, a), a, reals.mul(a, slope or number(0.01)))


def _logaddexp(a: Term, b: Term) -> Term:
    return reals.log(reals.add(reals.exp(a), reals.exp(b)))


def _sigmoid(a: Term) -> Term:
    """Of a log-sum-exp, log z, as z / (1 + z): a normalizer that takes more into its sum."""
    a = to_real(a)
    if any(is_op(part, "log") and isinstance(part.children()[0], Reduce) for part in op_args(a, "add")):
        return reals.mul(reals.exp(a), reals.reciprocal(reals.add(const(1.0), reals.exp(a))))
    return functions.unary("sigmoid", a)


def _rounded(op: str) -> Element:
    return lambda a: a if a.sort is not Sort.REAL else functions.unary(op, a)


def _sign(a: Term) -> Term:
    if a.sort is Sort.REAL:
        return functions.unary("sign", a)
    below = where(compare("<", a, integers.ZERO), integers.MINUS_ONE, integers.ZERO)
    return where(compare("<", integers.ZERO, a), integers.ONE, below)


def _tan_like(numerator: str, denominator: str) -> Element:
    return lambda a: reals.mul(functions.unary(numerator, a), reals.reciprocal(functions.unary(denominator, a)))


# ---- selection and comparison ----------------------------------------------------------------------------------------


def _same_sort(a: Term, b: Term) -> tuple[Term, Term]:
    if a.sort is b.sort:
        return a, b
    sort = Sort.REAL if _real(a, b) else Sort.INT
    return cast(a, sort), cast(b, sort)


def _where(condition: Term, a: Term, b: Term) -> Term:
    return where(to_bool(condition), *_same_sort(a, b))


def _masked_fill(a: Term, mask: Term, fill: Term) -> Term:
    return where(to_bool(mask), cast(fill, a.sort), a)


def _clamp(a: Term, low: Term | None = None, high: Term | None = None) -> Term:
    if low is not None:
        a = functions.maximum(*_same_sort(a, low))
    return a if high is None else functions.minimum(*_same_sort(a, high))


def _clamp_handler(low: str | None, high: str | None) -> Handler:
    """Bounds come by position or by name, and either may be absent."""

    def handler(lifter: Lifter, call: Call) -> Lifted:
        bound = call.arguments()
        shape, sort = lifter.shape(call.out), sort_of_output(call)
        x = lifter.value(call.args[0])
        ends = [None if name is None or bound.get(name) is None else lifter.value(bound[name]) for name in (low, high)]

        def element(*ix: Term) -> Term:
            first, second = (None if e is None else e.broadcast(ix, shape) for e in ends)
            return cast(_clamp(x.broadcast(ix, shape), first, second), sort)

        return element

    return handler


def _is_infinite(a: Term) -> Term:
    pushed = push(_is_infinite, a)
    if pushed is not None:
        return pushed
    if isinstance(a, Const):
        return const(math.isinf(a.value))
    if not a.reads & ATTENTION_INPUTS:
        raise NoElementForm
    return is_minus_infinity(a)


def _is_nan(a: Term) -> Term:
    if a.reads & ATTENTION_INPUTS or not a.reads:
        assume("no value is NaN where a row sees a key")
        return predicates.FALSE
    raise NoElementForm


def _nan_to_num(a: Term, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Term:
    """What is computed from captures alone may be NaN anywhere, and is replayed."""
    if a.reads and not a.reads & ATTENTION_INPUTS:
        raise NoElementForm
    return _finite(a, nan, posinf, neginf)


def _finite(a: Term, nan: Any, posinf: Any, neginf: Any) -> Term:
    """Finite values stay; a row without keys, the only source of NaN, gives 0 whatever is said here."""
    pushed = push(lambda x: _finite(x, nan, posinf, neginf), a)
    if pushed is not None:
        return pushed
    if isinstance(a, Const):
        return number(_without_nan(float(a.value), nan, posinf, neginf))
    assume("no value is NaN where a row sees a key")
    return a


def _without_nan(value: float, nan: Any, posinf: Any, neginf: Any) -> float:
    largest = 3.4028234663852886e38
    if math.isnan(value):
        return _plain(nan, 0.0)
    if value == math.inf:
        return _plain(posinf, largest)
    if value == -math.inf:
        return _plain(neginf, -largest)
    return value


def _plain(option: Any, default: float) -> float:
    """An option that is a number, or a constant of the graph."""
    if option is None:
        return default
    return float(option.value if isinstance(option, Const) else option)


# ---- bits and logic --------------------------------------------------------------------------------------------------


def _xor(a: Term, b: Term) -> Term:
    return disjunction(conjunction(a, negation(b)), conjunction(negation(a), b))


def _bitwise(name: str) -> Element:
    def function(a: Term, b: Term) -> Term:
        if a.sort is b.sort is Sort.BOOL:
            return {"and": conjunction, "or": disjunction, "xor": _xor}[name](a, b)
        if name != "and":
            raise NoElementForm
        if not any(isinstance(x, Const) and int(x.value) not in (0, 1) for x in (a, b)):
            arena().bit_operations.setdefault(arena().here, "&")
        return bitwise_and(to_int(a), to_int(b))

    return function


def _logical(function: Element) -> Element:
    return lambda *args: function(*map(to_bool, args))


def _bitwise_not(a: Term) -> Term:
    return negation(a) if a.sort is Sort.BOOL else _integers(integers.sub, integers.MINUS_ONE, a)


def _shift_right(a: Term, b: Term) -> Term:
    if not isinstance(b, Const):
        raise NoElementForm
    return integer_floordiv(to_int(a), const(1 << int(b.value)))


def _shift_left(a: Term, b: Term) -> Term:
    if not isinstance(b, Const):
        raise NoElementForm
    return _mul(to_int(a), const(1 << int(b.value)))


def _identity(a: Term, *_: Term) -> Term:
    return a


_FUNCTIONS: Final[dict[str, Element]] = {
    "add": _add,
    "sub": _sub,
    "rsub": lambda a, b, alpha=1: _sub(b, a, alpha),
    "mul": _mul,
    "div": _div,
    "true_divide": _div,
    "floor_divide": lambda a, b: _div(a, b, "floor"),
    "remainder": _remainder,
    "fmod": _fmod,
    "neg": lambda a: _mul(a, const(-1)),
    "square": lambda a: _mul(a, a),
    "pow": _pow,
    "reciprocal": lambda a: reals.reciprocal(to_real(a)),
    "sqrt": lambda a: reals.power(to_real(a), Fraction(1, 2)),
    "rsqrt": lambda a: reals.power(to_real(a), Fraction(-1, 2)),
    "abs": _abs,
    "exp": reals.exp,
    "exp2": _scaled_exp(2.0),
    "expm1": lambda a: reals.sub(reals.exp(a), REAL_ONE),
    "log": reals.log,
    "log2": _scaled_log(2.0),
    "log10": _scaled_log(10.0),
    "log1p": lambda a: reals.log(reals.add(a, REAL_ONE)),
    "logaddexp": _logaddexp,
    "softplus": _softplus,
    "sigmoid": _sigmoid,
    "log_sigmoid_forward": lambda a: reals.log(_sigmoid(a)),
    "silu": lambda a: reals.mul(a, _sigmoid(a)),
    "gelu": _gelu,
    "elu": _elu,
    "leaky_relu": _leaky_relu,
    "relu": lambda a: functions.maximum(a, cast(integers.ZERO, a.sort)),
    "relu6": lambda a: _clamp(a, const(0), const(6)),
    "threshold": lambda a, t, v: where(compare("<", t, a), a, cast(v, a.sort)),
    "tan": _tan_like("sin", "cos"),
    **{name: partial(functions.unary, name) for name in ("tanh", "sin", "cos", "erf")},
    **{
        name: _rounded(op)
        for name, op in (("floor", "floor"), ("ceil", "ceil"), ("trunc", "truncate"), ("round", "round"))
    },
    "sign": _sign,
    "where": _where,
    "masked_fill": _masked_fill,
    "maximum": lambda a, b: functions.maximum(*_same_sort(a, b)),
    "minimum": lambda a, b: functions.minimum(*_same_sort(a, b)),
    "fmax": lambda a, b: functions.maximum(*_same_sort(a, b)),
    "fmin": lambda a, b: functions.minimum(*_same_sort(a, b)),
    **{
        name: partial(compare, op)
        for name, op in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items()
    },
    "isinf": _is_infinite,
    "isnan": _is_nan,
    "isfinite": lambda a: negation(_is_infinite(a)),
    "isneginf": lambda a: compare("==", a, number(-math.inf)),
    "nan_to_num": _nan_to_num,
    "logical_and": _logical(conjunction),
    "logical_or": _logical(disjunction),
    "logical_not": _logical(negation),
    "logical_xor": _logical(_xor),
    **{
        f"{form[0]}{name}{form[1]}": _bitwise(name)
        for name in ("and", "or", "xor")
        for form in (("bitwise_", ""), ("__", "__"))
    },
    "bitwise_not": _bitwise_not,
    "bitwise_right_shift": _shift_right,
    "__rshift__": _shift_right,
    "bitwise_left_shift": _shift_left,
    "__lshift__": _shift_left,
    **dict.fromkeys(
        ("lift_fresh", "detach", "alias", "clone", "contiguous", "lift_fresh_copy", "_to_copy", "to"), _identity
    ),
    **dict.fromkeys(("type_as", "positive", "real", "conj"), _identity),
}

ELEMENTWISE: Final[dict[str, Handler]] = {
    **{name: elementwise(function) for name, function in _FUNCTIONS.items()},
    "clamp": _clamp_handler("min", "max"),
    "clip": _clamp_handler("min", "max"),
    "clamp_min": _clamp_handler("min", None),
    "clamp_max": _clamp_handler(None, "max"),
    "hardtanh": _clamp_handler("min_val", "max_val"),
}
