"""What a reference computes, ready to be checked: its spec, its extra inputs, its captured values and its fp64 oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cubridge.engine.dense import spec_values
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, RowReduction

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.spec import Shape

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


def full_attention() -> Attention:
    """What a source kernel computes: softmax attention over all keys, scale D ** -0.5."""
    everywhere, weight = parse_expr("True"), parse_expr("exp(x - m)")
    spec = AttentionSpec(
        score=parse_expr("s * D ** -0.5"), mask=everywhere, weight=weight,
        rows=(RowReduction("l", "sum", everywhere, weight),), finalize=parse_expr("acc / l"), shift=True,
        lse=parse_expr("m + log(l)"), kv_head=parse_expr("h // (Hq // Hk)"),
    )  # fmt: skip

    def oracle(q: Tensor, k: Tensor, v: Tensor, _: Extra) -> Outputs:
        values = spec_values(spec, q, k, v, {}, derivatives=False)
        return values.out, values.lse

    def nothing(*_: object) -> Captures:
        return {}

    def half(q: Tensor, k: Tensor, v: Tensor, _: Extra) -> Tensor:
        from torch.nn.functional import scaled_dot_product_attention

        return scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return Attention("full attention", spec, lambda _: {}, nothing, oracle, half)
