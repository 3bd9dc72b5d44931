"""Operands of one instruction, with the names that are in scope resolved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cubridge.backend.ptx.program import AddressOf, Group, Memory, Operand, Reg, Scalar, Sink, Special, Value, Variable

_INTEGER: Final = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_FLOAT: Final = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")
_OFFSET: Final = re.compile(r"([+-])\s*(-?(?:0[xX][0-9a-fA-F]+|\d+))$")
_MOST_OFFSET: Final = 1 << 31
_SPECIAL: Final = re.compile(r"%[a-z]\w*(?:\.[xyz])?$")
_PART: Final = re.compile(r"[{\[}\],]")


class OperandError(Exception):
    """Text that is no operand, or a name that is not known."""


@dataclass(slots=True)
class Scope:
    """What one pair of braces declares."""

    registers: dict[str, Reg] = field(default_factory=dict[str, Reg])
    variables: dict[str, Variable] = field(default_factory=dict[str, Variable])
    labels: dict[str, int] = field(default_factory=dict[str, int])


def parse_operands(text: str, scopes: Sequence[Scope]) -> tuple[Operand, ...]:
    """`%r1, {%f1, %f2}, [%rd1+8], 5`. Raises OperandError."""
    return tuple(_operand(part, scopes) for part in _split(text))


def _operand(text: str, scopes: Sequence[Scope]) -> Operand:
    if text.startswith("{"):
        return Group(tuple(_scalar(part, scopes) for part in _split(text[1:-1])))
    if text.startswith("["):
        return _memory(_split(text[1:-1]), scopes)
    if "|" in text:
        return Group(tuple(_scalar(part.strip(), scopes) for part in text.split("|")))
    return _scalar(text, scopes)


def _memory(parts: list[str], scopes: Sequence[Scope]) -> Memory:
    if not 1 <= len(parts) <= 2:
        raise OperandError("an address of an unknown form")
    coordinates = None
    if len(parts) == 2:
        if not parts[1].startswith("{"):
            raise OperandError(f"`{parts[1]}` are no coordinates")
        coordinates = tuple(_scalar(part, scopes) for part in _split(parts[1][1:-1]))
    base, offset = _with_offset(parts[0])
    return Memory(_scalar(base, scopes), offset, coordinates)


def _with_offset(text: str) -> tuple[str, int]:
    found = _OFFSET.search(text)
    if found is None or found.start() == 0:
        return text, 0
    offset = _integer(found[2]) * (-1 if found[1] == "-" else 1)
    if not -_MOST_OFFSET <= offset < _MOST_OFFSET:
        raise OperandError(f"the offset {offset:#x} is too large")
    return text[: found.start()].rstrip(), offset


def _scalar(text: str, scopes: Sequence[Scope]) -> Scalar:
    if text == "_":
        return Sink()
    negated, name = text.startswith("!"), text.lstrip("!")
    for scope in reversed(scopes):
        if name in scope.registers:
            found = scope.registers[name]
            return Reg(found.index, found.bytes, True) if negated else found
    if negated:
        raise OperandError(f"`{name}` is no predicate")
    if _INTEGER.match(text):
        return Value(_integer(text))
    if found := _FLOAT.match(text):
        return Value(int(found[1] or found[2], 16), 4 if found[1] else 8)
    base, offset = _with_offset(text)
    for scope in reversed(scopes):
        if base in scope.variables:
            return AddressOf(scope.variables[base], offset)
    if _SPECIAL.match(text):
        return Special(text)
    raise OperandError(f"`{text}` is not declared")


def _integer(text: str) -> int:
    digits = text.rstrip("U")
    sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits)
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    try:
        return sign * int(digits, 8 if octal else 0)
    except ValueError as error:
        raise OperandError(f"`{text}` is no number") from error


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    parts: list[str] = []
    depth, start = 0, 0
    for mark in _PART.finditer(text):
        match mark[0]:
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
            case _ if depth == 0:
                parts.append(text[start : mark.start()].strip())
                start = mark.end()
            case _:
                pass
    if depth != 0:
        raise OperandError("brackets that do not pair")
    parts.append(text[start:].strip())
    if parts == [""]:
        return []
    if "" in parts or any(p[0] in "{[" and p[-1] not in "}]" for p in parts):
        raise OperandError("an operand is missing")
    return parts
