"""Random integers and predicates over rows, keys and lengths, and their values."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from cubridge.ir.evaluate import evaluate
from cubridge.ir.nodes import Binary, Call, Expr, IntLit, Name, Unary

_LEAVES = st.one_of(st.sampled_from([Name("i"), Name("j"), Name("Lq"), Name("Lk")]), st.integers(-9, 20).map(IntLit))
_SMALL = st.integers(1, 9).map(IntLit)


def _extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    sums = st.builds(Binary, st.sampled_from(["+", "-"]), inner, inner)
    multiples = st.builds(Binary, st.just("*"), _SMALL, inner)
    divisions = st.builds(Binary, st.sampled_from(["//", "%"]), inner, _SMALL)
    extrema = st.builds(Call, st.sampled_from(["minimum", "maximum"]), st.tuples(inner, inner))
    return st.one_of(sums, multiples, divisions, extrema, st.builds(Call, st.just("abs"), st.tuples(inner)))


integers = st.recursive(_LEAVES, _extend, max_leaves=6)
comparisons = st.builds(Binary, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), integers, integers)


def _connect(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.builds(Binary, st.sampled_from(["&", "|"]), inner, inner)
    choices = st.builds(Call, st.just("where"), st.tuples(inner, inner, inner))
    return st.one_of(pairs, st.builds(Unary, st.just("~"), inner), choices)


predicates = st.recursive(comparisons, _connect, max_leaves=4)

# Masks as people write them: j against the row, with offsets, windows, chunks and prefixes.
_ROW = st.sampled_from([Name("i"), Binary("-", Binary("+", Name("i"), Name("Lk")), Name("Lq"))])
_OFFSET = st.integers(-40, 300).map(IntLit)
_BOUND = st.one_of(
    st.builds(Binary, st.sampled_from(["+", "-"]), _ROW, _OFFSET),
    st.builds(Binary, st.just("*"), st.just(IntLit(48)), st.builds(Binary, st.just("//"), _ROW, st.just(IntLit(48)))),
    st.just(Binary("//", Name("Lk"), IntLit(3))),
    _OFFSET,
)
_MASK_ATOMS = st.one_of(
    st.builds(Binary, st.sampled_from(["<", "<=", ">", ">="]), st.just(Name("j")), _BOUND),
    st.builds(Binary, st.sampled_from(["<", ">="]), st.just(Name("i")), _OFFSET),
    st.builds(
        Binary,
        st.just("<"),
        st.builds(Call, st.just("abs"), st.builds(lambda r: (Binary("-", r, Name("j")),), _ROW)),
        _OFFSET,
    ),
    st.builds(
        Binary,
        st.sampled_from(["==", "<="]),
        st.builds(Binary, st.just("//"), st.just(Name("j")), st.just(IntLit(80))),
        st.builds(Binary, st.just("//"), _ROW, st.just(IntLit(80))),
    ),
    st.just(Binary("!=", Binary("%", Name("j"), IntLit(3)), IntLit(1))),
)
masks = st.recursive(_MASK_ATOMS, _connect, max_leaves=5)


def value(expr: Expr, names: Mapping[str, int]) -> int | bool:
    """The value of an expression over plain names."""
    return evaluate(expr, lambda node: names[node.id])  # pyright: ignore
