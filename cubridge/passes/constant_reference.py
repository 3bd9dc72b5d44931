"""A constant in place of the running maximum, where the scores have bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from cubridge.ir.algebra.interval import Interval
from cubridge.ir.nodes import Assign, Attr, Binary, Expr, FloatLit, Kernel, Name, Node, Stmt
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import rewrite
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.host_params import HostParams, without_unused_hosts
from cubridge.passes.regions import param, with_region
from cubridge.passes.row_state import with_needed_row_state
from cubridge.passes.rules import simplified
from cubridge.passes.score_range import exponent_range
from cubridge.passes.softmax import Softmax, row, softmax_of
from cubridge.passes.weights import is_narrow

VALUE_BITS: Final = 40
"""Values of V up to 2 ** 40 in size leave sums in fp32, and so do as small ones."""
_FARTHEST: Final = 127 - VALUE_BITS - 31
"""What a weight in bf16 may be away from 1, in exponents of 2: as many keys as an int counts are added up in fp32."""
_FARTHEST_NARROW: Final = 14
"""The same in fp16, whose weights then have all their bits."""


@dataclass(frozen=True, slots=True)
class ConstantReference(Pass):
    """Take weights relative to a constant where the scores have bounds: no row maximum, nothing to rescale.
    rewrite:   row_probs      -->   s = exp2(s * p.exponent_scale), less the middle of the exponents where that is not 0
               row_update, row_rescale   -->   pass
    requires:  a running softmax (CU512); exponents within 112 of each other (28 for weights in fp16), by intervals of the score,
               such as a tanh or a clamp has; otherwise the kernel stays. A row without keys is told by its sum, 0.
    ensures:   the same weights up to a factor of the row; the same outputs and LSE for values up to 2 ** 40 in size."""

    name: ClassVar[str] = "constant-reference"
    example: ClassVar[str] = 'rewrite-score{score="tanh(s * 0.02) * 30.0"},constant-reference'

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        softmax = softmax_of(kernel)
        exponents = exponent_range(kernel, softmax)
        if not fits(exponents, is_narrow(kernel)):
            return kernel
        changed = _relative_to((exponents.low + exponents.high) / 2, kernel, softmax)
        is_read = any(f.name == softmax.maximum for f in changed.row_state)
        return kernel if is_read else changed


def fits(exponents: Interval, narrow: bool) -> bool:
    """May weights of these exponents of e be relative to the middle of them. `narrow`: weights are fp16."""
    width = (exponents.high - exponents.low) * math.log2(math.e)
    return exponents.is_bounded and width <= 2 * (_FARTHEST_NARROW if narrow else _FARTHEST)


def has_constant_reference(spec: AttentionSpec, kernel: Kernel) -> bool:
    """Are weights that may be relative to any number of the row relative to none that the row keeps."""
    return spec.shift and not kernel.region("row_update").body


def _relative_to(exponent: float, kernel: Kernel, softmax: Softmax) -> Kernel:
    """The kernel with a number in place of the maximum; the latter stays where it is asked for as a maximum."""
    reference = Binary("*", FloatLit(exponent), Name("LOG2E")) if exponent else FloatLit(0.0)
    values: dict[Expr, Expr] = {
        Binary("*", row(softmax.maximum), param(softmax.scale)): reference,
        row(softmax.exponent): reference,
        row(softmax.rescale): FloatLit(1.0),
    }
    params = HostParams(kernel, "weight")
    for name in ("row_probs", "row_finalize"):
        body = tuple(_with(s, values, params) for s in params.kernel.region(name).body)
        params.kernel = with_region(params.kernel, name, body)
    return without_unused_hosts(with_needed_row_state(with_region(params.kernel, "row_rescale", ())))


def _with(statement: Stmt, values: Mapping[Expr, Expr], params: HostParams) -> Stmt:
    assert isinstance(statement, Assign)
    target = statement.target

    def change(node: Node) -> Node:
        return values.get(node, node) if isinstance(node, Attr | Binary) and node != target else node

    changed = rewrite(statement.value, change)
    if changed == statement.value:
        return statement
    return replace(statement, value=params.lower(simplified(changed)))
