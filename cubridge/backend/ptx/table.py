"""The table of instructions, as the native library says it: names, operands, meanings. native/rows.h explains the tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from cubridge.backend.ptx.library import library

_TOKEN: Final = re.compile(r"([prRwAi]|T(\d))(?:\*(\d+))?(\?)?$")
_WIDTHS: Final = {"p": 0, "r": 4, "R": 8}


@dataclass(frozen=True, slots=True)
class Token:
    """What one operand may be. `count`: values in a group; `count_of_coordinates`: of a tensor's address."""

    kind: str
    count: int = 1
    optional: bool = False
    count_of_coordinates: int = 0

    @property
    def bytes(self) -> int | None:
        """Of a lane; None where 4 and 8 both do."""
        return _WIDTHS.get(self.kind)

    def takes(self, bytes: int) -> bool:
        return bytes in (4, 8) if self.bytes is None else bytes == self.bytes


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction; `results` and `sources` are its operands in their order."""

    index: int
    name: str
    results: tuple[Token, ...]
    sources: tuple[Token, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    rows: Mapping[str, Row]


@cache
def load_table() -> Table:
    """All rows by name. Errors: as `library`."""
    native = library()
    rows: dict[str, Row] = {}
    for index in range(native.ptx_row_count()):
        name, operands, meaning = (native.ptx_row(index, k).decode() for k in range(3))
        results, sources = operands.split("=")
        assert name not in rows, name
        rows[name] = Row(index, name, _tokens(results), _tokens(sources), meaning)
    return Table(rows)


def _tokens(text: str) -> tuple[Token, ...]:
    return tuple(_token(part) for part in text.split())


def _token(text: str) -> Token:
    found = _TOKEN.match(text)
    assert found is not None, text
    kind, coordinates, count, optional = found.groups()
    return Token(kind[0], int(count or 1), optional is not None, int(coordinates or 0))
