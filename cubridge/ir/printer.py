"""Nodes to canonical CuIR text: `parse(to_text(n)) == n`, minimal parentheses, one way to write each thing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import assert_never

from cubridge.ir.families import FORWARD
from cubridge.ir.nodes import (
    CUIR_VERSION,
    Assign,
    Attr,
    Binary,
    BoolLit,
    Break,
    Call,
    Constant,
    Expr,
    Field,
    FieldType,
    FloatLit,
    For,
    Function,
    Gemm,
    If,
    Index,
    IntLit,
    Kernel,
    Loop,
    Name,
    Op,
    Record,
    RegionCall,
    RegisterTile,
    Stmt,
    Unary,
    text_of,
)
from cubridge.ir.vocabulary import (
    ATOM,
    COMPARISON,
    FIELD_FORMS,
    OP_FORMS,
    POWER,
    PRECEDENCE,
    SCORE_STATE,
    UNARY,
    Form,
)

_INDENT = "    "


@text_of.register
def to_text(kernel: Kernel) -> str:
    """The text of a kernel, ending in a newline."""
    return "\n\n".join(_parts(kernel)) + "\n"


def print_expr(expr: Expr) -> str:
    """The text of one expression."""
    return _expr(expr, 0)


def print_stmts(body: Iterable[Stmt], indent: int = 0) -> str:
    """The text of statements, `indent` levels deep; `pass` if there are none."""
    return "\n".join(_INDENT * indent + line for line in _lines(tuple(body)))


def print_function(function: Function, decorator: str = "@region") -> str:
    """The text of a region or of the schedule."""
    head = f"{decorator}\ndef {function.name}({', '.join(function.params)}):"
    if function.result is None:
        return f"{head}\n{print_stmts(function.body, 1)}"
    lines = [line for statement in function.body for line in _stmt(statement)]
    return "\n".join((head, *(_INDENT + line for line in (*lines, f"return {_expr(function.result, 0)}"))))


def print_field_type(kind: FieldType) -> str:
    """The text of a field's type, `Row(f32)`."""
    return _form(type(kind).__name__, FIELD_FORMS[type(kind).__name__], kind)


def _parts(kernel: Kernel) -> Iterator[str]:
    yield f"cuir(version={CUIR_VERSION})"
    yield f"const({', '.join(_constant(c) for c in kernel.constants)})"
    yield "\n".join(
        (
            _section("params", (f for f in kernel.params if f.fixed)),
            _section("variant_params", (f for f in kernel.params if not f.fixed)),
            _section("shared", kernel.shared),
            _section("tile_state", kernel.tile_state),
            _section("row_state", kernel.row_state),
            *([_section(SCORE_STATE, kernel.score_state)] if kernel.score_state else []),
        )
    )
    yield from (print_function(region) for region in kernel.regions)
    yield print_function(kernel.schedule, "@schedule")
    traits = (
        f'arch="{kernel.arch}", threads={_expr(kernel.threads, 0)}, team="{kernel.team}", '
        f"row_origin={_expr(kernel.row_origin, 0)}"
    )
    if kernel.family != FORWARD:
        traits += f', family="{kernel.family}"'
    yield print_function(Function(kernel.name, (), kernel.body), f"@kernel({traits})")


def _constant(constant: Constant) -> str:
    return f"{constant.name}={constant.value!r}"


def _section(name: str, content: Iterable[Field]) -> str:
    lines = [f"{_INDENT}{f.name}={print_field_type(f.type)}," for f in content]
    return "\n".join((f"{name}(", *lines, ")")) if lines else f"{name}()"


# ---- statements ------------------------------------------------------------------------------------------------------


def _lines(body: tuple[Stmt, ...]) -> list[str]:
    return [line for statement in body for line in _stmt(statement)] or ["pass"]


def _block(head: str, body: tuple[Stmt, ...]) -> list[str]:
    return [head, *(_INDENT + line for line in _lines(body))]


