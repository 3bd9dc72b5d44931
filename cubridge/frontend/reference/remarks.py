"""What a user should know of what was found: fills, slips of precedence, overflow, costly captures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cubridge.frontend.reference.algebra.terms import Apply, Arena, Const, Sort, walk
from cubridge.frontend.reference.attention import place_of
from cubridge.frontend.reference.captures import MOST_OF_PAIRS, CaptureTable
from cubridge.frontend.reference.lift import EXACT_IN, Lifter
from cubridge.frontend.reference.normalizer import NOTABLE_FILL, Normalizer
from cubridge.ir.source import NOWHERE
from cubridge.ir.spec import Remark

_FP16_MAX: Final = 65504.0


def warnings_of(found: Normalizer, lifter: Lifter, table: CaptureTable, arena: Arena) -> tuple[Remark, ...]:
    """In the order a reader meets them: the score, the mask, the captures."""
    every = (
        *_bias_fills(found),
        *(
            Remark("`&` of numbers, as the text says: it binds tighter than a comparison; add parentheses", span)
            for span in arena.bit_operations
        ),
        *_overflows(lifter),
        *_inexact_ranges(lifter),
        *(
            Remark(f"the reference writes into its argument `{name}`; the adapted operator does not", span)
            for name, span in lifter.writes_arguments.items()
        ),
        *_large_captures(table),
    )
    return tuple(dict.fromkeys(every))


def _bias_fills(found: Normalizer) -> Iterator[Remark]:
    """A finite fill above MASK_FILL changes weights instead of removing them."""
    for term in (found.score, found.weight):
        for part in walk(term):
            if isinstance(part, Apply) and part.op == "where" and part.sort is Sort.REAL:
                fills = (x for x in part.args[1:] if isinstance(x, Const) and -math.inf < x.value <= NOTABLE_FILL)
                for fill in fills:
                    yield Remark(
                        f"the fill {float(fill.value):g} is a bias, not a mask: keys filled with it are still read; "
                        "use -inf for a mask",
                        place_of(part),
                    )


def _overflows(lifter: Lifter) -> Iterator[Remark]:
    """A fill that fp16 cannot hold."""
    for call in lifter.recording.calls:
        out = call.outputs()[0]
        if not (isinstance(out, Tensor) and out.dtype == torch.float16):
            continue
        for operand in (*call.args, *call.kwargs.values()):
            if isinstance(operand, float) and math.isfinite(operand) and abs(operand) > _FP16_MAX:
                yield Remark(f"the reference itself overflows: fp16 cannot hold {operand:g}", call.span)


def _inexact_ranges(lifter: Lifter) -> Iterator[Remark]:
    for call in lifter.recording.calls:
        if not (call.name == "arange" or (call.name == "_to_copy" and _holds_positions(lifter, call.args[0]))):
            continue
        limit = EXACT_IN.get(call.out.dtype)
        if limit is not None:
            yield Remark(f"positions in {str(call.out.dtype).removeprefix('torch.')} are exact up to {limit} only; "
                         "they are taken as exact", call.span)  # fmt: skip


def _holds_positions(lifter: Lifter, operand: object) -> bool:
    """Integers that are made of sizes and indices alone."""
    if not isinstance(operand, Tensor):  # `torch.vmap` makes tensors of numbers
        return False
    value = lifter.values[id(operand)]
    return value.sort is Sort.INT and not value.reads


def _large_captures(table: CaptureTable) -> Iterator[Remark]:
    for source in table.sources.values():
        if source.is_of_pairs:
            what = f"`{source.name}` is computed before each launch with one element for each pair of row and key"
            yield Remark(f"{what}, up to {4 * MOST_OF_PAIRS >> 20} MiB or as many as an argument has", source.span)


@dataclass(frozen=True, slots=True)
class EmptyRows:
    """Rows that see no key. `out`, `lse`: what the reference gives there, the latter where the kernel gives another. `largest`: of
    v, in size."""

    out: Tensor
    lse: Tensor
    largest: float

    def remark(self, why: str, keeps_lse: bool) -> Remark | None:
        """None where the kernel gives the same, 0. `why`: what makes such rows; `keeps_lse`: the kernel has a sink in its LSE."""
        row = f"a row that sees no key{why}"
        if bool((self.out != 0).any()):
            lse = "" if keeps_lse else " and LSE -inf"
            return Remark(f"{row}: the reference gives {self._given()} there, the kernel gives 0{lse}", NOWHERE)
        if self.lse.numel():
            return Remark(f"{row}: the reference's LSE is {_number(self.lse)} there, the kernel's -inf", NOWHERE)
        return None

    def _given(self) -> str:
        varies = float(self.out.min()) != float(self.out.max())
        if not varies or bool(self.out.isnan().any()):
            return _number(self.out)
        return "a mean of v" if float(self.out.abs().max()) <= self.largest else "other values"


def _number(values: Tensor) -> str:
    return "NaN" if bool(values.isnan().any()) else f"{float(values.flatten()[0]):.3g}"


def captured_fill_remark(name: str) -> Remark:
    """An additive mask that holds large finite fills; what it holds may differ from call to call."""
    return Remark(
        f"fills of -1e8 or less in `{name}` are a mask: in a row that it fills wholly the reference gives a mean of v, the kernel "
        "0 or another mean",
        NOWHERE,
    )
