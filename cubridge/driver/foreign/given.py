"""What a contract says of a launch, as slices of its runs read it."""

from __future__ import annotations

from collections.abc import Sequence

from cubridge.frontend.ptx.slices import Given, address_name
from cubridge.frontend.ptx.values import Node, Value
from cubridge.ir.algebra.normal import poly
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.foreign import ForeignContract, ForeignParameter, ParameterKind
from cubridge.ir.nodes import Expr, IntLit, Name
from cubridge.ir.spec import Shape
from cubridge.ir.walk import rewrite


def given_of(contract: ForeignContract, shape: Shape, offsets: Sequence[int]) -> Given:
    """`offsets`: of the parameters."""
    values = {o: _value(p, contract.head_dim) for o, p in zip(offsets, contract.parameters, strict=True)}
    return Given(values, shape.sizes())


def _value(parameter: ForeignParameter, head_dim: int) -> Value:
    if isinstance(parameter.value, str):
        return Poly.atom(Name(address_name(parameter.value)))
    if parameter.kind is ParameterKind.FLOAT:
        return Node("param", data=parameter.name, span=parameter.span)
    return poly(_with_number(parameter.value, head_dim))


def _with_number(expr: Expr, head_dim: int) -> Expr:
    return rewrite(expr, lambda n: IntLit(head_dim) if n == Name("D") else n)  # pyright: ignore[reportReturnType]
