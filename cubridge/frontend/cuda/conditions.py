"""Conditions of `#if`: integers, macros, `defined` and C's operators. Nothing is executed; what is unknown is None."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_TOKEN: Final = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)[uUlL]*|([A-Za-z_]\w*)|(&&|\|\||[<>=!]=|<<|>>|[-+*/%<>!()&|^~]))"
)
_MAX_EXPANSIONS: Final = 50

_BINARY: Final[tuple[dict[str, Callable[[int, int], int]], ...]] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: quotient(a, b), "%": lambda a, b: a - b * quotient(a, b)},
)
"""By precedence, loosest first."""


def quotient(a: int, b: int) -> int:
    """`a / b` of C, which truncates."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def holds(text: str, macros: Mapping[str, str]) -> bool | None:
    """Is the condition true; None where it cannot be decided. A name that is no macro is 0, as in C."""
    try:
        tokens = _tokens(_expand(text, macros))
        value, rest = _binary(tokens, 0)
    except (ValueError, ZeroDivisionError, IndexError, RecursionError):
        return None
    return None if rest else bool(value)


def _expand(text: str, macros: Mapping[str, str]) -> str:
    text = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", lambda m: str(int((m[1] or m[2]) in macros)), text)
    for _ in range(_MAX_EXPANSIONS):
        new = re.sub(r"\b[A-Za-z_]\w*", lambda m: f"({macros[m[0]] or 1})" if m[0] in macros else m[0], text)
        if new == text:
            return text
        text = new
    raise ValueError("macros that name each other")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(text)
        tokens.append(str(int(match[1], 0)) if match[1] else "0" if match[2] else match[3])
        at = match.end()
    return tokens


def _binary(tokens: list[str], level: int) -> tuple[int, list[str]]:
    if level == len(_BINARY):
        return _unary(tokens)
    value, tokens = _binary(tokens, level + 1)
    while tokens and tokens[0] in _BINARY[level]:
        right, rest = _binary(tokens[1:], level + 1)
        value, tokens = _BINARY[level][tokens[0]](value, right), rest
    return value, tokens


def _unary(tokens: list[str]) -> tuple[int, list[str]]:
    match tokens[0]:
        case "!":
            value, rest = _unary(tokens[1:])
            return int(not value), rest
        case "-":
            value, rest = _unary(tokens[1:])
            return -value, rest
        case "(":
            value, rest = _binary(tokens[1:], 0)
            if rest[0] != ")":
                raise ValueError("unbalanced")
            return value, rest[1:]
        case word:
            return int(word), tokens[1:]
