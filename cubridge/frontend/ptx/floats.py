"""What instructions on floats, halves and predicates compute, as nodes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final, TypeAlias

from cubridge.frontend.ptx.values import ZERO, Node, Value
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.source import Span

Rule: TypeAlias = Callable[[Span, tuple[Value, ...]], Value | None]


def number(bits: int, span: Span) -> Node:
    """A float of four bytes."""
    return Node("number", data=struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0], span=span)


def as_float(value: Value, span: Span) -> Value:
    """Bits that a float instruction reads: a number of the text, or what an element of bf16 is when zeros stand below it."""
    if isinstance(value, Poly):
        bits = value.as_int()
        return value if bits is None else number(bits, span)
    if value.op == "pack" and value.args[0] == ZERO:
        return value.args[1]
    return value


def _plain(op: str) -> Rule:
    return lambda span, args: Node(op, args, span=span)


def _fused(span: Span, args: tuple[Value, ...]) -> Value:
    return Node("add", (Node("mul", args[:2], span=span), args[2]), span=span)


def _same(span: Span, args: tuple[Value, ...]) -> Value:
    return args[0]


def _pack(span: Span, args: tuple[Value, ...]) -> Value:
    return Node("pack", args, span=span)


def _cast_pair(span: Span, args: tuple[Value, ...], dtype: str) -> Value:
    """The first source goes to the upper half."""
    high, low = (Node("cast", (a,), dtype, span=span) for a in args)
    return Node("pack", (low, high), span=span)


def _cast(dtype: str) -> Rule:
    return lambda span, args: Node("cast", args, dtype, span=span)


def _shift_half(span: Span, args: tuple[Value, ...]) -> Value | None:
    """The lower half moves up, zeros below it: how a bf16 becomes a float."""
    value, count = args
    if not isinstance(value, Node) or not isinstance(count, Poly) or count.as_int() != 16:
        return None
    return Node("pack", (ZERO, value.args[0] if value.op == "pack" else value), span=span)


def _upper_half(span: Span, args: tuple[Value, ...]) -> Value | None:
    value, mask = args
    if not (isinstance(value, Node) and value.op == "pack" and isinstance(mask, Poly)):
        return None
    return Node("pack", (ZERO, value.args[1]), span=span) if (mask.as_int() or 0) & 0xFFFFFFFF == 0xFFFF0000 else None


def _chosen(span: Span, args: tuple[Value, ...]) -> Value:
    then, otherwise, condition = args
    return Node("where", (condition, then, otherwise), span=span)


_RULES: Final[Mapping[str, Rule]] = {
    "add.f32": _plain("add"),
    "sub.f32": _plain("sub"),
    "mul.f32": _plain("mul"),
    "div.f32": _plain("div"),
    "fma.f32": _fused,
    "neg.f32": _plain("neg"),
    "abs.f32": _plain("abs"),
    "max.f32": _plain("max"),
    "min.f32": _plain("min"),
    "ex2.f32": _plain("exp2"),
    "lg2.f32": _plain("log2"),
    "rcp.f32": _plain("reciprocal"),
    "sqrt.f32": _plain("sqrt"),
    "rsqrt.f32": _plain("rsqrt"),
    "tanh.f32": _plain("tanh_approx"),  # PTX has no other
    "mov.f32": _same,
    "mov.b32": _same,
    "mov.u32": _same,
    "mov.b16": _same,
    "mov.u16": _same,
    "mov.b32 pack": _pack,
    "selp.f32": _chosen,
    "selp.b32": _chosen,
    "shl.b32": _shift_half,
    "and.b32": _upper_half,
    "cvt.bf16.f32": _cast("bf16"),
    "cvt.f16.f32": _cast("f16"),
    "cvt.bf16x2.f32": lambda span, args: _cast_pair(span, args, "bf16"),
    "cvt.f16x2.f32": lambda span, args: _cast_pair(span, args, "f16"),
    "cvt.f32.bf16": _same,
    "cvt.f32.f16": _same,
    "and.pred": _plain("and"),
    "or.pred": _plain("or"),
    "not.pred": _plain("not"),
}
_MODIFIERS: Final = frozenset({"rn", "ftz", "approx", "sat", "full", "noftz"})
COMPARISONS: Final[Mapping[str, str]] = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip

_NOT_ORDERED: Final = {"leu": ">", "ltu": ">=", "gtu": "<=", "geu": "<", "neu": "=="}
"""Comparisons that a NaN meets too, by what they are the contrary of."""


def is_float(name: str) -> bool:
    """Does an instruction compute with floats."""
    return name.split(" ")[0].endswith((".f32", ".f16", ".bf16", ".f16x2", ".bf16x2"))


def apply_rule(name: str, args: tuple[Value, ...], span: Span) -> Value | None:
    """None where the instruction has no meaning here."""
    head, _, form = name.partition(" ")
    parts = [p for p in head.split(".") if p not in _MODIFIERS]
    if parts[0] == "setp":
        return _compared(parts, args, span)
    rule = _RULES.get(".".join(parts) + (f" {form}" if form else ""))
    return None if rule is None else rule(span, args)


def is_number(value: Value) -> bool:
    """Known, and not NaN."""
    return isinstance(value, Node) and value.op == "number" and value.data == value.data


def _compared(parts: list[str], args: tuple[Value, ...], span: Span) -> Value | None:
    word = parts[1]
    if word in ("equ", "nan") and parts[-1] == "f32":
        tests = [Node("compare", (a, a), "!=", span=span) for a in args[:2] if not is_number(a)]
        tests += [Node("compare", args[:2], "==", span=span)] if word == "equ" else []
        found = reduce(lambda a, b: Node("or", (b, a), span=span), tests)
    elif word in _NOT_ORDERED and parts[-1] == "f32":
        found = Node("not", (Node("compare", args[:2], _NOT_ORDERED[word], span=span),), span=span)
    elif word in COMPARISONS and (word, parts[-1]) != ("ne", "f32"):
        found = Node("compare", args[:2], COMPARISONS[word], span=span)
    else:
        return None
    if len(args) == 2:
        return found
    return Node(parts[2], (found, args[2]), span=span) if parts[2] in ("and", "or") else None
