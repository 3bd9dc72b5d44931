"""How a kernel text spells what CuIR names: the fields behind sizes, the arguments of a region's function, names CUDA refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import SIZES
from cubridge.ir.source import NOWHERE, Span

_KEYWORDS: Final = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await co_return
    co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
    virtual void volatile wchar_t while xor xor_eq
"""
RESERVED: Final = frozenset((*_KEYWORDS.split(), "i64", "u32", "u64", "half_t", "DEVICE", "KERNEL", "INFINITY", "NAN"))
"""Words of C++ and what every kernel defines for all of its text."""

_SIZE_FIELD: Final = re.compile(r"^\s*int\s+(\w+)\s*;\s*//\s*@host\s+(\w+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Names:
    """`size_fields`: the field of `Params` that holds a size, by size. `head_dim`: the macro that is D."""

    size_fields: Mapping[str, str]
    head_dim: str = "HEAD_DIM"

    @staticmethod
    def read(text: str) -> Names:
        """From the fields of `Params` whose host expression is one size: `int len_kv;  // @host Lk`."""
        return Names({size: name for name, size in _SIZE_FIELD.findall(text) if size in SIZES})


@dataclass(frozen=True, slots=True)
class Spelling:
    """Names inside one function: `arguments` from CuIR's name of an argument to the kernel's, `params` what it calls Params.
    `rows`, `score_columns`, `output_columns` are the extents of fragments, `r` and `c` the variables of loops over them."""

    names: Names
    arguments: Mapping[str, str]
    params: str = "p"
    rows: str = "ROWS"
    score_columns: str = "S_COLS"
    output_columns: str = "O_COLS"
    r: str = "r"
    c: str = "c"

    def argument(self, name: str) -> str:
        return self.arguments.get(name, name)


def check_name(name: str, what: str, span: Span = NOWHERE) -> None:
    """Errors: CU604 if CUDA text cannot have `name` for a new field or local."""
    if name in RESERVED or "__" in name or not name.isascii() or not name.isidentifier():
        raise CuError(
            Diagnostic("CU604", f"{what} `{name}` is not a name that CUDA text can have", span, help="rename it")
        )
