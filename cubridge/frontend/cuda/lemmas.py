"""The table of tested helpers (`lemmas.toml`): a body that the table knows means what its row says."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import OPS, Expr, Gemm, Stmt
from cubridge.ir.parser import parse_expr
from cubridge.ir.source import SourceFile, Span

TABLE: Final = Path(__file__).with_name("lemmas.toml")

OPERATIONS: Final[dict[str, type[Stmt]]] = {**OPS, "gemm": Gemm}
"""What a lemma of kind `operation` may be."""
KINDS: Final = ("value", "operation", "view", "rows", "columns", "type", "macro")
TYPES: Final = ("tile", "registers", "barrier", "ring", "tensor_map", "view")
"""What a lemma of kind `type` may mean."""


@dataclass(frozen=True, slots=True)
class Lemma:
    """A row of the table, its columns as the head of `lemmas.toml` says."""

    name: str
    kind: str
    digests: frozenset[str]
    claims: str
    params: tuple[str, ...] = ()
    means: str = ""
    op: str = ""
    fields: Mapping[str, str | bool] = field(default_factory=dict[str, "str | bool"])
    team: str = ""
    tile_rows: str = ""
    row_origin: str = ""
    lanes: int = 0
    swizzle: int = 0
    rows: str = ""
    cols: str = ""
    element: str = ""
    held: int = 0
    arch: str = ""


@dataclass(frozen=True, slots=True)
class Lemmas:
    rows: tuple[Lemma, ...]
    by_digest: Mapping[str, Lemma]
    names: frozenset[str]

    def find(self, digest: str) -> Lemma | None:
        return self.by_digest.get(digest)


def load_lemmas(*more: Path) -> Lemmas:
    """The table, with the rows of other files behind its own. Errors: CU424 for a file or a row that cannot be read."""
    rows = (*_shipped(), *(row for path in more for row in read_rows(path)))
    return Lemmas(rows, {d: row for row in rows for d in row.digests}, frozenset(r.name for r in rows))


@cache
def _shipped() -> tuple[Lemma, ...]:
    return tuple(read_rows(TABLE))


def read_rows(path: Path) -> Iterator[Lemma]:
    """The rows of one file. Errors: as `load_lemmas`."""
    try:
        source = SourceFile.read(path)
        table = tomllib.loads(source.text)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CuError(Diagnostic("CU424", f"the table of helpers {path} cannot be read: {error}")) from None
    seen: set[str] = set()
    for number, row in enumerate(table.get("lemma", ())):
        try:
            columns = dict(row)
            params, digests = tuple(columns.pop("params", ())), frozenset(columns.pop("digests"))
            lemma = Lemma(params=params, digests=digests, **columns)
            check_row(lemma)
            if twice := digests & seen:
                raise ValueError(f"another row claims the body of digest {min(twice)}")
            seen |= digests
        except (KeyError, TypeError, ValueError) as error:
            why = f"the column {error} is missing" if isinstance(error, KeyError) else str(error)
            raise CuError(
                Diagnostic(
                    "CU424", f"row `{row.get('name', '?')}` of the table of helpers: {why}", _header(source, number)
                )
            ) from None
        yield lemma


def _header(source: SourceFile, number: int) -> Span:
    """The line of the heading of a row, the place of what is wrong in it."""
    lines = [n for n in range(1, len(source.line_starts) + 1) if source.line(n).strip() == "[[lemma]]"]
    return Span.whole_line(source, lines[number]) if number < len(lines) else Span(source, 0, 0)


def check_row(row: Lemma) -> None:
    """Errors: ValueError where a row does not say what its kind needs."""
    match row.kind:
        case "value":
            _formula("means", row.means)
        case "operation":
            _check_operation(row)
        case "rows":
            _one_of("team", row.team, ("block", "warpgroup"))
            _formula("tile_rows", row.tile_rows)
            _formula("row_origin", row.row_origin)
        case "columns" if row.lanes <= 0:
            raise ValueError("`lanes` is how many lanes share a row")
        case "type":
            _one_of("means", row.means, TYPES)
        case _:
            _one_of("kind", row.kind, KINDS)


def _check_operation(row: Lemma) -> None:
    _one_of("op", row.op, OPERATIONS)
    wanted = {f.name: f.default is MISSING for f in fields(OPERATIONS[row.op]) if f.name != "span"}
    for name, value in row.fields.items():
        _one_of("fields", name, wanted)
        if not isinstance(value, bool):
            _formula("fields", value)
    if missing := [name for name, needed in wanted.items() if needed and name not in row.fields]:
        raise ValueError(f"`fields` of `{row.op}` lacks {', '.join(missing)}")


def _one_of(column: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise ValueError(f"no {column} `{word}`; there are {', '.join(known)}")


def _formula(column: str, text: str) -> None:
    try:
        meaning(text)
    except CuError as error:
        raise ValueError(f"`{text}` in `{column}` is no expression of CuIR: {error.diagnostics[0].message}") from None


@cache
def meaning(text: str) -> Expr:
    """An expression of the table."""
    return parse_expr(text, "lemmas.toml")
