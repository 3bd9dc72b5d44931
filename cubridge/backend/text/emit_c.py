"""C syntax trees: short constructors for what region code needs, and the printer that gives them the kernels' layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pycparser import c_ast, c_generator

INDENT: Final = 4

# ---- expressions -----------------------------------------------------------------------------------------------------


class Braces(c_ast.FuncCall):
    """`Type{a, b}`, which C does not have."""

    __slots__ = ()


def ident(name: str) -> c_ast.ID:
    return c_ast.ID(name)


def member(base: c_ast.Node, name: str) -> c_ast.StructRef:
    return c_ast.StructRef(base, ".", c_ast.ID(name))


def subscript(base: c_ast.Node, *indices: c_ast.Node) -> c_ast.Node:
    for index in indices:
        base = c_ast.ArrayRef(base, index)
    return base


def call(name: str, *args: c_ast.Node) -> c_ast.FuncCall:
    return c_ast.FuncCall(c_ast.ID(name), c_ast.ExprList(list(args)))


def braces(name: str, args: Sequence[c_ast.Node]) -> Braces:
    return Braces(c_ast.ID(name), c_ast.ExprList(list(args)))


def binary(op: str, left: c_ast.Node, right: c_ast.Node) -> c_ast.BinaryOp:
    return c_ast.BinaryOp(op, left, right)


def unary(op: str, operand: c_ast.Node) -> c_ast.UnaryOp:
    return c_ast.UnaryOp(op, operand)


def select(condition: c_ast.Node, then: c_ast.Node, otherwise: c_ast.Node) -> c_ast.TernaryOp:
    return c_ast.TernaryOp(condition, then, otherwise)


def cast(c_type: str, operand: c_ast.Node) -> c_ast.Cast:
    named = c_ast.TypeDecl(None, [], None, c_ast.IdentifierType([c_type]))
    return c_ast.Cast(c_ast.Typename(None, [], None, named), operand)


def int_constant(value: int) -> c_ast.Node:
    """A negative number is an operator and a constant in C; one that needs more than 31 bits is 64-bit."""
    if value < 0:
        return unary("-", int_constant(-value))
    return c_ast.Constant("int", str(value) if value < 2**31 else f"{value}LL")


def float_constant(value: float) -> c_ast.Node:
    """The shortest decimal that reads back as `value`: `0.f`, `0.125f`, `1e-08f`."""
    if str(value).startswith("-"):
        return unary("-", float_constant(-value))
    text = repr(value).replace("e+", "e")
    return c_ast.Constant("float", (text.removesuffix("0") if text.endswith(".0") else text) + "f")


# ---- statements ------------------------------------------------------------------------------------------------------


def declare(
    c_type: str, name: str, *, const: bool = False, dims: Sequence[str] = (), value: c_ast.Node | None = None
) -> c_ast.Decl:
    """`[const] TYPE NAME[DIMS] [= VALUE]`."""
    kind: c_ast.Node = c_ast.TypeDecl(name, ["const"] if const else [], None, c_ast.IdentifierType([c_type]))
    for dim in reversed(dims):
        kind = c_ast.ArrayDecl(kind, c_ast.ID(dim), [])
    return c_ast.Decl(name, ["const"] if const else [], [], [], [], kind, value, None)


def assign(target: c_ast.Node, value: c_ast.Node) -> c_ast.Assignment:
    return c_ast.Assignment("=", target, value)


def give(value: c_ast.Node | None = None) -> c_ast.Return:
    return c_ast.Return(value)


def unrolled(var: str, bound: str, body: list[c_ast.Node]) -> list[c_ast.Node]:
    """`for (int var = 0; var < bound; ++var) {body}`, unrolled."""
    start = c_ast.DeclList([declare("int", var, value=int_constant(0))])
    loop = c_ast.For(start, binary("<", ident(var), ident(bound)), unary("++", ident(var)), c_ast.Compound(body))
    return [c_ast.Pragma("unroll"), loop]


def leave_unless(condition: c_ast.Node) -> c_ast.If:
    """`if (!condition) return;`"""
    return c_ast.If(unary("!", condition), c_ast.Return(None), None)


# ---- printing --------------------------------------------------------------------------------------------------------

_BITWISE: Final = ("&", "|", "^")
"""Operators whose precedence surprises: `a < b & c` and `a & b | c` get brackets."""


class CudaPrinter(c_generator.CGenerator):
    """pycparser's printer with this project's layout: 4 spaces, braces on the line, brackets only where they help a reader."""

    def __init__(self) -> None:
        super().__init__(reduce_parentheses=True)

    def expression(self, node: c_ast.Node) -> str:
        return self.visit(node)

    def body(self, statements: Sequence[c_ast.Node], depth: int = 1) -> str:
        """Statements, one or more lines each, `depth` levels deep."""
        self.indent_level = INDENT * depth
        return "".join(self._generate_stmt(s) for s in statements)

    def visit_Braces(self, n: Braces) -> str:
        return f"{self.visit(n.name)}{{{self.visit(n.args)}}}"

    def visit_BinaryOp(self, n: c_ast.BinaryOp) -> str:
        return super().visit_BinaryOp(c_ast.BinaryOp(n.op, self._side(n.op, n.left), self._side(n.op, n.right)))

    def _side(self, op: str, n: c_ast.Node) -> c_ast.Node:
        """One side of an operator, as finished text where pycparser would set too many brackets or too few for a reader."""
        if isinstance(n, c_ast.Cast):
            return ident(self.visit(n))
        if isinstance(n, c_ast.BinaryOp) and op in _BITWISE and n.op != op:
            return ident(f"({self.visit(n)})")
        return n

    def visit_TernaryOp(self, n: c_ast.TernaryOp) -> str:
        return " ".join((self._choice(n.cond), "?", self._choice(n.iftrue), ":", self._choice(n.iffalse)))

    def _choice(self, n: c_ast.Node) -> str:
        return f"({self.visit(n)})" if isinstance(n, c_ast.TernaryOp) else self.visit(n)

    def visit_Cast(self, n: c_ast.Cast) -> str:
        return super().visit_Cast(n).replace(") ", ")", 1)

    def visit_Pragma(self, n: c_ast.Pragma) -> str:
        return f"#pragma {n.string}"

    def visit_Compound(self, n: c_ast.Compound) -> str:
        self.indent_level += INDENT
        inner = "".join(self._generate_stmt(s) for s in n.block_items or [])
        self.indent_level -= INDENT
        return "{\n" + inner + self._make_indent() + "}"

    def visit_For(self, n: c_ast.For) -> str:
        head = f"{self.visit(n.init)}; {self.visit(n.cond)}; {self.visit(n.next)}"
        return f"for ({head}) {self.visit(n.stmt)}"

    def visit_If(self, n: c_ast.If) -> str:
        return f"if ({self.visit(n.cond)}) {self.visit(n.iftrue)}\n"
