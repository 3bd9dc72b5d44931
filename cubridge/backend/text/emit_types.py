"""Types inside a region as lowering needs them, and which integers are never negative: what the choice of C text rests on."""

from __future__ import annotations

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
    """Types inside the region `name` of `kernel`, whose types hold; `declare` adds its locals as they are assigned. `fragments`:
    the arguments that are tiles or vectors, whose rows are on the axis `family.rows`; `columns` are the others."""

    kernel: Kernel
    name: str
    locals: dict[str, ValueType] = field(default_factory=dict[str, ValueType])
    fragments: dict[str, ValueType] = field(init=False)
    family: Family = field(init=False)
    columns: tuple[Axis, ...] = field(init=False)
    _scope: Scope = field(init=False)
    _facts: Facts = field(init=False)
    _nonnegative: dict[str, bool] = field(default_factory=dict[str, bool])

    def __post_init__(self) -> None:
        self._scope = region_scope(self.kernel, self.name)
        self.fragments = fragments(self.kernel, self.name)
        for name, kind in self.fragments.items():
            self._scope = self._scope.bind(name, kind)
        self.family = family_of(self.kernel)
        self.columns = tuple(a for a in (Axis.ROW, Axis.KEY, Axis.OUT) if a is not self.family.rows)
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
