"""Documents of many lengths in one row: [T, H, D] and where each begins, as another layout of an operator. Right first: each
document is a launch of its own, which reads and writes where the row lies."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from cubridge.backend.launch.capturing import refuse_capturing
from cubridge.backend.launch.extras import bind_inputs, check_tensors
from cubridge.backend.launch.operator import AttentionOperator
from cubridge.ir.diagnostics import CuError, Diagnostic


class VarlenOperator:
    """`operator(q, k, v, .., cu_seqlens_q=.., cu_seqlens_k=..)` gives [T, Hq, D], and where the reference gives an LSE [Hq, T]:
    what it gives for each document alone, with the same further arguments.

    Errors of a call: CU821 for other ranks and bounds, CU829 while a CUDA graph is captured, for bounds are read; those of
    `AttentionOperator`."""

    def __init__(self, operator: AttentionOperator) -> None:
        self.operator = operator

    def __call__(self, *args: Any, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None = None, **kwargs: Any) -> Any:
        names = self.operator.plan.inputs
        q, k, v, *rest = args if len(args) >= 3 else bind_inputs(names, args, kwargs)
        check_tensors({"q": q, "k": k, "v": v})
        _check_rows(q, k, v)
        refuse_capturing(q.device, "cu_seqlens are read")
        rows = _bounds("cu_seqlens_q", cu_seqlens_q, q.shape[0])
        keys = rows if cu_seqlens_k is None and len(k) == len(q) else _bounds("cu_seqlens_k", cu_seqlens_k, k.shape[0])
        if len(rows) != len(keys):
            raise _bad_call(f"cu_seqlens_q bounds {len(rows) - 1} documents, and cu_seqlens_k {len(keys) - 1}")
        results = [
            self.operator(_document(q, i), _document(k, j), _document(v, j), *rest, **kwargs)
            for i, j in zip(pairwise(rows), pairwise(keys), strict=True)
            if i[0] < i[1]
        ]
        return self._joined(results, q)

    def _joined(self, results: list[Any], q: Tensor) -> Any:
        outs = [r[0] if self.operator.plan.gives_lse else r for r in results]
        out = torch.cat([o[0].transpose(0, 1) for o in outs]) if outs else torch.empty_like(q)
        if not self.operator.plan.gives_lse:
            return out
        empty = torch.empty(q.shape[1], 0, dtype=torch.float32, device=q.device)
        return out, torch.cat([empty, *(r[1][0] for r in results)], -1)


def _document(packed: Tensor, bounds: tuple[int, int]) -> Tensor:
    """[1, H, L, D], a view."""
    return packed[bounds[0] : bounds[1]].transpose(0, 1)[None]


def _check_rows(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Errors: CU821."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 3:
            raise _bad_call(f"`{name}` has {tensor.dim()} axes {list(tensor.shape)}, not [T, H, D]")
    if k.shape[0] != v.shape[0]:
        raise _bad_call(f"`k` has {k.shape[0]} rows, and `v` {v.shape[0]}")


def _bounds(name: str, given: object, length: int) -> list[int]:
    """Where documents begin, and where the last ends. Errors: CU821."""
    if not isinstance(given, Tensor):
        raise _bad_call(f"`{name}` is {type(given).__name__}, not a tensor of bounds")
    if given.dim() != 1 or given.dtype not in (torch.int32, torch.int64) or not len(given):
        kind = f"{str(given.dtype).removeprefix('torch.')} {list(given.shape)}"
        raise _bad_call(f"`{name}` is {kind}; int32 or int64 bounds of documents, [N + 1], are expected")
    bounds: list[int] = given.tolist()
    fall = next((n for n, (first, last) in enumerate(pairwise(bounds)) if last < first), None)
    if fall is not None:
        raise _bad_call(f"`{name}` falls from {bounds[fall]} to {bounds[fall + 1]} at element {fall + 1}")
    if bounds[0] != 0 or bounds[-1] != length:
        raise _bad_call(f"`{name}` goes from {bounds[0]} to {bounds[-1]}; there are rows 0 to {length}")
    return bounds


def _bad_call(message: str) -> CuError:
    return CuError(Diagnostic("CU821", message))
