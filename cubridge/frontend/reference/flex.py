"""FlexAttention as its documentation says it: `score_mod` and `mask_mod` at every place, and no blocks. While a reference runs,
`flex_attention` and `create_block_mask` are what stands here, by whatever name they are called."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor

from cubridge.frontend.reference.names import code_names
from cubridge.frontend.reference.places import user_span
from cubridge.frontend.reference.reach import reachable
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.unasked import Unasked

Mod = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Mask:
    """A `mask_mod` and the sizes that a block mask was made for: `...` where it was made for all, None or 1 for a batch or heads
    that share one mask."""

    mask_mod: Mod | None
    batch: Any = ...
    heads: Any = ...
    rows: Any = ...
    keys: Any = ...


def flex_math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Mod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: object = None,
    *,
    return_aux: Any = None,
) -> Any:
    """In fp32, as FlexAttention's kernels compute. A row that sees no key gives 0. `kernel_options` are of speed alone.
    Errors: CU476 for the maxima of scores, and for a block mask that cannot be read; ValueError as FlexAttention."""
    del kernel_options
    if return_aux is not None and return_aux.max_scores:
        refuse("CU476", "maxima of scores are returned", user_span(), "return the output and its LSE alone")
    mask = _read_mask(block_mask)
    _check_sizes(query, key, mask, enable_gqa)
    if enable_gqa:
        group = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = (query @ key.mT).float() * (query.size(-1) ** -0.5 if scale is None else scale)
    if score_mod is not None:
        scores = _over_places(score_mod, scores, (), scores)
    if mask.mask_mod is not None:
        scores = scores.masked_fill(~_kept(mask, scores), -math.inf)
    out = scores.softmax(-1).nan_to_num(0.0).to(value.dtype) @ value
    if return_aux is not None:
        lse = scores.logsumexp(-1) if return_aux.lse else None
        return out, import_module(_MODULE).AuxOutput(lse=lse, max_scores=None)
    return (out, scores.logsumexp(-1)) if return_lse else out


def made_mask(mask_mod: Mod, B: Any, H: Any, Q_LEN: Any, KV_LEN: Any, *_: object, **__: object) -> Mask:
    """For `create_block_mask`. Its device and sizes of blocks are of speed alone."""
    return Mask(mask_mod, B, H, Q_LEN, KV_LEN)


def _check_sizes(query: Tensor, key: Tensor, mask: Mask, enable_gqa: bool) -> None:
    """Errors: ValueError, with the name of the size that should be another."""
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError("query and key have other numbers of heads, and enable_gqa is not set")
    sizes = {"Lq": (mask.rows, query.size(2)), "Lk": (mask.keys, key.size(2))}
    sizes |= {"B": (mask.batch, query.size(0)), "Hq": (mask.heads, query.size(1))}
    for name, (made_for, here) in sizes.items():
        if not (made_for is ... or _is_shared(made_for) or made_for == here):
            raise ValueError(f"the block mask was made for {name} = {made_for}")


def _is_shared(size: Any) -> bool:
    return size is None or (isinstance(size, int) and size == 1)


# ---- places ----------------------------------------------------------------------------------------------------------


def _kept(mask: Mask, like: Tensor) -> Tensor:
    """A mask that batch or heads share is asked without them: what it said of the first is in the blocks, and holds for all."""
    assert mask.mask_mod is not None
    shared = [
        axis
        for axis, size in enumerate((mask.batch, mask.heads))
        if _is_shared(size) and not _is_shared(like.shape[axis])
    ]
    kept = _over_places(mask.mask_mod, like, shared)
    for axis in shared:
        kept = kept.unsqueeze(axis)
    return kept


def _over_places(mod: Mod, like: Tensor, shared: Sequence[int], *scores: Tensor) -> Tensor:
    """What `mod` gives at every place [B, Hq, Lq, Lk], as a function of one place; without the axes that are `shared`."""
    places = [
        Unasked.of(_NAMES[axis]) if axis in shared else torch.arange(n, device=like.device)
        for axis, n in enumerate(like.shape)
    ]
    for axis in reversed(range(4)):
        if axis not in shared:
            mod = torch.vmap(mod, in_dims=(*(0 for _ in scores), *(0 if a == axis else None for a in range(4))))
    return mod(*scores, *places)


_NAMES: Final = ("batch", "head")


# ---- block masks that were made before -------------------------------------------------------------------------------


def _read_mask(block_mask: Any) -> Mask:
    """Errors: CU476 for one whose blocks say something else than its `mask_mod`, or cannot be compared with it."""
    if block_mask is None or isinstance(block_mask, Mask):
        return block_mask or Mask(None)
    flex = import_module(_MODULE)
    if not isinstance(block_mask, flex.BlockMask):
        raise TypeError(f"block_mask is {type(block_mask).__name__}, not a BlockMask")
    mod, (rows, keys) = block_mask.mask_mod, block_mask.seq_lengths
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    if batch * heads * rows * keys > _MOST:
        refuse(
            "CU476",
            f"a block mask of {rows} x {keys} is too large to be compared with its `mask_mod`",
            user_span(),
            _HELP,
        )
    with ThreadPoolExecutor(1) as outside:  # of the modes that record
        agrees = outside.submit(_says_its_mod, flex, block_mask, mod, (batch, heads, rows, keys)).result()
    if not agrees:
        message = "the blocks of a block mask say something else than its `mask_mod`"
        refuse("CU476", message, user_span(), _HELP)
    return Mask(mod, batch, heads, rows, keys)


_MOST: Final = 1 << 28
_HELP: Final = "make it by `create_block_mask` inside of the reference, from the sizes of q and k"


def _says_its_mod(flex: Any, block_mask: Any, mod: Mod, sizes: tuple[int, int, int, int]) -> bool:
    """Are elements outside of all blocks hidden, and those of full blocks visible?"""
    kept = flex.create_mask(mod, *sizes, device=block_mask.kv_num_blocks.device)
    full = torch.zeros_like(kept)
    if block_mask.full_kv_num_blocks is not None:
        full = _elements(flex, block_mask, block_mask.full_kv_num_blocks, block_mask.full_kv_indices, kept)
    some = _elements(flex, block_mask, block_mask.kv_num_blocks, block_mask.kv_indices, kept)
    return bool((kept <= (some | full)).all() and (full <= kept).all())


def _elements(flex: Any, block_mask: Any, counts: Tensor, indices: Tensor, like: Tensor) -> Tensor:
    """Which elements lie in the blocks that are listed."""
    blocks = torch.zeros(*indices.shape[:-1], indices.shape[-1] + 1, dtype=torch.bool, device=like.device)
    listed = torch.arange(indices.shape[-1], device=like.device) < counts[..., None]
    blocks.scatter_(-1, torch.where(listed, indices, indices.shape[-1]).long(), True)
    rows, keys = block_mask.BLOCK_SIZE
    found = blocks[..., :-1].repeat_interleave(rows, -2).repeat_interleave(keys, -1)
    return found[..., : like.shape[-2], : like.shape[-1]]


# ---- in place of FlexAttention ---------------------------------------------------------------------------------------

_MODULE: Final = "torch.nn.attention.flex_attention"


def _flex_attention(*args: Any, **kwargs: Any) -> Any:
    from cubridge.frontend.reference.flex import flex_math as math_of

    return math_of(*args, **kwargs)


def _create_block_mask(*args: Any, **kwargs: Any) -> Any:
    from cubridge.frontend.reference.flex import made_mask as mask_of

    return mask_of(*args, **kwargs)


@contextmanager
def flex_by_math(function: object) -> Generator[None]:
    """Inside, FlexAttention is what stands above, also where it was compiled or imported by name: its functions get other code.
    Only where the code of `function` names it is its module imported, which brings torch._dynamo."""
    if _MODULE not in sys.modules and not _names_flex(function):
        yield
        return
    flex = import_module(_MODULE)
    functions = {flex.flex_attention: _flex_attention, flex.create_block_mask: _create_block_mask}
    before = {theirs: theirs.__code__ for theirs in functions}
    try:
        for theirs, ours in functions.items():
            theirs.__code__ = ours.__code__
        yield
    finally:
        for theirs, code in before.items():
            theirs.__code__ = code


def _names_flex(function: object) -> bool:
    codes = (r.value.__code__ for r in reachable(function) if isinstance(r.value, FunctionType))
    return any("flex_attention" in name for code in codes for name in code_names(code))
