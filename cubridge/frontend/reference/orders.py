"""The order in which parts of an expression are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cubridge.frontend.reference.algebra.terms import Const, Index, Load, Size, Sort, Symbol, Term, is_const, is_op
from cubridge.ir.nodes import Expr
from cubridge.ir.printer import print_expr

PIVOTS: Final = ("j", "i", "h", "b")
"""The index that a relation is solved for, first choice first."""

_INDEX_RANK: Final[Mapping[str, int]] = {"j": 0, "i": 1, "h": 2, "b": 3}
_SIZE_RANK: Final[Mapping[str, int]] = {"Lk": 0, "Lq": 1, "D": 2, "Hk": 3, "G": 4, "B": 5}


def monomial_rank(monomial: tuple[Term, ...]) -> tuple[int, ...]:
    """Indices, then computed atoms, then sizes, then the constant."""
    if not monomial:
        return (9,)
    return min(_atom_rank(a) for a in monomial)


def _atom_rank(atom: Term) -> tuple[int, ...]:
    match atom:
        case Index():
            return 0, _INDEX_RANK.get(atom.name, 9)
        case Load():
            return (1, *_free_rank(atom), atom.digest)
        case Size():
            return 3, _SIZE_RANK.get(atom.name, 9)
        case _:
            return (2, *_free_rank(atom), atom.digest)


def _free_rank(term: Term) -> tuple[int, ...]:
    return tuple(name not in term.free for name in PIVOTS)


def key_rank(term: Term) -> tuple[int, ...]:
    """What stands on the left of a relation: the side with the key, then the side with the row."""
    return (*_free_rank(term), is_const(term))


def summand_rank(term: Term) -> tuple[int, ...]:
    return (
        isinstance(term, Const),
        not isinstance(term, Symbol),
        not any(name.startswith("$") for name in term.reads),
        not term.reads,
        term.sort is not Sort.REAL,
        *_free_rank(term),
        term.digest,
    )


def factor_rank(base: Term) -> tuple[int, ...]:
    computed = any(name.startswith("$") for name in base.reads)
    return not isinstance(base, Symbol), computed, bool(base.free), is_op(base, "real"), base.digest


def reading_order(expr: Expr) -> tuple[int, str]:
    text = print_expr(expr)
    return len(text), text
