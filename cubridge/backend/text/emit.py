"""The CUDA text of a region's function from CuIR, in the kernel's own names. The signature stays the kernel's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from pycparser import c_ast

from cubridge.backend.text import emit_c as c
from cubridge.backend.text.emit_expr import C_TYPES, Expressions
from cubridge.backend.text.emit_plan import Array, Item, Leave, Loop, Plan, plan
from cubridge.backend.text.emit_types import Types
from cubridge.backend.text.names import Spelling, check_name
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Assign, Call, Expr, Function, Kernel, Name, Record
from cubridge.ir.region_types import ACCESSORS
from cubridge.ir.types import Axis
from cubridge.ir.walk import children, walk

ONE_ROW: Final = ("row_probs",)
ONE_LINE: Final = 132
"""A function that only returns something stands on one line of at most this length."""


def emit_function(function: Function, kernel: Kernel, spelling: Spelling, column: int = 1) -> str:
    """The body of a region's function, from brace to brace, the first in `column`. `function` is a region of `kernel` whose types
    hold. Errors: CU603 what CUDA text cannot say, CU604 a name it cannot have."""
    emitter = _Emitter(function, Types.of_region(kernel, function.name), _with_loop_variables(function, spelling))
    statements = emitter.statements()
    printer = c.CudaPrinter()
    if not statements:
        return "{}"
    if len(statements) == 1 and isinstance(statements[0], c_ast.Return):
        line = f"{{ {printer.visit(statements[0])} }}"
        if column + len(line) <= ONE_LINE:
            return line
    return f"{{\n{printer.body(statements)}}}"


def _with_loop_variables(function: Function, spelling: Spelling) -> Spelling:
    """Names for the loop variables that nothing else in the function has."""
    taken = {n.id for s in function.body for n in walk(s) if isinstance(n, Name)} | set(spelling.arguments.values())
    row = spelling.argument("r") if function.name in ONE_ROW else _free("r", taken)
    return replace(spelling, r=row, c=_free("c", taken | {row}))


def _free(wish: str, taken: set[str]) -> str:
    return wish if wish not in taken else _free(wish + "_", taken)


@dataclass
class _Emitter:
    function: Function
    types: Types
    spelling: Spelling
    declared: set[str] = field(default_factory=set)

    def statements(self) -> list[c_ast.Node]:
        one_row = self.function.name in ONE_ROW
        self.plan: Plan = plan(self.function.body, self.types, one_row)
        self._check_locals()
        self.rows = self.types.family.rows
        variables = {a: self.spelling.r if a is self.rows else self.spelling.c for a in Axis}
        storage = {name: tuple(variables[a] for a in axes) for name, axes in self.plan.storage.items()}
        self.expressions = Expressions(self.types, self.spelling, storage)
        head = self._accessor(self.rows, self.plan.items) if one_row else []
        out = head + self._items(self.plan.items)
        if self.function.result is not None:
            out.append(c.give(self._result(self.function.result)))
        return out

    def _check_locals(self) -> None:
        reserved = {*self.spelling.arguments.values(), self.spelling.params, *ACCESSORS}
        for name in self.plan.storage:
            check_name(name, "local", self.function.span)
            if name in reserved:
                what = f"local `{name}` hides an argument of the kernel's `{self.function.name}`"
                raise CuError(Diagnostic("CU604", what, self.function.span, help="rename the local"))

    # ---- statements --------------------------------------------------------------------------------------------------

    def _items(self, items: Sequence[Item]) -> list[c_ast.Node]:
        out: list[c_ast.Node] = []
        for item in items:
            match item:
                case Assign():
                    out.append(self._assign(item))
                case Leave(name):
                    out.append(c.leave_unless(c.call("any_lane", c.ident(name))))
                case Array(name, axes):
                    dims = [self._extent(a) for a in axes]
                    out.append(c.declare(C_TYPES[self.types.locals[name].dtype], name, dims=dims))
                case Loop(axis, inner):
                    body = self._accessor(axis, inner) + self._items(inner)
                    var = self.spelling.r if axis is self.rows else self.spelling.c
                    out += c.unrolled(var, self._extent(axis), body)
                case _:
                    assert_never(item)
        return out

    def _extent(self, axis: Axis) -> str:
        if axis is self.rows:
            return self.spelling.rows
        return self.spelling.output_columns if axis is Axis.OUT else self.spelling.score_columns

    def _accessor(self, axis: Axis, items: Sequence[Item]) -> list[c_ast.Node]:
        """Binds `i`, `j` or `e` at the head of a loop that reads it."""
        family = self.types.family
        if not any(_reads(axis, node, family.columns) for node in _expressions(items)):
            return []
        r, col = c.ident(self.spelling.r), c.ident(self.spelling.c)
        if axis is family.rows:
            start = c.member(c.ident(self.spelling.argument("tile")), family.origin.name)
            value = c.binary("+", start, c.call(family.row_map, r))
        elif axis is Axis.OUT:
            value = c.call("frag_col", col)
        else:
            start = c.ident(self.spelling.argument(family.column_origin.id))
            value = c.binary("+", start, c.call("frag_col", col))
        return [c.declare("int", axis.value, const=True, value=value)]

    def _assign(self, statement: Assign) -> c_ast.Node:
        target = statement.target
        dtype = self.types.of(target).dtype
        value = self.expressions.of(statement.value, dtype)
        is_plain = isinstance(target, Name) and self.plan.storage.get(target.id) == ()
        if is_plain and isinstance(target, Name) and target.id not in self.declared:
            self.declared.add(target.id)
            return c.declare(C_TYPES[dtype], target.id, const=target.id not in self.plan.mutable, value=value)
        return c.assign(self.expressions.of(target), value)

    def _result(self, result: Expr) -> c_ast.Node:
        if isinstance(result, Record):
            return c.braces(result.name, [self.expressions.of(f.value) for f in result.fields])
        return self.expressions.of(result)


def _expressions(items: Sequence[Item]) -> list[Expr]:
    out: list[Expr] = []
    for item in items:
        match item:
            case Assign(target, value):
                out += [target, value]
            case Loop(_, inner):
                out += _expressions(inner)
            case Leave() | Array():
                pass
    return out


def _reads(axis: Axis, expr: Expr, columns: Axis) -> bool:
    """Whether the integer accessor of `axis` is read; `f32(j)` of columns `j` has a form of its own."""
    if axis is columns and axis is not Axis.OUT and expr == Call("f32", (Name(axis.value),)):
        return False
    if expr == Name(axis.value):
        return True
    return any(_reads(axis, child, columns) for child in children(expr) if isinstance(child, Expr))
