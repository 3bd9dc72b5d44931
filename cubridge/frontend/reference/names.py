"""Names in code: of globals and attributes, also those that it asks for by strings, and of modules that it imports."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Final

ASKS: Final = "?"
"""Stands among the names of code that may ask for an attribute by any string; before a name, that it may be absent."""
_ATTRIBUTES: Final = frozenset(("getattr", "hasattr"))
_SPACES: Final = frozenset(
    ("__dict__", "__getattribute__", "attrgetter", "eval", "exec", "get_buffer", "get_parameter", "get_submodule", "globals",
     "locals", "methodcaller", "modules", "vars")
)  # fmt: skip
"""By which code reads what the words of a string name."""


def code_names(code: CodeType) -> Iterator[str]:
    """Of globals and attributes, in the functions inside as well; what `getattr` is asked for, also with a `?` before it."""
    yield from code.co_names
    asks, reads = not _ATTRIBUTES.isdisjoint(code.co_names), not _SPACES.isdisjoint(code.co_names)
    if asks or reads:
        yield ASKS
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_names(constant)
        elif asks and isinstance(constant, str) and constant.isidentifier():
            yield from (constant, f"{ASKS}{constant}")
        elif reads and isinstance(constant, str):
            yield from re.findall(r"[^\W\d]\w*", constant)


def asked_for(strings: Iterable[object]) -> Iterator[str]:
    """Those of the values that may name an attribute."""
    return (x for x in strings if isinstance(x, str) and x.isidentifier())


@lru_cache(1024)
def globals_of(code: CodeType) -> frozenset[str]:
    """Names of globals alone, in the functions inside as well."""
    read = {str(x.argval) for x in dis.get_instructions(code) if x.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    if not _SPACES.isdisjoint(code.co_names):
        read.update(code_names(code))
    return frozenset(read.union(*(globals_of(c) for c in _inner(code))))


@lru_cache(1024)
def modules_of(code: CodeType) -> frozenset[str]:
    """Those that the code imports, in the functions inside as well."""
    read = {str(x.argval) for x in dis.get_instructions(code) if x.opname == "IMPORT_NAME"}
    return frozenset(read.union(*(modules_of(c) for c in _inner(code))))


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (c for c in code.co_consts if isinstance(c, CodeType))
