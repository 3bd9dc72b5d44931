"""A TOML table whose errors point at the line of a key, which tomllib does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn, cast

from cubridge.frontend.contract_params import parse_expr_at
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Expr
from cubridge.ir.source import SourceFile, Span


@lru_cache(maxsize=64)
def _places(file: SourceFile) -> Mapping[tuple[str, ...], Span]:
    """The lines of tables' headers and of keys, by their paths."""
    found: dict[tuple[str, ...], Span] = {}
    section: tuple[str, ...] = ()
    for number in range(1, len(file.line_starts) + 1):
        line = file.line(number).strip()
        if match := re.fullmatch(r"\[([\w.]+)\]\s*(?:#.*)?", line):
            section = tuple(match[1].split("."))
            found[section] = Span.whole_line(file, number)
        elif match := re.match(r"([^\s=]+)\s*=", line):
            found[(*section, match[1])] = Span.whole_line(file, number)
    return found


@dataclass(frozen=True, slots=True)
class Table:
    """One TOML table; errors point at the line of the key, which tomllib does not tell. `base`: of a whole file that has what is
    missing here."""

    file: SourceFile
    path: tuple[str, ...]
    data: Mapping[str, object]
    base: Table | None = None

    @staticmethod
    def load(file: SourceFile, version: int) -> Table:
        try:
            data = tomllib.loads(file.data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            at = re.search(r"at line (\d+)", str(error))
            span = Span.whole_line(file, int(at[1])) if at else Span(file, 0, 0)
            raise CuError(Diagnostic("CU451", f"not TOML: {error}", span)) from error
        table = Table(file, (), data)
        if table.integer("version") != version:
            table.fail(f"contract version {data['version']}; this tool reads version {version}", "version")
        return table

    def over(self, base: Table) -> Table:
        """With what the base has and this file does not say."""
        return Table(self.file, (), _merged(base.data, self.data), base)

    def check_keys(self, known: frozenset[str]) -> None:
        for key in self.data:
            if key not in known:
                self.fail(f"unknown key `{key}`; there are {', '.join(sorted(known))}", key)

    # -- typed access; a default makes a key optional --

    def text(self, key: str) -> str:
        return cast(str, self._typed(key, str, "a string"))

    def flag(self, key: str, default: bool | None = None) -> bool:
        return cast(bool, self._typed(key, bool, "true or false", default))

    def integer(self, key: str, default: int | None = None) -> int:
        return cast(int, self._typed(key, int, "an integer", default))

    def integers(self, key: str) -> list[int]:
        return [n if type(n) is int else self.fail(f"`{key}` lists integers", key) for n in self._list(key)]

    def texts(self, key: str) -> list[str]:
        return [n if isinstance(n, str) else self.fail(f"`{key}` lists strings", key) for n in self._list(key)]

    def choice(self, key: str, known: list[str], default: str | None = None) -> str:
        value = cast(str, self._typed(key, str, "a string", default))
        return value if value in known else self.fail(f"`{key}` is {', '.join(known)}, not `{value}`", key)

    def expr(self, key: str) -> Expr:
        return self._expr(key, self._value(key))

    def exprs(self, key: str) -> tuple[Expr, ...]:
        return tuple(self._expr(key, item) for item in self._list(key)) or self.fail(f"`{key}` is empty", key)

    def all_exprs(self) -> list[tuple[str, tuple[Expr, ...]]]:
        """Every key with its expression or list of expressions."""
        return [
            (key, self.exprs(key) if isinstance(value, list) else (self.expr(key),)) for key, value in self.data.items()
        ]

    def table(self, key: str) -> Table:
        data = self._typed(key, dict, "a table", {})
        return Table(self.file, (*self.path, key), cast("dict[str, object]", data), self.base)

    def tables(self, key: str) -> list[tuple[str, Table]]:
        outer = self.table(key)
        return [(name, outer.table(name)) for name in outer.data]

    def _value(self, key: str) -> object:
        if key not in self.data:
            self.fail(f"the key `{key}` is missing")
        return self.data[key]

    def _typed(self, key: str, kind: type, what: str, default: object = None) -> object:
        if default is not None and key not in self.data:
            return default
        value = self._value(key)
        if type(value) is not kind:
            self.fail(f"`{key}` is not {what}", key)
        return value

    def _list(self, key: str) -> list[object]:
        return cast("list[object]", self._typed(key, list, "a list"))

    def _expr(self, key: str, value: object) -> Expr:
        if type(value) is int:
            value = str(value)
        if not isinstance(value, str):
            self.fail(f"`{key}` is not an expression", key)
        span = self.span(key)
        at = max(span.text.find(value), 0)
        return parse_expr_at(value, span.file, span.start + len(span.text[:at].encode()))

    # -- places --

    def span(self, key: str) -> Span:
        """The lines of `key` in this table; the line of the table's header where the key is not written out."""
        return self._place((*self.path, key)) or self._place(self.path) or Span(self.file, 0, 0)

    def _place(self, path: tuple[str, ...]) -> Span | None:
        own = _places(self.file).get(path)
        return own if own is not None or self.base is None else self.base._place(path)

    def fail(self, message: str, key: str = "") -> NoReturn:
        where = f" in [{'.'.join(self.path)}]" if self.path else ""
        raise CuError(Diagnostic("CU451", f"{message}{where}", self.span(key)))


def _merged(base: Mapping[str, object], data: Mapping[str, object]) -> dict[str, object]:
    found = dict(base)
    for key, value in data.items():
        below = found.get(key)
        found[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return found
