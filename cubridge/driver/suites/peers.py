"""The same attention as users would otherwise run it, derived from its spec: SDPA and FlexAttention, where they can say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import Tensor

from cubridge.engine.elements import at_elements, axis_grids
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Binary, Call, Expr, Name
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.ir.spec import AttentionSpec

    Work = Callable[[], object]

PEERS: Final = ("eager", "sdpa", "flex")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Shapes: q [B, Hq, Lq, D]; k, v [B, Hk, Lk, D]. `captures`: by the names of the spec."""

    q: Tensor
    k: Tensor
    v: Tensor
    captures: Mapping[str, CaptureValue]

    @property
    def grouped(self) -> bool:
        return self.q.shape[1] != self.k.shape[1]

    def sizes(self) -> dict[str, int]:
        batch, heads, queries, head_dim = self.q.shape
        return Shape(batch, heads, self.k.shape[1], queries, self.k.shape[2], head_dim).sizes()


def is_softmax(spec: AttentionSpec) -> bool:
    """Softmax over the visible keys and nothing else: the only normalizer that SDPA and FlexAttention have."""
    weight = Call("exp", (Binary("-", Name("x"), Name("m")),))
    if not spec.shift or spec.weight != weight or len(spec.rows) != 1:
        return False
    (row,) = spec.rows
    plain = row.kind == "sum" and row.over == spec.mask and row.body == weight
    return plain and spec.finalize == Binary("/", Name("acc"), Name(row.name))


def visible(spec: AttentionSpec, inputs: Inputs) -> Tensor:
    """Where key j is visible to row i: bool, [B or 1, Hq or 1, Lq, Lk]."""
    queries, keys = inputs.q.shape[2], inputs.k.shape[2]
    mask = _dense(spec.mask, inputs, {})
    return mask.expand(*mask.shape[:2], queries, keys) if mask.dim() == 4 else mask.expand(1, 1, queries, keys)


def flops(spec: AttentionSpec, inputs: Inputs) -> float:
    """Multiplications and additions of both products over visible elements."""
    mask = visible(spec, inputs)
    repeats = inputs.q.shape[0] * inputs.q.shape[1] / (mask.shape[0] * mask.shape[1])
    return 4.0 * inputs.q.shape[-1] * float(mask.sum()) * repeats


# ---- SDPA ------------------------------------------------------------------------------------------------------------


def sdpa(spec: AttentionSpec, inputs: Inputs) -> dict[str, Work]:
    """By backend; {} where SDPA cannot say the spec. A mask that is no flag of SDPA's goes in as a dense tensor."""
    from torch.nn.attention import SDPBackend

    scale = _constant_scale(spec, inputs) if is_softmax(spec) else None
    if scale is None:
        return {}
    mask = visible(spec, inputs)
    if bool(mask.all()):
        flag = False
    elif mask.shape[2] == mask.shape[3] and bool((mask == torch.ones_like(mask).tril()).all()):
        flag = True
    else:
        return {"mask": lambda: _attention(inputs, scale, mask=mask)}
    backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA2": SDPBackend.FLASH_ATTENTION}
    return {name: _with_backend(inputs, scale, flag, backend) for name, backend in backends.items()}


def _with_backend(inputs: Inputs, scale: float, causal: bool, backend: object) -> Work:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def work() -> object:
        with sdpa_kernel(cast("SDPBackend", backend)):
            return _attention(inputs, scale, causal=causal)

    return work


def _attention(inputs: Inputs, scale: float, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        inputs.q, inputs.k, inputs.v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=inputs.grouped
    )


def _constant_scale(spec: AttentionSpec, inputs: Inputs) -> float | None:
    """c where the score is c * s for every element; None where it is anything else."""
    at = {s: _dense(spec.score, inputs, {"s": torch.tensor(s, dtype=torch.float64)}) for s in (0.0, 1.0, -7.5, 400.0)}
    scale = float(at[1.0].flatten()[0])
    linear = all(bool(torch.isclose(x, torch.full_like(x, s * scale), rtol=1e-12).all()) for s, x in at.items())
    return scale if linear and scale > 0 else None


# ---- FlexAttention ---------------------------------------------------------------------------------------------------


def flex(spec: AttentionSpec, inputs: Inputs, compiled_by: Callable[..., object] | None = None) -> Work | None:
    """FlexAttention with a block mask; None where the spec is no softmax or maps heads in a way of its own.
    `compiled_by`: torch.compile unless a test says otherwise."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    groups = Binary("//", Name("h"), Binary("//", Name("Hq"), Name("Hk")))
    if not is_softmax(spec) or (inputs.grouped and spec.kv_head != groups):
        return None
    score_mod = _traced(spec.score, inputs, ("s", "b", "h", "i", "j"))
    mask = visible(spec, inputs)
    block_mask = None
    if not bool(mask.all()):
        batch, heads, queries, keys = mask.shape
        block_mask = create_block_mask(
            _traced(spec.mask, inputs, ("b", "h", "i", "j")),
            batch if batch > 1 else None, heads if heads > 1 else None, queries, keys, device=str(inputs.q.device),
        )  # fmt: skip
    compiled = torch.compile(flex_attention, dynamic=False) if compiled_by is None else compiled_by(flex_attention)
    call = cast("Callable[..., object]", compiled)
    return lambda: call(
        inputs.q, inputs.k, inputs.v, score_mod=score_mod, block_mask=block_mask, scale=1.0, enable_gqa=inputs.grouped
    )


def _traced(expr: Expr, inputs: Inputs, names: tuple[str, ...]) -> Callable[..., Tensor]:
    """`expr` of single elements as plain torch operations, which torch.compile reads."""
    from torch.fx.experimental.proxy_tensor import make_fx

    tables = {
        n: _Table(c) if isinstance(c, Tensor) and c.dim() else c
        for n, c in {**inputs.captures, **inputs.sizes()}.items()
    }
    scope = cast("dict[str, CaptureValue]", tables)

    def element(*values: Tensor) -> Tensor:
        given = dict(zip(names, values, strict=True))
        result = evaluate_number(expr, {**scope, **given})
        like = given.get("s", torch.tensor(True, device=values[0].device))
        return torch.as_tensor(result, device=like.device).to(like.dtype)

    device = inputs.q.device
    examples = [torch.zeros((), dtype=torch.float32 if n == "s" else torch.int32, device=device) for n in names]
    graph = make_fx(element)(*examples)
    if names[0] == "s":
        return lambda s, b, h, i, j: graph(s, b, h, i, j)
    return lambda b, h, i, j: graph(b, h, i, j)


@dataclass(frozen=True, slots=True)
class _Table:
    """A captured tensor that single elements are read from: plain indexing would ask a traced index for its value."""

    tensor: Tensor

    def __getitem__(self, indices: tuple[Tensor, ...]) -> Tensor:
        return torch.ops.aten.index.Tensor(self.tensor, list(indices))


def _dense(expr: Expr, inputs: Inputs, extra: Mapping[str, Tensor]) -> Tensor:
    """`expr` for all elements at once; axes that it does not read have one element."""
    device = inputs.q.device
    return at_elements(expr, {**inputs.captures, **inputs.sizes(), **axis_grids(inputs.sizes(), device), **extra}).to(
        device
    )
