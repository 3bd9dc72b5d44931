"""How a kernel text spells what CuIR names: the fields behind sizes, the arguments of a region's function, names CUDA refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.contract import LaunchContract
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Name
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


@dataclass(frozen=True, slots=True)
class Names:
    """`size_fields`: the field of `Params` that holds a size, by size. `head_dim`: the macro that is D."""

    size_fields: Mapping[str, str]
    head_dim: str | None = "HEAD_DIM"

    @staticmethod
    def of(contract: LaunchContract) -> Names:
        """From the fields whose host value is one size, `int len_kv;  // @host Lk`, and the macro that has the value D."""
        fields = {f.size: f.name for f in contract.params if f.size is not None}
        return Names(fields, next((m.name for m in contract.macros if m.values == (Name("D"),)), None))


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
