"""Function-level rewrites, before anything reaches ATen: fused or random functions become their documented math."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch

from cubridge.frontend.reference.places import call_chain, is_torch_asking, user_span
from cubridge.frontend.reference.product import product
from cubridge.frontend.reference.refusal import refuse
from cubridge.ir.source import Span


class UseOriginal(Exception):
    """The rewrite does not cover this call."""


def attention_math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """scaled_dot_product_attention as PyTorch documents it; a row that a mask leaves empty gives 0, as PyTorch computes it."""
    if dropout_p != 0:
        refuse("CU478", "dropout: the output would be random", user_span(), "pass dropout_p=0.0", call_chain())
    if enable_gqa:
        group = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(group, -3), value.repeat_interleave(group, -3)
    scores = query @ key.transpose(-2, -1) * (1 / query.size(-1) ** 0.5 if scale is None else scale)
    attn_mask = _as_tensor(attn_mask)
    if is_causal:
        visible = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril()
        scores = scores.masked_fill(visible.logical_not(), -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
        else:
            scores = scores + attn_mask
    weights = torch.softmax(scores, -1)
    return (weights if attn_mask is None else weights.nan_to_num(0.0)) @ value


def _as_tensor(mask: Any) -> Tensor | None:
    """A causal bias object as the mask it stands for. Its module is only looked up: it imports torch._dynamo."""
    module = sys.modules.get("torch.nn.attention.bias")
    if module is None or not isinstance(mask, module.CausalBias):
        return mask
    lower_right = mask.variant == module.CausalVariant.LOWER_RIGHT
    offset = mask.seq_len_kv - mask.seq_len_q if lower_right else 0
    return torch.ones(mask.seq_len_q, mask.seq_len_kv, dtype=torch.bool).tril(offset)


def _tensor_from_number(data: Any, **options: Any) -> Tensor:
    if not isinstance(data, (torch.SymInt, torch.SymFloat)):
        if isinstance(data, (list, tuple)) and any(isinstance(x, (torch.SymInt, torch.SymFloat)) for x in data):
            return torch.stack(
                [_tensor_from_number(x, **options) if _symbolic(x) else torch.tensor(x, **options) for x in data]
            )
        raise UseOriginal
    natural = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
    return torch.full((), data, dtype=options.get("dtype") or natural)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _symbolic(x: object) -> bool:
    return isinstance(x, (torch.SymInt, torch.SymFloat))


def _pad(x: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """ATen's kernel makes every extent a number; joining blocks does not."""
    if mode != "constant" or any(isinstance(n, int) and n < 0 for n in pad):
        raise UseOriginal
    fill = 0 if value is None else value
    for axis in range(len(pad) // 2):
        dim = x.dim() - 1 - axis
        before, after = pad[2 * axis], pad[2 * axis + 1]
        blocks = [_block(x, dim, before, fill), x, _block(x, dim, after, fill)]
        present = [b for b in blocks if b is not None]
        x = torch.cat(present, dim) if len(present) > 1 else x
    return x


def _block(x: Tensor, dim: int, width: Any, fill: Any) -> Tensor | None:
    if isinstance(width, int) and width == 0:
        return None
    return x.new_full([*x.shape[:dim], width, *x.shape[dim + 1 :]], fill)


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p and training:
        refuse(
            "CU478",
            "dropout: the output would be random",
            user_span(),
            "call it in eval mode, or drop it",
            call_chain(),
        )
    return x


def _in_place(name: str) -> Callable[..., Tensor]:
    """A write of what the operation `name` gives: functionalize or the fake kernels know few of the forms in place."""

    def rewritten(x: Tensor, *args: Any, **options: Any) -> Tensor:
        result = getattr(x, name)(*args, **options)
        if result.dtype is not x.dtype:
            raise UseOriginal  # which says that it does not fit
        return x.copy_(result)

    return rewritten


def _fill_diagonal(x: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Functionalize does not know it."""
    if wrap or x.dim() != 2:
        raise UseOriginal
    diagonal = torch.arange(x.shape[0])[:, None] == torch.arange(x.shape[1])
    return x.copy_(x.masked_fill(diagonal, fill_value))


def _into(func: Callable[..., Tensor], *args: Any, out: Tensor, **options: Any) -> Tensor:
    """An operation with `out=`, as one that writes what it gives: functionalize does not know all of them."""
    result = func(*args, **options)
    if result.dtype is not out.dtype or result.shape != out.shape:
        raise UseOriginal
    return out.copy_(result)


_IN_PLACE: Final = (
    "abs", "atan", "ceil", "clamp", "clamp_max", "clamp_min", "clip", "copysign", "cos", "cosh", "erf", "exp", "exp2", "expm1",
    "floor", "fmod", "index_fill", "log", "log1p", "log2", "logit", "logical_not", "nan_to_num", "neg", "negative", "pow",
    "reciprocal", "remainder", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "tril",
    "triu", "trunc",
)  # fmt: skip


def _take_along(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        raise UseOriginal
    return torch.gather(x, dim, indices)


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.dim() < 2 or b.dim() < 2:
        raise UseOriginal
    return product(a, b)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if x.dim() < 3 or weight.dim() != 2:
        raise UseOriginal
    mapped = product(x, weight.mT)
    return mapped if bias is None else mapped + bias


_NUMBERS: Final = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__")


def _number_of(name: str) -> Callable[..., Any]:
    """A number read from a tensor: of one that the module keeps it is fixed, refused for what is computed."""

    def rewritten(x: Tensor, *args: Any, **options: Any) -> Any:
        if _is_kept(x):
            with torch._C.DisableTorchFunction(), no_dispatch():  # pyright: ignore[reportPrivateUsage]
                return getattr(x.detach(), name)(*args, **options)
        how = "a branch on a tensor" if name == "__bool__" else "a number read from a tensor"
        return refuse(
            "CU477",
            f"{how} (`{name.strip('_')}`): what is computed would depend on the data",
            user_span(),
            "keep it a tensor: write the choice as torch.where, the loop as a comparison of index vectors",
            call_chain(),
        )

    return rewritten


def _array_of(x: Tensor, *args: Any, **options: Any) -> NoReturn:
    refuse(
        "CU477",
        "an array made of a tensor: no tensor has values while it is read",
        user_span(),
        "keep it a tensor, or make the array outside",
        call_chain(),
    )


def _is_kept(x: Tensor) -> bool:
    """Did no recorded call make it?"""
    return type(x) in (Tensor, torch.nn.Parameter) and not _is_traced(x)


def _is_traced(x: Tensor) -> bool:
    """Fake, or wrapped by functionalize or vmap; torch has no public question for the latter."""
    from torch._subclasses.fake_tensor import FakeTensor

    functional = torch._is_functional_tensor(x)  # pyright: ignore
    return isinstance(x, FakeTensor) or functional or torch._C._functorch.is_functorch_wrapped_tensor(x)  # pyright: ignore


def _scaled_product(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """As documented: with beta 0 the addend is not read. ATen's kernel wants numbers for the extents."""
    total = torch.bmm(batch1, batch2)
    total = total if _is_number(alpha, 1) else total * alpha
    if _is_number(beta, 0):
        return total
    return total + (input if _is_number(beta, 1) else input * beta)


def _lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    return input + (end - input) * weight


def _addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """ATen's kernel wants numbers for the extents that these are broadcast to."""
    return input + tensor1 * tensor2 * value


def _addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    return input + tensor1 / tensor2 * value


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """Euclidean distances by the product, as torch computes those of many points."""
    if p != 2 or compute_mode == "donot_use_mm_for_euclid_dist":
        raise UseOriginal
    lengths = (x1 * x1).sum(-1)[..., :, None] + (x2 * x2).sum(-1)[..., None, :]
    return (lengths - 2 * product(x1, x2.mT)).clamp_min(0.0).sqrt()


def _is_number(x: Any, n: int) -> bool:
    return isinstance(x, (int, float)) and x == n


REWRITES: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    F.scaled_dot_product_attention: attention_math,
    torch.tensor: _tensor_from_number,
    torch.as_tensor: _tensor_from_number,
    torch.scalar_tensor: _tensor_from_number,
    F.pad: _pad,
    F.linear: _linear,
    **{getattr(torch.Tensor, f"{name}_"): _in_place(name) for name in _IN_PLACE},
    **{getattr(torch, f"{name}_"): _in_place(name) for name in _IN_PLACE if hasattr(torch, f"{name}_")},
    torch.Tensor.fill_diagonal_: _fill_diagonal,
    torch.Tensor.__ipow__: _in_place("pow"),
    torch.Tensor.__imod__: _in_place("remainder"),
    torch.Tensor.__ifloordiv__: _in_place("floor_divide"),
    torch.Tensor.__iand__: torch.Tensor.bitwise_and_,  # functionalize does not know the operators
    torch.Tensor.__ior__: torch.Tensor.bitwise_or_,
    torch.Tensor.__ixor__: torch.Tensor.bitwise_xor_,
    torch.matmul: _matmul,
    torch.Tensor.matmul: _matmul,
    torch.Tensor.__matmul__: _matmul,
    torch.take_along_dim: _take_along,
    torch.cdist: _cdist,
    **dict.fromkeys((torch.lerp, torch.Tensor.lerp), _lerp),
    **dict.fromkeys((torch.addcmul, torch.Tensor.addcmul), _addcmul),
    **dict.fromkeys((torch.addcdiv, torch.Tensor.addcdiv), _addcdiv),
    torch.baddbmm: _scaled_product,
    torch.Tensor.baddbmm: _scaled_product,
    torch.Tensor.take_along_dim: _take_along,
    **dict.fromkeys((F.dropout, torch.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout), _dropout),
    F.feature_alpha_dropout: _dropout,
    **{getattr(torch.Tensor, name): _number_of(name) for name in _NUMBERS},
    torch.Tensor.numpy: _array_of,
    torch.Tensor.__array__: _array_of,
}


_READS_NUMBER: Final[dict[Callable[..., Any], str]] = {getattr(torch.Tensor, name): name for name in _NUMBERS}


ASKED: Final[dict[Callable[..., Any], str]] = {
    **{getattr(torch.Tensor, name).__get__: name for name in ("dtype", "is_cuda", "requires_grad")},
    torch.Tensor.is_contiguous: "strides",
    torch.Tensor.stride: "strides",
}
"""What a branch may read that no recorded call shows."""


_ANSWERS: Final[dict[Callable[..., Any], str]] = {
    **{getattr(torch.Tensor, name).__get__: name for name in ("dtype", "itemsize", "ndim", "requires_grad", "shape")},
    **{
        getattr(torch.Tensor, name): f"{name}()"
        for name in (
            "__len__", "dim", "element_size", "is_complex", "is_contiguous", "is_floating_point", "nelement", "numel", "size",
            "stride",
        )
    },
    torch.is_complex: "is_complex()",
    torch.is_floating_point: "is_floating_point()",
    torch.numel: "numel()",
}  # fmt: skip
"""What a tensor that is kept may be asked besides its values."""


def _asked(func: Callable[..., Any], rest: tuple[Any, ...], options: dict[str, Any], tensor: Tensor) -> object:
    answer = func(tensor, *rest, **options)
    return tuple(answer) if isinstance(answer, torch.Size) else answer


@dataclass(frozen=True, slots=True)
class NumberRead:
    """A number that the reference read from a tensor that no recorded call made, by a method of it."""

    tensor: Tensor
    method: str
    value: object
    span: Span


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tensor that no recorded call made said of itself."""

    tensor: Tensor
    ask: Callable[[Tensor], object]
    word: str
    value: object


class Rewrite(TorchFunctionMode):
    """`asked`: what the reference read of its tensors besides values and sizes; `numbers`, `answers`: of tensors that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()
        self.numbers: list[NumberRead] = []
        self.answers: list[Answer] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in ASKED:
            self.asked.add(ASKED[func])
        rewritten = partial(_into, func) if isinstance(kwargs.get("out"), Tensor) else REWRITES.get(func)
        if rewritten is None:
            result = func(*args, **kwargs)
            if func in _ANSWERS and not is_torch_asking() and _is_kept(args[0]):
                ask = partial(_asked, func, args[1:], kwargs)
                self.answers.append(Answer(args[0], ask, _ANSWERS[func], ask(args[0])))
            return result
        try:
            with self:
                result = rewritten(*args, **kwargs)
        except UseOriginal:
            return func(*args, **kwargs)
        if func in _READS_NUMBER:
            self.numbers.append(NumberRead(args[0], _READS_NUMBER[func], result, user_span()))
        return result