def _stmt(stmt: Stmt) -> list[str]:
    match stmt:
        case Assign(target, value):
            return [f"{_expr(target, 0)} = {_expr(value, 0)}"]
        case If(condition, then, orelse):
            other = _block("else:", orelse) if orelse else []
            return _block(f"if {_expr(condition, 0)}:", then) + other
        case For(var, start, stop, body):
            return _block(f"for {var} in range({_expr(start, 0)}, {_expr(stop, 0)}):", body)
        case Loop(body):
            return _block("while True:", body)
        case Break():
            return ["break"]
        case RegisterTile(name, dtype, rows, cols):
            extents = ", ".join(_expr(e, 0) for e in (rows, cols) if e is not None)
            return [f"{name} = register({dtype}, {extents})"]
        case Gemm():
            return [_gemm(stmt)]
        case RegionCall(region, args):
            return [f"{region}({_list(args)})"]
        case Op():
            return [_form(stmt.op, OP_FORMS[stmt.op], stmt)]
        case _:
            assert_never(stmt)  # pyright: ignore[reportArgumentType]


def _gemm(gemm: Gemm) -> str:
    function = "gemm_async" if gemm.asynchronous else "gemm"
    assign = "+=" if gemm.accumulate else "="
    a, b = _factor(gemm.a, gemm.a_transposed), _factor(gemm.b, gemm.transposed)
    return f"{_expr(gemm.dst, 0)} {assign} {function}({a}, {b})"


def _factor(tile: Expr, transposed: bool) -> str:
    return _expr(tile, ATOM) + ".T" if transposed else _expr(tile, 0)


def _form(name: str, form: Form, node: FieldType | Op) -> str:
    """A node as one call; keywords that have their default are left out."""
    parts = [_value(getattr(node, field)) for field in form.positional]
    if form.rest is not None:
        parts += [_expr(e, 0) for e in getattr(node, form.rest)]
    defaults = {f.name: f.default for f in fields(node)}
    for field in form.keywords:
        value = getattr(node, field)
        if value != defaults[field] or type(value) is not type(defaults[field]):
            parts.append(f"{field}={_value(value)}")
    return f"{name}({', '.join(parts)})"


def _value(value: object) -> str:
    return _expr(value, 0) if isinstance(value, Expr) else str(value)


# ---- expressions -----------------------------------------------------------------------------------------------------


def _expr(expr: Expr, level: int) -> str:
    """The text of `expr`, in parentheses if it binds weaker than `level`."""
    text, own = _bare(expr)
    return f"({text})" if own < level else text


def _bare(expr: Expr) -> tuple[str, int]:
    """The text of `expr` and how tight it binds."""
    match expr:
        case BoolLit(value):
            return str(value), ATOM
        case IntLit(value) | FloatLit(value):
            text = repr(value)
            return text, UNARY if text.startswith("-") else ATOM
        case Name(name):
            return name, ATOM
        case Attr(base, name):
            return f"{_base(base)}.{name}", ATOM
        case Index(base, indices):
            return f"{_base(base)}[{_list(indices)}]", ATOM
        case Unary(op, operand):
            return f"{op}{_unary_operand(op, operand)}", UNARY
        case Binary():
            return _binary(expr), PRECEDENCE[expr.op]
        case Call(fn, args):
            return f"{fn}({_list(args)})", ATOM
        case Record(name, parts):
            return f"{name}({', '.join(f'{a.name}={_expr(a.value, 0)}' for a in parts)})", ATOM
        case _:
            assert_never(expr)  # pyright: ignore[reportArgumentType]


def _list(exprs: Iterable[Expr]) -> str:
    return ", ".join(_expr(e, 0) for e in exprs)


def _base(expr: Expr) -> str:
    """What stands before a dot or a bracket; `1.x` would be a number."""
    text = _expr(expr, ATOM)
    return f"({text})" if isinstance(expr, IntLit | FloatLit) and not text.startswith("(") else text


def _unary_operand(op: str, operand: Expr) -> str:
    """`-3` is one literal, so that the negation of a literal needs parentheses."""
    text = _expr(operand, UNARY)
    return f"({text})" if op == "-" and isinstance(operand, IntLit | FloatLit) and text[0] != "-" else text


def _binary(expr: Binary) -> str:
    level = PRECEDENCE[expr.op]
    left, right = level, level + 1
    if level == POWER:
        left, right = ATOM, UNARY
    elif level == COMPARISON:
        left = level + 1
    return f"{_expr(expr.left, left)} {expr.op} {_expr(expr.right, right)}"
