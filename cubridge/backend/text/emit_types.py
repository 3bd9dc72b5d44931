"""Types inside a region as lowering needs them, and which integers are never negative: what the choice of C text rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.signs import is_natural
from cubridge.ir.diagnostics import Diagnostic, Refused
from cubridge.ir.families import Family
from cubridge.ir.nodes import Captured, Expr, Kernel, Name, Node, TileList
from cubridge.ir.region_types import family_of, fragments, region_scope
from cubridge.ir.typecheck import Scope, infer
from cubridge.ir.types import Axis, ValueType


def unsayable(what: str, node: Node, help: str | None = None) -> Refused:
    """The error of a CuIR node that CUDA region text cannot say."""
    return Refused(Diagnostic("CU603", what, node.span, help=help))


@dataclass
class Types:
    """Types of expressions in `scope`; `declare` adds locals as they are assigned. `fragments`: names of tiles and vectors, whose
    rows are on the axis `family.rows`; `columns` are the others. `facts`: what is known of integers."""

    scope: Scope
    family: Family
    facts: Facts
    fragments: Mapping[str, ValueType] = field(default_factory=dict[str, ValueType])
    locals: dict[str, ValueType] = field(default_factory=dict[str, ValueType])
    _nonnegative: dict[str, bool] = field(default_factory=dict[str, bool])

    @staticmethod
    def of_region(kernel: Kernel, name: str) -> Types:
        """Inside the region `name` of `kernel`, whose types hold."""
        scope, arguments = region_scope(kernel, name), fragments(kernel, name)
        for argument, kind in arguments.items():
            scope = scope.bind(argument, kind)
        return Types(scope, family_of(kernel), Facts.of(kernel), arguments)

    @property
    def columns(self) -> tuple[Axis, ...]:
        return tuple(a for a in (Axis.ROW, Axis.KEY, Axis.OUT) if a is not self.family.rows)

    def of(self, expr: Expr) -> ValueType:
        return infer(expr, self.scope)

    def captured(self, name: str) -> Captured | TileList:
        return self.scope.captured[name]

    def declare(self, name: str, value: Expr) -> None:
        """The local `name` is assigned `value`; its first value gives it its type."""
        if name not in self.locals:
            self.locals[name] = self.of(value)
            self.scope = self.scope.bind(name, self.locals[name])
        self._nonnegative[name] = self._nonnegative.get(name, True) and self.nonnegative(value)

    def nonnegative(self, expr: Expr) -> bool:
        """True only if the integer is provably >= 0, by the proof that lifting asks for."""
        return is_natural(expr, Facts(self._least))

    def _least(self, expr: Expr) -> int | None:
        if isinstance(expr, Name) and expr.id in self.locals:
            return 0 if self._nonnegative[expr.id] else None
        return self.facts.least(expr)
