"""The one table from the name of a pass to its class."""

from __future__ import annotations

from typing import Final

from cubridge.passes.base import Pass
from cubridge.passes.kv_range import InferKvRange
from cubridge.passes.mask import RewriteMask
from cubridge.passes.row_bounds import RowBounds

PASSES: Final[dict[str, type[Pass]]] = {
    p.name: p
    for p in (
        RewriteMask,
        InferKvRange,
        RowBounds,
    )
}
