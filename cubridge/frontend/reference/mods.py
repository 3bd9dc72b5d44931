"""A reference of what users of FlexAttention have: `score_mod` and `mask_mod`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from cubridge.frontend.reference.flex import Mask, flex_math
from cubridge.frontend.reference.refusal import fail


class ModsReference:
    """Called with q, k, v. What the two functions read is read at each call, as of any reference; `__wrapped__` is the one whose
    file and line stand for it."""

    def __init__(
        self,
        score_mod: Callable[..., Tensor] | None,
        mask_mod: Callable[..., Tensor] | None,
        scale: float | None,
        return_lse: bool,
    ) -> None:
        self.score_mod, self.mask_mod, self.scale, self.return_lse = score_mod, mask_mod, scale, return_lse
        mods = [mod for mod in (score_mod, mask_mod) if mod is not None]
        self.__name__ = "_".join(getattr(mod, "__name__", type(mod).__name__) for mod in mods)
        self.__wrapped__ = mods[0]
        self.__signature__ = inspect.signature(self.__call__)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_math(
            q, k, v, self.score_mod, Mask(self.mask_mod), self.scale, enable_gqa=True, return_lse=self.return_lse
        )


def from_mods(
    score_mod: Callable[..., Tensor] | None = None,
    mask_mod: Callable[..., Tensor] | None = None,
    *,
    scale: float | None = None,
    return_lse: bool = False,
) -> ModsReference:
    """A reference for `adapt` and `attention`: FlexAttention with `score_mod(score, b, h, q_idx, kv_idx)` and
    `mask_mod(b, h, q_idx, kv_idx)`, heads grouped, for any sizes. Errors: CU472 for functions of other arguments, or none."""
    for mod, name, count in ((score_mod, "score_mod", 5), (mask_mod, "mask_mod", 4)):
        if mod is not None and not _takes(mod, count):
            fail("CU472", f"`{name}` does not take {count} arguments", help=_HELP)
    if score_mod is None and mask_mod is None:
        fail("CU472", "neither `score_mod` nor `mask_mod` is given", help=_HELP)
    return ModsReference(score_mod, mask_mod, scale, return_lse)


_HELP = "from_mods(score_mod=lambda score, b, h, q_idx, kv_idx: .., mask_mod=lambda b, h, q_idx, kv_idx: ..)"


def _takes(mod: object, count: int) -> bool:
    try:
        inspect.signature(mod).bind(*range(count))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return False
    return True
