"""The rule proposer: from what a reference computes to the pipeline that makes a kernel compute it."""

from __future__ import annotations

from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import AttentionSpec
from cubridge.passes.base import Pass
from cubridge.passes.kv_range import InferKvRange
from cubridge.passes.mask import RewriteMask
from cubridge.passes.pipeline import Pipeline
from cubridge.passes.row_bounds import RowBounds


def propose(spec: AttentionSpec, kernel: Kernel) -> Pipeline:
    """The pipeline for `spec` on `kernel`. Its order: the mask before the key range that is read off it."""
    steps: list[Pass] = [RewriteMask(spec.mask), InferKvRange(), RowBounds()]
    return Pipeline(tuple(steps))
