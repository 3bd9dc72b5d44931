"""An index that a function is given and must not read."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from cubridge.frontend.reference.places import call_chain, user_span
from cubridge.frontend.reference.refusal import refuse


class Unasked(Tensor):
    """An index of the batch or the head where a block mask holds one mask for all: what reads it says something that the blocks of
    FlexAttention, which were made for the first, do not."""

    what: str

    @staticmethod
    def of(what: str) -> Tensor:
        made = torch.zeros((), dtype=torch.int64).as_subclass(Unasked)
        made.what = what
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Errors: CU476 for all but asking for its type, and for tensors like it."""
        asked = next(a for a in args if isinstance(a, Unasked))
        if func not in _OF_ITS_KIND:
            message = f"a mask reads the {asked.what}, and its block mask was made without one"
            refuse("CU476", message, user_span(), "give `create_block_mask` B and H of q", call_chain())
        plain = tuple(torch.zeros((), dtype=torch.int64) if a is asked else a for a in args)
        return func(*plain, **(kwargs or {}))


_OF_ITS_KIND: Final = (
    Tensor.new_ones, Tensor.new_zeros, Tensor.new_full, Tensor.new_empty, Tensor.new_tensor, Tensor.dim,
    *(getattr(Tensor, name).__get__ for name in ("device", "dtype", "shape", "is_cuda", "ndim")),
)  # fmt: skip
