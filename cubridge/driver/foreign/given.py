"""What a contract says of a launch, as slices of its runs read it."""

from __future__ import annotations

from collections.abc import Mapping

from cubridge.frontend.ptx.given import Given, Param, address_name
from cubridge.frontend.ptx.layout import with_head_dim
from cubridge.frontend.ptx.values import Node, Value
from cubridge.ir.algebra.normal import poly
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.foreign import ForeignContract, ForeignParameter, ParameterKind
from cubridge.ir.nodes import Name
from cubridge.ir.spec import Shape


def given_of(contract: ForeignContract, shape: Shape, placed: Mapping[int, ForeignParameter], size: int) -> Given:
    """`placed`: what has a value, by where it lies among `size` bytes of parameters, the rest of which are zero."""
    values = {o: Param(_value(p, contract.head_dim), p.kind.bytes) for o, p in placed.items()}
    return Given(values, shape.sizes(), size)


def _value(parameter: ForeignParameter, head_dim: int) -> Value:
    if isinstance(parameter.value, str):
        return Poly.atom(Name(address_name(parameter.value)))
    if parameter.kind is ParameterKind.FLOAT:
        return Node("param", data=parameter.last, span=parameter.span)
    return poly(with_head_dim(parameter.value, head_dim))
