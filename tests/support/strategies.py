"""Hypothesis strategies for expressions and kernels: anything that the node classes can hold and text can say."""

from __future__ import annotations

import keyword
from dataclasses import fields
from typing import Final

from hypothesis import strategies as st

from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import (
    BINARY_OPS,
    OPS,
    REGIONS,
    UNARY_OPS,
    Argument,
    Assign,
    Attr,
    Barrier,
    Binary,
    BoolLit,
    Break,
    Call,
    Captured,
    Constant,
    Counters,
    Expr,
    Field,
    FieldType,
    FloatLit,
    For,
    Function,
    Gemm,
    Global,
    If,
    Index,
    IntLit,
    Kernel,
    Loop,
    Name,
    Op,
    Partial,
    Record,
    RegionCall,
    RegisterTile,
    Row,
    Scalar,
    SharedValue,
    Stmt,
    TensorMap,
    Tile,
    Unary,
)
from cubridge.ir.types import DType
from cubridge.ir.vocabulary import VALUE_REGIONS

_WORDS: Final = {"True", "False", "register", "gemm", "gemm_async", *OPS, *REGIONS}

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(
    lambda word: not keyword.iskeyword(word) and word not in _WORDS
)
dtypes = st.sampled_from(DType)
floats = st.floats(allow_nan=False, allow_infinity=False)
ints = st.integers(-(2**63) + 1, 2**63 - 1)

_leaves: st.SearchStrategy[Expr] = st.one_of(
    st.booleans().map(BoolLit),
    ints.map(IntLit),
    floats.map(FloatLit),
    names.map(Name),
    st.builds(Attr, st.sampled_from(["p", "row", "tile", "smem"]).map(Name), names),
)


def _larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    tuples = st.lists(inner, min_size=1, max_size=3).map(tuple)
    calls = st.sampled_from(sorted(FUNCTIONS)).flatmap(
        lambda fn: st.builds(Call, st.just(fn), st.tuples(*[inner] * FUNCTIONS[fn].arity))
    )
    arguments = st.lists(st.builds(Argument, names, inner), min_size=1, max_size=3, unique_by=lambda a: a.name)
    records = st.builds(Record, names.filter(lambda n: n not in FUNCTIONS), arguments.map(tuple))
    return st.one_of(
        st.builds(Unary, st.sampled_from(UNARY_OPS), inner),
        st.builds(Binary, st.sampled_from(BINARY_OPS), inner, inner),
        st.builds(Attr, inner, names.filter(lambda n: n != "T")),
        st.builds(Index, inner, tuples),
        calls,
        records.filter(lambda r: r.name not in _CALLED),
    )


_CALLED: Final = {"present", "atomic_add", "bytes", "Ring", "row_state", "work_tile", *VALUE_REGIONS}

exprs: st.SearchStrategy[Expr] = st.recursive(_leaves, _larger, max_leaves=12)
"""Any expression."""

small_exprs: st.SearchStrategy[Expr] = st.recursive(_leaves, _larger, max_leaves=3)

# ---- statements ------------------------------------------------------------------------------------------------------

_optional = st.none() | small_exprs


def _op(cls: type[Op]) -> st.SearchStrategy[Stmt]:
    parts = {f.name: _optional if f.default is None else small_exprs for f in fields(cls) if f.name != "span"}
    return st.builds(cls, **parts)


_targets = st.one_of(names.map(Name), st.builds(Attr, st.sampled_from(["row", "tile", "smem"]).map(Name), names))
_simple: st.SearchStrategy[Stmt] = st.one_of(
    st.builds(Assign, _targets, small_exprs),
    st.builds(RegisterTile, names, dtypes, small_exprs, _optional),
    st.builds(Gemm, _targets, small_exprs, small_exprs, st.booleans(), st.booleans(), st.booleans()),
    st.builds(
        RegionCall,
        st.sampled_from([r for r in REGIONS if r not in VALUE_REGIONS]),
        st.lists(small_exprs, max_size=3).map(tuple),
    ),
    st.one_of([_op(cls) for cls in OPS.values()]),
    st.just(Break()),
)


def _blocks(inner: st.SearchStrategy[Stmt]) -> st.SearchStrategy[Stmt]:
    body = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        st.builds(If, small_exprs, body, body),
        st.builds(For, names, small_exprs, small_exprs, body),
        st.builds(Loop, body),
    )


stmts: st.SearchStrategy[Stmt] = st.recursive(_simple, _blocks, max_leaves=4)
bodies = st.lists(stmts, max_size=4).map(tuple)

# ---- kernels ---------------------------------------------------------------------------------------------------------

_shape = st.lists(small_exprs, max_size=3).map(tuple)
_number = st.integers(0, 2**31)
field_types: st.SearchStrategy[FieldType] = st.one_of(
    st.builds(Global, dtypes, _shape, st.booleans()),
    st.builds(TensorMap, dtypes, _shape),
    st.builds(Scalar, dtypes, _optional),
    st.builds(Captured, dtypes, _shape, _number, st.none() | names),
    st.builds(Counters, small_exprs, st.booleans()),
    st.builds(Tile, dtypes, small_exprs, small_exprs, _optional, _number),
    st.builds(SharedValue, dtypes),
    st.builds(Barrier, _optional),
    st.builds(Row, dtypes),
    st.builds(Partial, dtypes),
)


def _fields(fixed: bool = True) -> st.SearchStrategy[tuple[Field, ...]]:
    items = st.builds(Field, names, field_types, st.just(fixed))
    return st.lists(items, max_size=3, unique_by=lambda f: f.name).map(tuple)


_constants = st.lists(st.builds(Constant, names, ints | floats), max_size=3, unique_by=lambda c: c.name).map(tuple)
_params = st.lists(names, max_size=3, unique=True).map(tuple)


def _functions(name: st.SearchStrategy[str]) -> st.SearchStrategy[Function]:
    return st.builds(Function, name, _params, bodies, _optional)


kernels: st.SearchStrategy[Kernel] = st.builds(
    Kernel,
    name=names,
    arch=st.sampled_from(["sm_80", "sm_90a"]),
    threads=small_exprs,
    team=st.sampled_from(["block", "warpgroup"]),
    row_origin=small_exprs,
    constants=_constants,
    params=st.builds(lambda a, b: a + b, _fields(), _fields(fixed=False)),
    shared=_fields(),
    tile_state=_fields(),
    row_state=_fields(),
    regions=st.lists(_functions(st.sampled_from(sorted(REGIONS))), max_size=3).map(tuple),
    schedule=_functions(st.just("work_tile")),
    body=bodies,
)
"""Any kernel, sensible or not."""
