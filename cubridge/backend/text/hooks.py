"""Hooks of a foreign kernel: functions of CUDA in one header, which say what regions of CuIR say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cubridge.backend.text.emit_types import unsayable
from cubridge.ir.nodes import (
    COMPARISONS,
    Assign,
    Attr,
    Binary,
    BoolLit,
    Call,
    Expr,
    FloatLit,
    Function,
    IntLit,
    Kernel,
    Name,
    Record,
    Unary,
)  # fmt: skip
from cubridge.ir.walk import free_names, rewrite, walk

KEEP: Final = "cubridge_keep"
KEY_TILES: Final = "cubridge_key_tiles"
SCORE: Final = "cubridge_score"
HIDE: Final = "cubridge_hide"
SAME_SCORE: Final[Expr] = Name("x")
TILE: Final = ("b", "h", "q_start")
_BINARY: Final = {"&": "&&", "|": "||", **{op: op for op in ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=")}}
_CALLS: Final = {
    "minimum": "min", "maximum": "max", "abs": "abs", "ceil_div": "cubridge_ceil_div", "floor_div": "cubridge_floor_div",
    "floor_mod": "cubridge_floor_mod",
}  # fmt: skip
_FLOATS: Final = {
    "maximum": "fmaxf", "minimum": "fminf", "abs": "fabsf", "exp": "__expf", "exp2": "exp2f", "log": "__logf", "log2": "log2f",
    "sqrt": "sqrtf", "tanh": "tanhf",
}  # fmt: skip
_HELPERS: Final = """\
static __device__ __forceinline__ float cubridge_hide(bool keep, float score) { return keep ? score : __int_as_float(0xff800000); }
static __device__ __forceinline__ int cubridge_floor_div(int a, int b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static __device__ __forceinline__ int cubridge_floor_mod(int a, int b) { return a - cubridge_floor_div(a, b) * b; }
static __device__ __forceinline__ int cubridge_ceil_div(int a, int b) { return -cubridge_floor_div(-a, b); }
"""


def hook_header(kernel: Kernel, sizes: Sequence[str], key_rows: int, score: Expr = SAME_SCORE) -> str:
    """The header. `sizes`: those that the text can give; `score`: over x, the kernel's own.
    Errors: CU603 for what C cannot say with them."""
    parameters = ", ".join(f"int {name}" for name in (*sizes, *TILE))
    keep, tiles = _keep(kernel.region("mask")), _key_tiles(kernel, key_rows)
    known = {*sizes, *TILE}
    return (
        "// Hooks of `cuirc adopt`: what a variant changes. B to Lk: sizes; b, h, q_start: of the block's query tile.\n"
        "#pragma once\n"
        f"{_HELPERS}\n"
        "// Does row i see key j?\n"
        f"static __device__ __forceinline__ bool {KEEP}(int i, int j, {parameters}) {{\n"
        f"    return {_c(keep, known | {'i', 'j'}, kernel)};\n}}\n\n"
        "// What is a score, x in the kernel's own units?\n"
        f"static __device__ __forceinline__ float {SCORE}(float x) {{ return {_float(score)}; }}\n\n"
        "// How many key tiles, from the first on, does the block visit?\n"
        f"static __device__ __forceinline__ int {KEY_TILES}({parameters}) {{\n"
        f"    return {_c(tiles, known, kernel)};\n}}\n"
    )


def _keep(mask: Function) -> Expr:
    match mask.body:
        case (Assign(Name("s"), Call("where", (condition, Name("s"), _))),):
            return condition
        case ():
            return BoolLit(True)
        case _:
            raise unsayable("a mask that is no one `where` has no hook", mask)


def _key_tiles(kernel: Kernel, key_rows: int) -> Expr:
    """The end of a sequence of one run of tiles; of any other one, of all keys."""
    region = kernel.region("key_sequence")
    match region.result:
        case Record(_, fields) if {f.name for f in fields} == {"lo", "hi", "full_lo", "full_hi"}:
            end = _put_together(region, next(f.value for f in fields if f.name == "hi"))
            if not any(isinstance(n, Attr) and n.base == Name("p") for n in walk(end)):
                return end
        case _:
            pass
    return Call("ceil_div", (Name("Lk"), IntLit(key_rows)))


def _put_together(region: Function, value: Expr) -> Expr:
    """`value` without the names that the region gives its parts."""
    names: dict[str, Expr] = {}
    for statement in region.body:
        if isinstance(statement, Assign) and isinstance(statement.target, Name):
            names[statement.target.id] = _with_names(statement.value, names)
    return _with_names(value, names)


def _with_names(value: Expr, names: dict[str, Expr]) -> Expr:
    return rewrite(value, lambda n: names.get(n.id, n) if isinstance(n, Name) else n)  # pyright: ignore[reportReturnType]


def _c(expr: Expr, known: set[str], kernel: Kernel) -> str:
    values = {name: IntLit(int(value)) for name, value in kernel.constant_values.items()}
    values["D"] = values["HEAD_DIM"]
    put = _with_names(expr, dict(values))
    for name in sorted(free_names(put) - known - {"tile"}):
        raise unsayable(f"the text has no parameter that is `{name}`", expr)
    return _printed(put)


def _printed(expr: Expr) -> str:
    match expr:
        case BoolLit(value):
            return "true" if value else "false"
        case IntLit(value):
            return str(value)
        case Name(name):
            return name
        case Attr(Name("tile"), name) if name in TILE:
            return name
        case Unary("~", operand):
            return f"!({_printed(operand)})"
        case Unary("-", operand):
            return f"-({_printed(operand)})"
        case Call("ceil_div", (left, IntLit(size))) if _is_power(size):
            return f"(({_printed(left)} + {size - 1}) >> {size.bit_length() - 1})"
        case Binary("//", left, IntLit(size)) if _is_power(size):
            return f"({_printed(left)} >> {size.bit_length() - 1})"
        case Binary("%", left, IntLit(size)) if _is_power(size):
            return f"({_printed(left)} & {size - 1})"
        case Binary("//" | "%" as op, left, right) if _not_negative(left) and _not_negative(right):
            return f"({_printed(left)} {op[0]} {_printed(right)})"
        case Binary("//", left, right):
            return f"cubridge_floor_div({_printed(left)}, {_printed(right)})"
        case Binary("%", left, right):
            return f"cubridge_floor_mod({_printed(left)}, {_printed(right)})"
        case Binary(op, left, right) if op in _BINARY:
            return f"({_printed(left)} {_BINARY[op]} {_printed(right)})"
        case Call("where", (condition, then, otherwise)):
            return f"({_printed(condition)} ? {_printed(then)} : {_printed(otherwise)})"
        case Call(fn, args) if fn in _CALLS:
            return f"{_CALLS[fn]}({', '.join(map(_printed, args))})"
        case _:
            raise unsayable("this has no spelling in a hook", expr)


def _float(expr: Expr) -> str:
    """Over floats alone."""
    match expr:
        case Name("x"):
            return "x"
        case IntLit(value) | FloatLit(value):
            return f"{float(value)!r}f"
        case Unary("-", operand):
            return f"-({_float(operand)})"
        case Binary("+" | "-" | "*" | "/" as op, left, right):
            return f"({_float(left)} {op} {_float(right)})"
        case Call("where", (Binary(op, a, b), then, otherwise)) if op in COMPARISONS:
            return f"({_float(a)} {op} {_float(b)} ? {_float(then)} : {_float(otherwise)})"
        case Call(fn, args) if fn in _FLOATS:
            return f"{_FLOATS[fn]}({', '.join(map(_float, args))})"
        case _:
            raise unsayable("this has no spelling in a hook of scores", expr)


def _not_negative(expr: Expr) -> bool:
    """Known from its form: names are sizes, rows and keys."""
    match expr:
        case Name() | Attr():
            return True
        case IntLit(value):
            return value >= 0
        case Binary("+" | "*" | "//" | "%", left, right) | Call("minimum" | "ceil_div", (left, right)):
            return _not_negative(left) and _not_negative(right)
        case Call("maximum", (left, right)):
            return _not_negative(left) or _not_negative(right)
        case _:
            return False


def _is_power(size: int) -> bool:
    """Of two: C shifts and masks round down as CuIR does, whatever the sign."""
    return size > 0 and size & (size - 1) == 0
