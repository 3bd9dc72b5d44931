"""The one table from the name of a pass to its class."""

from __future__ import annotations

from typing import Final

from cubridge.passes.approximate import Approximate
from cubridge.passes.base import Pass
from cubridge.passes.captures import BindCaptured, PlaceCaptured
from cubridge.passes.constant_reference import ConstantReference
from cubridge.passes.dce import DropDeadCode
from cubridge.passes.hoist import Hoist
from cubridge.passes.kv_range import InferKvRange
from cubridge.passes.list_tiles import ListTiles
from cubridge.passes.mask import RewriteMask
from cubridge.passes.normalize import RewriteNormalize
from cubridge.passes.row_bounds import RowBounds
from cubridge.passes.row_state import DropRowState
from cubridge.passes.score import FoldScale, RewriteScore
from cubridge.passes.simplify import Simplify
from cubridge.passes.small_weights import SmallWeights

PASSES: Final[dict[str, type[Pass]]] = {
    p.name: p
    for p in (
        BindCaptured,
        RewriteScore,
        FoldScale,
        RewriteMask,
        RewriteNormalize,
        ConstantReference,
        DropRowState,
        Approximate,
        SmallWeights,
        PlaceCaptured,
        InferKvRange,
        ListTiles,
        RowBounds,
        Hoist,
        Simplify,
        DropDeadCode,
    )
}
