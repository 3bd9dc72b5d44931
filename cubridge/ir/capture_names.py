"""Captured values and the fields of `Params` that hold them. A field is called as its capture is, unless kernel text cannot have
that name; the field then says itself what it captured, and nothing that reads a kernel works the name out again."""

from __future__ import annotations

from itertools import count
from typing import Final

from cubridge.ir.nodes import NAMED_CONSTANTS, SIZES, Captured, Field, Kernel, Name, Scalar

_KEYWORDS: Final = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await co_return
    co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
    virtual void volatile wchar_t while xor xor_eq
"""
_EVERY_KERNEL: Final = "i64 u32 u64 half_t shared_int ListTile TensorMap Params DEVICE KERNEL INFINITY NAN"
CUDA_WORDS: Final = frozenset((*_KEYWORDS.split(), *_EVERY_KERNEL.split()))
"""Words of C++, and the types and macros that every kernel text has."""

_TENSORS: Final = ("q", "k", "v", "o")
_UNNAMED_FIELDS: Final = frozenset(
    (
        "batch",
        "heads_q",
        "heads_kv",
        "len_q",
        "len_kv",
        *(f"{t}_{axis}" for t in _TENSORS for axis in ("batch", "head", "row")),
    )
)
"""Fields of `Params` that CuIR does not name, as kernel texts call them: sizes and strides."""

HOST_NAMES: Final = ("SM_COUNT", "L2_BYTES")
"""What host formulas read besides sizes, constants and captured numbers."""

_NO_CAPTURE: Final = frozenset((*SIZES, *NAMED_CONSTANTS, *HOST_NAMES))


def is_cuda_name(name: str) -> bool:
    """Can CUDA text have `name` for a new field or local."""
    return name not in CUDA_WORDS and "__" not in name and name.isascii() and name.isidentifier()


def is_macro_name(name: str) -> bool:
    """Is a name written as macros are, in capitals."""
    return len(name) > 1 and name.isupper()


def field_name(capture: str, kernel: Kernel) -> str:
    """A field for a captured value: of its own name, or one that begins with `captured_` where the kernel has that name."""
    taken = {*(f.name for f in kernel.params), *(c.name for c in kernel.constants), *_UNNAMED_FIELDS}
    if is_cuda_name(capture) and capture not in taken and not is_macro_name(capture):
        return capture
    stem = "_".join(("captured", *filter(None, capture.split("_"))))
    names = (stem if n == 1 else f"{stem}_{n}" for n in count(1))
    return next(n for n in names if n not in taken)


def capture_of(field: Field) -> str | None:
    """The captured value that a parameter holds as it is; None for any other parameter."""
    match field:
        case Field(name, Captured(of=of)):
            return of or name
        case Field(_, Scalar(host=Name(name)), fixed=False) if name not in _NO_CAPTURE:
            return name
        case _:
            return None
