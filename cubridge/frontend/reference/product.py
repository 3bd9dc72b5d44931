"""Products of matrices as one recorded call: ATen makes them of views, each of which takes as long to record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

_NAME: Final = "cubridge_reference::product"
_CAST: Final = (torch.bfloat16, torch.float16, torch.float32)
"""What autocast casts."""
_LIBRARY: Final = torch.library.Library(_NAME.split("::")[0], "DEF")
_LIBRARY.define("product(Tensor a, Tensor b) -> Tensor")


def product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` of matrices in batches of any shapes that fit each other; under autocast of its element type."""
    if torch.is_autocast_enabled(a.device.type):
        dtype = torch.get_autocast_dtype(a.device.type)
        a, b = (x.to(dtype) if x.dtype in _CAST else x for x in (a, b))
    return torch.ops.cubridge_reference.product(a, b)


def _fake(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype: {a.dtype}, {b.dtype}")
    fits = a.shape[-1] == b.shape[-2]
    if not fits:
        raise RuntimeError(f"{tuple(a.shape)} and {tuple(b.shape)} cannot be multiplied as matrices")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]))


def _batched(_: Any, dims: Sequence[int | None], a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    """The rule of `torch.vmap`: its axis before those of the batch, which both then have as many of."""
    rank = max(x.dim() - (dim is not None) for x, dim in zip((a, b), dims, strict=True))
    return torch.ops.cubridge_reference.product(_led(a, dims[0], rank), _led(b, dims[1], rank)), 0


def _led(x: Tensor, dim: int | None, rank: int) -> Tensor:
    """With the axis `dim` before `rank` others, of which extents of 1 are the first."""
    if dim is None:
        return x
    return x.movedim(dim, 0)[(slice(None), *(None,) * (rank + 1 - x.dim()))]


torch.library.register_fake(_NAME, _fake, lib=_LIBRARY)
torch.library.register_vmap(_NAME, _batched, lib=_LIBRARY)
