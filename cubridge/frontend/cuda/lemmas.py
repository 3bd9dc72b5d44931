"""The table of proved helpers (`lemmas.toml`): a body that the table knows means what its row says."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import OPS, Expr, Gemm, Stmt
from cubridge.ir.parser import parse_expr
from cubridge.ir.source import SourceFile

TABLE: Final = Path(__file__).with_name("lemmas.toml")

OPERATIONS: Final[dict[str, type[Stmt]]] = {**OPS, "gemm": Gemm}
"""What a lemma of kind `operation` may be."""


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
    cols: str = ""
    arch: str = ""


@dataclass(frozen=True, slots=True)
class Lemmas:
    rows: tuple[Lemma, ...]
    by_digest: Mapping[str, Lemma]
    names: frozenset[str]

    def find(self, digest: str) -> Lemma | None:
        return self.by_digest.get(digest)


@cache
def load_lemmas(*more: Path) -> Lemmas:
    """The table, with the rows of other files behind its own. Errors: CU424 for a file or a row that cannot be read."""
    rows = tuple(row for path in (TABLE, *more) for row in read_rows(path))
    return Lemmas(rows, {d: row for row in rows for d in row.digests}, frozenset(r.name for r in rows))


def read_rows(path: Path) -> Iterator[Lemma]:
    """The rows of one file. Errors: as `load_lemmas`."""
    try:
        source = SourceFile.read(path)
        table = tomllib.loads(source.text)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise _fault(path, str(error)) from None
    for row in table.get("lemma", ()):
        try:
            columns = dict(row)
            params, digests = tuple(columns.pop("params", ())), frozenset(columns.pop("digests"))
            yield Lemma(params=params, digests=digests, **columns)
        except (KeyError, TypeError, ValueError) as error:
            raise _fault(path, f"row `{row.get('name', '?')}`: {error}") from None


def _fault(path: Path, why: str) -> CuError:
    return CuError(Diagnostic("CU424", f"the table of helpers {path} cannot be read: {why}"))


@cache
def meaning(text: str) -> Expr:
    """An expression of the table."""
    return parse_expr(text, "lemmas.toml")
