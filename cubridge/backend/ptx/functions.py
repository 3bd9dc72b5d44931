"""Functions that were not inlined: their heads, and calls of them.

The parser reads a function's body again at every call, with registers and memory of its own; parameters are local memory of the
caller. So the machine knows no calls, and a function that calls itself cannot be read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cubridge.backend.ptx.operands import OperandError, Scope
from cubridge.backend.ptx.program import Space, Variable
from cubridge.backend.ptx.variables import declared_variable

MOST_DEEP: Final = 40
"""Calls within calls."""
MOST_READ_AGAIN: Final = 4 << 20
"""Bytes of calls and the bodies that are read for them."""
KNOWN: Final[Mapping[str, tuple[str, ...]]] = {"__assertfail": ("trap",), "vprintf": ()}
"""What functions of the driver do here: printing does nothing, and what it returns is unknown."""

_HEAD: Final = re.compile(
    r"(?:\.(?:extern|visible|weak)\s+)*\.func\s*(?:\((?P<results>[^)]*)\))?\s*(?P<name>[\w$]+)\s*(?:\((?P<params>[^)]*)\))?"
)
_CALL: Final = re.compile(
    r"\s*(?:\((?P<results>[^()]*)\)\s*,\s*)?(?P<name>[\w$%]+)\s*(?:,\s*\((?P<params>[^()]*)\)\s*)?(?P<targets>,\s*[\w$]+\s*)?$"
)


@dataclass(frozen=True, slots=True)
class Function:
    """`results` and `params` as they were declared. `body`: where its brace is; None if it has no body here."""

    name: str
    results: tuple[str, ...]
    params: tuple[str, ...]
    body: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """`results` and `params` are names of variables."""

    name: str
    results: tuple[str, ...]
    params: tuple[str, ...]


def read_head(directive: str, body: int | None) -> Function | None:
    """None if this declares no function."""
    found = _HEAD.match(directive)
    return found and Function(found["name"], _listed(found["results"]), _listed(found["params"]), body)


def read_call(operands: str) -> Call:
    """`(result), name, (a, b)`. Raises OperandError for a call through an address and for other forms."""
    found = _CALL.match(operands)
    if found is None:
        raise OperandError("a call of an unknown form")
    if found["targets"] is not None or found["name"].startswith("%"):
        raise OperandError(f"a call through `{found['name']}`: only functions that are named are called")
    return Call(found["name"], _listed(found["results"]), _listed(found["params"]))


def called(call: Call, functions: Mapping[str, Function], within: Sequence[str]) -> tuple[Function, int]:
    """The function that is called, and where its body is. `within`: the calls that this one stands in. Raises OperandError."""
    function = functions.get(call.name)
    if function is None:
        raise OperandError(f"`{call.name}` is no function here")
    if function.body is None:
        raise OperandError(f"the function `{call.name}` has no body here")
    if call.name in within:
        raise OperandError(f"the function `{call.name}` calls itself: recursion is not run")
    if len(within) == MOST_DEEP:
        raise OperandError(f"calls are more than {MOST_DEEP} deep")
    return function, function.body


def bound(call: Call, function: Function, scopes: Sequence[Scope]) -> dict[str, Variable]:
    """The function's parameters and results by their names: variables of the caller. Raises OperandError."""
    given, declared = (*call.results, *call.params), (*function.results, *function.params)
    if (len(call.results), len(call.params)) != (len(function.results), len(function.params)):
        raise OperandError(f"`{call.name}` is declared with another number of parameters or results")
    variables: dict[str, Variable] = {}
    for name, text in zip(given, declared, strict=True):
        formal = declared_variable(" ".join(text.split()))
        found = next((s.variables[name] for s in reversed(scopes) if name in s.variables), None)
        if formal is None or found is None or found.space is not Space.LOCAL or found.bytes != formal.bytes:
            raise OperandError(f"`{name}` is no `.param` variable of the size of `{text}`")
        variables[formal.name] = found
    return variables


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in (text or "").split(","))))
