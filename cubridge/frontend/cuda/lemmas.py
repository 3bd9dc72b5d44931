"""The table of proved helpers (`lemmas.toml`): a body that the table knows means what its row says."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.ir.nodes import OPS, Expr, Gemm, Stmt
from cubridge.ir.parser import parse_expr

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


@dataclass(frozen=True, slots=True)
class Lemmas:
    rows: tuple[Lemma, ...]
    by_digest: Mapping[str, Lemma]
    names: frozenset[str]

    def find(self, digest: str) -> Lemma | None:
        return self.by_digest.get(digest)


@cache
def load_lemmas(path: Path = TABLE) -> Lemmas:
    """The table; its expressions are parsed once, where they are used. Errors: KeyError and TypeError for a row of another shape,
    which the tests of the table find."""
    rows = tuple(_row(**row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["lemma"])
    return Lemmas(rows, {d: row for row in rows for d in row.digests}, frozenset(r.name for r in rows))


def _row(*, params: list[str] | None = None, digests: list[str], **columns: str) -> Lemma:
    return Lemma(params=tuple(params or ()), digests=frozenset(digests), **columns)  # pyright: ignore[reportArgumentType]


@cache
def meaning(text: str) -> Expr:
    """An expression of the table."""
    return parse_expr(text, "lemmas.toml")
