"""Rules: shared memory fits the architecture, and work counters are left as they were found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from cubridge.ir.body_types import shared_slot, slot_count
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.evaluate import known_int
from cubridge.ir.hardware import SHARED_BYTES
from cubridge.ir.nodes import Barrier, Call, Counters, FieldType, FinishCounters, Kernel, SharedValue, Tile
from cubridge.ir.printer import print_expr
from cubridge.ir.walk import walk

_BARRIER_BYTES: Final = 8
_COPIED_BYTES: Final = 16
_ROWS_OF_A_SWIZZLE: Final = 8


def shared_bytes(kernel: Kernel) -> int:
    """Bytes of shared memory that the fields take, without what alignment adds."""
    total = 0
    for item in kernel.shared:
        match item.type:
            case Tile():
                total += slot_count(kernel, item.type) * shared_slot(kernel, item.type).bytes
            case Barrier():
                total += slot_count(kernel, item.type) * _BARRIER_BYTES
            case SharedValue(dtype):
                total += dtype.bytes
            case _:
                pass
    return total


def laid_out(kernel: Kernel) -> int:
    """Bytes of the shared memory as a struct of C: each tile begins where its swizzle does."""
    total, coarsest = 0, 1
    for item in kernel.shared:
        size = shared_bytes(replace(kernel, shared=(item,)))
        align = _alignment(item.type)
        total, coarsest = -(-total // align) * align + size, max(coarsest, align)
    return -(-total // coarsest) * coarsest


def _alignment(kind: FieldType) -> int:
    match kind:
        case Tile(swizzle=swizzle):
            return max(_ROWS_OF_A_SWIZZLE * swizzle, _COPIED_BYTES)
        case SharedValue(dtype):
            return dtype.bytes
        case _:
            return _BARRIER_BYTES


def check_shared_memory(kernel: Kernel) -> Iterable[Diagnostic]:
    """CU221: more shared memory than a block may have."""
    total, limit = shared_bytes(kernel), SHARED_BYTES[kernel.arch]
    if total > limit:
        message = f"the block takes {total} bytes of shared memory, and {kernel.arch} has {limit}"
        yield Diagnostic("CU221", message, kernel.shared[0].span, help="fewer stages, or smaller tiles")


def check_counters(kernel: Kernel) -> Iterable[Diagnostic]:
    """CU223: counters that work is drawn from are finished in the same kernel, and the other way round; there are two, the number
    drawn last and that of blocks that have finished."""
    for item in kernel.params:
        if isinstance(item.type, Counters) and (count := known_int(item.type.count, kernel.constant_values)) != 2:
            yield Diagnostic("CU223", f"`p.{item.name}` has {count} counters, and the kernel works with 2", item.span)
    draws = {print_expr(n.args[0]): n for n in walk(kernel) if isinstance(n, Call) and n.fn == "atomic_add"}
    ends = {print_expr(n.counters): n for n in walk(kernel) if isinstance(n, FinishCounters)}
    for name, draw in draws.items():
        if name not in ends:
            help = f"`finish_counters({name})` after the last draw, so that the next launch finds zeros"
            yield Diagnostic("CU223", f"`{name}` is drawn from and never finished", draw.span, help=help)
    for name, end in ends.items():
        if name not in draws:
            yield Diagnostic("CU223", f"`{name}` is finished and never drawn from", end.span)
