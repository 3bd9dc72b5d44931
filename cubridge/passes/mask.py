"""The mask rewrite: which keys a row sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cubridge.ir.algebra.exprs import both
from cubridge.ir.nodes import Binary, Expr, Kernel, Name
from cubridge.passes.base import Pass, PassContext, fault
from cubridge.passes.coerce import Coercion
from cubridge.passes.host_params import HostParams
from cubridge.passes.key_sequence import with_key_sequence
from cubridge.passes.names import resolve
from cubridge.passes.pieces import END, START, Piece
from cubridge.passes.regions import mask_predicate, masked, with_region
from cubridge.passes.wide import within_32_bits

IN_RANGE = Binary("<", Name("j"), Name("Lk"))
"""What the kernel's own mask keeps: keys of the last tile that exist."""


@dataclass(frozen=True, slots=True)
class RewriteMask(Pass):
    """Replace the mask: key j stays visible to row i where `keep` holds.
    rewrite:   region mask: s          -->   s = where((j < Lk) & keep, s, -inf)
               kv_range                -->   every tile visited and masked (infer-kv-range sharpens this)
    requires:  keep is a boolean over i, j, h, b, sizes and captured values.
    ensures:   no tile that `keep` can thin out is walked as full; of integers that large sizes take past 32 bits there is a
               parameter `largest`, which launches at such sizes cannot fill.
    Errors:    CU505 to CU507 for its names and types; CU511 if the kernel's mask is not the bound of the last tile; CU515."""

    name: ClassVar[str] = "rewrite-mask"
    example: ClassVar[str] = 'rewrite-mask{keep="j <= i"}'
    keep: Expr

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        if mask_predicate(kernel) is None:
            raise fault("CU511", "the mask of the kernel is not `s = where(.., s, -inf)`", kernel.region("mask").span)
        params = HostParams(kernel, "mask")
        keep = params.lower_predicate(Coercion(kernel).predicate(resolve(self.keep, kernel, ("i", "j"))))
        kernel = with_region(params.kernel, "mask", (masked(both(IN_RANGE, keep)),))
        kernel = within_32_bits(kernel, self.keep.span)
        return with_key_sequence(kernel, (Piece(START, END),), ())
