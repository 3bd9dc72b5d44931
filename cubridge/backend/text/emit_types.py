"""Types inside a region as lowering needs them, and which integers are never negative: what the choice of C text rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.diagnostics import Diagnostic, Refused
from cubridge.ir.nodes import SIZES, Attr, Binary, Call, Captured, Expr, IntLit, Kernel, Name, Node, Scalar
from cubridge.ir.region_types import ACCESSORS, ROWS, TILE_FIELDS, region_scope
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
    _nonnegative: dict[str, bool] = field(default_factory=dict[str, bool])

    def __post_init__(self) -> None:
        self._scope = region_scope(self.kernel, self.name).bind("lse", ROWS)

    def of(self, expr: Expr) -> ValueType:
        return infer(expr, self._scope)

    def captured(self, name: str) -> Captured:
        return self._scope.captured[name]

    def declare(self, name: str, value: Expr) -> None:
        """The local `name` is assigned `value`; its first value gives it its type."""
        if name not in self.locals:
            self.locals[name] = self.of(value)
            self._scope = self._scope.bind(name, self.locals[name])
        self._nonnegative[name] = self._nonnegative.get(name, True) and self.nonnegative(value)

    def nonnegative(self, expr: Expr) -> bool:
        """True only if the integer is provably >= 0."""
        match expr:
            case IntLit(value):
                return value >= 0
            case Name(name):
                return self._nonnegative_name(name)
            case Attr(Name("tile"), name):
                return name in TILE_FIELDS
            case Attr(Name("p"), name):
                return self._nonnegative_param(name)
            case Binary(op, left, right):
                return op in _KEEPS_SIGN and self.nonnegative(left) and self.nonnegative(right)
            case Call(fn, args):
                quantifier = _SIGN_OF_CALL.get(fn)
                return quantifier is not None and quantifier(self.nonnegative(a) for a in args[-2:])
            case _:
                return False

    def _nonnegative_name(self, name: str) -> bool:
        if name in self.locals:
            return self._nonnegative[name]
        constant = next((c.value for c in self.kernel.constants if c.name == name), -1)
        return name in SIZES or name in ACCESSORS or name in ("kv_start", "t") or constant >= 0

    def _nonnegative_param(self, name: str) -> bool:
        kinds = (f.type for f in self.kernel.params if f.name == name)
        return any(isinstance(k, Scalar) and k.host is not None and self.nonnegative(k.host) for k in kinds)


_KEEPS_SIGN: Final = ("+", "*", "//", "%", "**")
_SIGN_OF_CALL: Final[dict[str, Callable[..., bool]]] = {
    "maximum": any,
    "minimum": all,
    "where": all,
    "ceil_div": all,
    "floor_div": all,
    "floor_mod": all,
    "abs": lambda _: True,
}
