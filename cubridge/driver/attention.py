"""What a reference computes, ready to be checked: its spec, its extra inputs, its captured values and its fp64 oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.spec import AttentionSpec, Shape

    Extra = Mapping[str, object]
    Captures = Mapping[str, Tensor | int | float | bool]
    Outputs = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, slots=True)
class Attention:
    """`extra`: the reference's arguments besides q, k, v at a shape. `captures`: from these to every captured value of the
    spec, for inputs {q, k, v}. `oracle`: (out, lse) in fp64. `half`: the reference itself, in the precision of its inputs."""

    name: str
    spec: AttentionSpec
    extra: Callable[[Shape], Extra]
    captures: Callable[[Shape, Extra, dict[str, Tensor]], Captures]
    oracle: Callable[[Tensor, Tensor, Tensor, Extra], Outputs]
    half: Callable[[Tensor, Tensor, Tensor, Extra], Tensor]
