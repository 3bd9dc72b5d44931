"""C's arithmetic on CuIR expressions: literals, promotions, and the integer operators whose meaning differs in CuIR."""

from __future__ import annotations

import math
import re
import struct
from typing import Final

from cubridge.frontend.cuda.affine import cancel_anchors
from cubridge.frontend.cuda.signs import Signs
from cubridge.frontend.cuda.values import Scalar, refusal
from cubridge.ir.nodes import (
    COMPARISONS,
    NAMED_CONSTANTS,
    Binary,
    BoolLit,
    Call,
    Expr,
    FloatLit,
    IntLit,
    Name,
    Unary,
)
from cubridge.ir.source import Span
from cubridge.ir.types import DType

_INTEGER: Final = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)([uUlL]*)")
_NAMED: Final = {name: value for name, value in NAMED_CONSTANTS.items() if math.isfinite(value)}


def as_f32(value: float) -> float:
    """Rounded to fp32."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def literal(text: str, span: Span) -> Scalar:
    """A number as written. A float equal in fp32 to a constant that CuIR names is that name."""
    match = _INTEGER.fullmatch(text.replace("'", ""))
    if match is not None:
        if "u" in match[2].lower():
            raise refusal("unsigned arithmetic wraps, which CuIR does not say", span, help="write a signed integer")
        value = _whole(match[1])
        if value is None:
            raise refusal("this is no integer of 64 bits", span)
        return Scalar(IntLit(value, span=span), DType.I64 if "l" in match[2].lower() else DType.I32)
    hexadecimal = text.lower().startswith("0x")
    if not text.lower().endswith("f") or (hexadecimal and "p" not in text.lower()):
        raise refusal(f"`{text}` is a double", span, help=f"write `{text}f`")
    try:
        value = float.fromhex(text[:-1]) if hexadecimal else float(text[:-1])
    except (ValueError, OverflowError):
        raise refusal(f"`{text}` is no float", span) from None
    return Scalar(float_literal(value, span), DType.F32)


def _whole(digits: str) -> int | None:
    octal = digits.startswith("0") and digits.isdigit() and len(digits) > 1
    try:
        value = int(digits, 8 if octal else 0)
    except ValueError:  # 09, or thousands of digits
        return None
    return value if value < 1 << 63 else None


def float_literal(value: float, span: Span) -> Expr:
    if math.isnan(value):
        return Name("nan", span=span)
    if math.isinf(value):
        infinity = Name("inf", span=span)
        return infinity if value > 0 else Unary("-", infinity, span=span)
    for name, named in _NAMED.items():
        if as_f32(value) == as_f32(named):
            return Name(name, span=span)
    return FloatLit(value, span=span)


def convert(value: Scalar, dtype: DType, span: Span) -> Scalar:
    """C's implicit or explicit conversion."""
    if value.dtype == dtype or {value.dtype, dtype} == {DType.I32, DType.I64}:
        return Scalar(value.expr, dtype, value.axes)
    return Scalar(_converted(value, dtype, span), dtype, value.axes)


def _converted(value: Scalar, dtype: DType, span: Span) -> Expr:
    match value.expr, dtype:
        case IntLit(number), DType.F32:
            return FloatLit(float(number), span=span)
        case expr, DType.F32:
            return Call("f32", (expr,), span=span)
        case BoolLit(truth), DType.I32 | DType.I64:
            return IntLit(int(truth), span=span)
        case expr, DType.I32 | DType.I64:
            return Call("i32", (expr,), span=span)
        case expr, DType.BOOL:
            zero = FloatLit(0.0, span=span) if value.dtype.is_float else IntLit(0, span=span)
            return Binary("!=", expr, zero, span=span)
        case _:
            raise refusal(f"no conversion from {value.dtype} to {dtype}", span)


def truth(value: Scalar, span: Span) -> Scalar:
    return convert(value, DType.BOOL, span)


def negate(value: Scalar, span: Span) -> Scalar:
    """Logical not; comparisons of integers turn round."""
    value = truth(value, span)
    match value.expr:
        case BoolLit(known):
            expr: Expr = BoolLit(not known, span=span)
        case Unary("~", operand):
            expr = operand
        case _:
            expr = Unary("~", value.expr, span=span)
    return Scalar(expr, DType.BOOL, value.axes)


def common_type(left: Scalar, right: Scalar) -> DType:
    """Of an arithmetic operator: bools count as int."""
    types = {left.dtype, right.dtype}
    return DType.F32 if DType.F32 in types else DType.I64 if DType.I64 in types else DType.I32


def binary(op: str, left: Scalar, right: Scalar, span: Span, facts: Signs) -> Scalar:
    """`left op right` as C computes it. Errors: CU423 for operators without meaning, CU426 for a division that may truncate."""
    axes = left.axes | right.axes
    if op in ("&&", "||"):
        a, b = truth(left, span), truth(right, span)
        return Scalar(Binary("&" if op == "&&" else "|", a.expr, b.expr, span=span), DType.BOOL, axes)
    if op in ("&", "|", "^", "==", "!=") and left.dtype == right.dtype == DType.BOOL:
        return Scalar(Binary(op, left.expr, right.expr, span=span), DType.BOOL, axes)
    dtype = common_type(left, right)
    a, b = convert(left, dtype, span).expr, convert(right, dtype, span).expr
    if op in COMPARISONS:
        return Scalar(Binary(op, a, b, span=span), DType.BOOL, axes)
    if dtype.is_float:
        if op not in ("+", "-", "*", "/"):
            raise refusal(f"`{op}` has no meaning on floats", span)
        return Scalar(Binary(op, a, b, span=span), dtype, axes)
    return Scalar(_integer(op, a, b, span, facts), dtype, axes)


def _integer(op: str, a: Expr, b: Expr, span: Span, facts: Signs) -> Expr:
    match op:
        case "+" | "-":
            return cancel_anchors(Binary(op, a, b, span=span))
        case "*" | "&" | "|" | "^":
            return Binary(op, a, b, span=span)
        case "/" | "%":
            _check_division(op, a, b, span, facts)
            return Binary("//" if op == "/" else "%", a, b, span=span)
        case "<<" | ">>":
            if not isinstance(b, IntLit) or not 0 <= b.value < 32:
                raise refusal("a shift must be by a constant", span)
            return Binary("*" if op == "<<" else "//", a, IntLit(1 << b.value, span=b.span), span=span)
        case _:
            raise refusal(f"`{op}` has no meaning on integers", span)


def _check_division(op: str, a: Expr, b: Expr, span: Span, facts: Signs) -> None:
    for side, expr in (("dividend", a), ("divisor", b)):
        reasons = facts.natural_by(expr)
        if reasons is None:
            helper = "floor_div" if op == "/" else "floor_mod"
            raise refusal(
                f"the {side} may be negative: C's `{op}` truncates, CuIR's rounds down", span, "CU426",
                f"write `{helper}(a, b)`, or keep the {side} at 0 or above with `imax`",
            )  # fmt: skip
        facts.relied |= reasons


def negative(value: Scalar, span: Span) -> Scalar:
    """Unary minus."""
    if value.dtype == DType.BOOL:
        value = convert(value, DType.I32, span)
    match value.expr:
        case IntLit(number):
            expr: Expr = IntLit(-number, span=span)
        case FloatLit(number):
            expr = FloatLit(-number, span=span)
        case _:
            expr = Unary("-", value.expr, span=span)
    return Scalar(expr, value.dtype, value.axes)
