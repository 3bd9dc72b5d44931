"""Types inside a region as lowering needs them, and which integers are never negative: what the choice of C text rests on."""

from __future__ import annotations

from dataclasses import dataclass, field

from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.signs import is_natural
from cubridge.ir.diagnostics import Diagnostic, Refused
from cubridge.ir.nodes import Captured, Expr, Kernel, Name, Node, TileList
from cubridge.ir.region_types import ROWS, region_scope
from cubridge.ir.typecheck import Scope, infer
from cubridge.ir.types import ValueType


def unsayable(what: str, node: Node, help: str | None = None) -> Refused:
    """The error of a CuIR node that CUDA region text cannot say."""
    return Refused(Diagnostic("CU603", what, node.span, help=help))


@dataclass
class Types:
    """Types inside the region `name` of `kernel`, whose types hold; `declare` adds its locals as they are assigned."""

    kernel: Kernel
    name: str
    locals: dict[str, ValueType] = field(default_factory=dict[str, ValueType])
    _scope: Scope = field(init=False)
    _facts: Facts = field(init=False)
    _nonnegative: dict[str, bool] = field(default_factory=dict[str, bool])

    def __post_init__(self) -> None:
        self._scope = region_scope(self.kernel, self.name).bind("lse", ROWS)
        self._facts = Facts.of(self.kernel)

    def of(self, expr: Expr) -> ValueType:
        return infer(expr, self._scope)

    def captured(self, name: str) -> Captured | TileList:
        return self._scope.captured[name]

    def declare(self, name: str, value: Expr) -> None:
        """The local `name` is assigned `value`; its first value gives it its type."""
        if name not in self.locals:
            self.locals[name] = self.of(value)
            self._scope = self._scope.bind(name, self.locals[name])
        self._nonnegative[name] = self._nonnegative.get(name, True) and self.nonnegative(value)

    def nonnegative(self, expr: Expr) -> bool:
        """True only if the integer is provably >= 0, by the proof that lifting asks for."""
        return is_natural(expr, Facts(self._least))

    def _least(self, expr: Expr) -> int | None:
        if isinstance(expr, Name) and expr.id in self.locals:
            return 0 if self._nonnegative[expr.id] else None
        return self._facts.least(expr)
