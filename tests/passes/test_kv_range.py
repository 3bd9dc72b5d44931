from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings

from cubridge.ir.algebra.exprs import either
from cubridge.ir.nodes import Assign, Binary, Expr, IntLit, Kernel, Name
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_function
from cubridge.ir.spec import Shape
from cubridge.passes.base import PassContext
from cubridge.passes.captures import BindCaptured
from cubridge.passes.kv_range import InferKvRange
from cubridge.passes.mask import RewriteMask
from cubridge.passes.options import Word
from cubridge.passes.propose import propose
from cubridge.passes.regions import mask_predicate, with_region
from cubridge.passes.runner import run_pipeline
from cubridge.passes.tile_check import tile_fault
from tests.passes.specs import CASES
from tests.passes.strategies import masks
from tests.passes.tile_counts import Counts, by_mask, by_sequence, mask_tensor
from tests.support.golden_texts import golden_kernel

MASKS: Final = {
    "full": "j < Lk",
    "causal top left": "j <= i",
    "causal bottom right": "j <= i + Lk - Lq",
    "prefix": "(j <= i) | (j < Lk // 4)",
    "global and window": "(j < 64) | (i < 64) | (abs(i - j) < 1024)",
    "narrow global and window": "(j < 20) | (i < 20) | (abs(i - j) < 90)",
    "causal window": "(j > i + Lk - Lq - 1024) & (j <= i + Lk - Lq)",
    "window": "(j >= i + Lk - Lq - 300) & (j <= i + Lk - Lq + 170)",
    "sinks and window": "(j <= i + Lk - Lq) & ((j < 4) | (j > i + Lk - Lq - 512))",
    "many sinks and window": "(j <= i + Lk - Lq) & ((j < 200) | (j > i + Lk - Lq - 512))",
    "blocks, the last sees all": "(j <= i) & ((i // 192 == j // 192) | (i >= Lq - Lq // 5))",
    "chunks": "i // 192 == j // 192",
    "chunks below": "j // 96 <= i // 96",
    "later keys": "j > i",
}  # fmt: skip
# Masked in vain: tiles that all rows see, though some rows by one part of the mask and others by another part alone.
EXCESS: Final = {(MASKS["global and window"], "sm80", lengths): 1 for lengths in ((4096, 4096), (512, 1536))}
SHAPES: Final = ((1024, 1024), (4096, 4096), (512, 1536), (1536, 512))


def _shape(lengths: tuple[int, int]) -> Shape:
    return Shape(1, 4, 2, *lengths, 128)


def _target(mask: Expr, arch: str = "sm80") -> Kernel:
    return InferKvRange().run(RewriteMask(mask).run(golden_kernel(arch), PassContext()), PassContext())


@pytest.mark.parametrize("arch", ["sm80", "sm90a"])
@pytest.mark.parametrize("text", MASKS.values(), ids=MASKS)
def test_closed_forms_are_exact(text: str, arch: str) -> None:
    mask = parse_expr(text)
    target = _target(mask, arch)
    for lengths in SHAPES if arch == "sm80" else SHAPES[2:]:
        shape = _shape(lengths)
        want = by_mask(mask_tensor(mask, shape, {}), int(target.constant("BLOCK_Q")), int(target.constant("BLOCK_KV")))
        got = by_sequence(target, shape, {})
        excess = EXCESS.get((text, arch, lengths), 0)
        assert (got.full, got.masked, got.empty) == (want.full - excess, want.masked + excess, want.empty), lengths


VARIANTS: Final = {case.spec.mask: name for name, case in CASES.items()}.values()
"""One variant for each mask."""


@pytest.mark.parametrize("name", VARIANTS)
def test_tiles_of_the_variants(name: str) -> None:
    length = 1024
    case = CASES[name]
    shape = _shape((length, length))
    values = case.values(shape)
    target = run_pipeline(golden_kernel("sm80"), propose(case.spec, golden_kernel("sm80")))
    seen = either(case.spec.mask, *(r.over for r in case.spec.rows))
    got, want = by_sequence(target, shape, values), by_mask(mask_tensor(seen, shape, values), 128, 64)
    assert got == want


DATA: Final = {
    "keep[b, j] & (j <= i)": Counts(full=0, masked=72, empty=56),
    "(doc[b, i] == doc[b, j]) & (j <= i) & (j > i - 64)": Counts(full=0, masked=23, empty=105),
    "(doc[b, i] == doc[b, j]) | (j <= i)": Counts(full=56, masked=72, empty=0),
    "limit[i] > j": Counts(full=0, masked=128, empty=0),
    "(j % 2 == 0) & (j <= i)": Counts(full=0, masked=72, empty=56),
}


@pytest.mark.parametrize("text", DATA)
def test_data_bounds_nothing_but_what_stands_beside_it(text: str) -> None:
    kernel = golden_kernel("sm80")
    for name, extents in (("keep", "B, Lk"), ("doc", "B, Lk"), ("limit", "Lq")):
        axes = tuple(parse_expr(e) for e in extents.split(","))
        kernel = BindCaptured(Word(name), Word("i32"), axes).run(kernel, PassContext())
    mask = parse_expr(text.replace("keep[b, j]", "(keep[b, j] != 0)"))
    target = InferKvRange().run(RewriteMask(mask).run(kernel, PassContext()), PassContext())
    assert by_sequence(target, _shape((1024, 1024)), {}) == DATA[text]


@given(masks)
@settings(max_examples=12, deadline=None)
def test_no_mask_is_walked_wrongly(mask: Expr) -> None:
    target = _target(mask)
    for lengths in ((300, 200), (129, 513)):
        shape = _shape(lengths)
        got, want = by_sequence(target, shape, {}), by_mask(mask_tensor(mask, shape, {}), 128, 64)
        assert got.full <= want.full and got.empty <= want.empty


def test_full_attention_gives_the_source_back() -> None:
    for arch in ("sm80", "sm90a"):
        assert _target(parse_expr("True"), arch) == golden_kernel(arch)


def test_the_causal_form_is_cheap() -> None:
    assert print_function(_target(parse_expr("j <= i + Lk - Lq")).region("key_sequence")) == (
        "@region\n"
        "def key_sequence(tile):\n"
        "    lo = 0\n"
        "    hi = ceil_div(minimum(Lk, tile.q_start + BLOCK_Q + Lk - Lq), BLOCK_KV)\n"
        "    full_lo = 0\n"
        "    full_hi = minimum(Lk, tile.q_start + Lk - Lq + 1) // BLOCK_KV\n"
        "    return KeySequence(lo=lo, hi=hi, full_lo=full_lo, full_hi=full_hi)"
    )


def _shifted(kernel: Kernel, local: str, by: int) -> Kernel:
    """The kernel with one bound of its key sequence off by `by` tiles."""
    region = kernel.region("key_sequence")
    body = tuple(
        replace(s, value=Binary("+", s.value, IntLit(by))) if isinstance(s, Assign) and s.target == Name(local) else s
        for s in region.body
    )
    return with_region(kernel, "key_sequence", body, region.result)


WRONG: Final = [
    ("j <= i", "hi", -1, "skipped"),
    ("j <= i", "full_hi", 1, "unmasked"),
    ("j <= i", "lo", 1, "skipped"),
    ("(j > i - 100) & (j <= i)", "lo", 1, "skipped"),
    ("(j > i - 300) & (j <= i)", "full_lo", -1, "unmasked"),
    ("(j < 5) | (abs(i - j) < 40)", "gap", 1, "skipped"),
    ("(j < 5) | (abs(i - j) < 40)", "gap_hi", 1, "skipped"),
    ("(j < 70) | (abs(i - j) < 200)", "also_hi", 1, "unmasked"),
]


@pytest.mark.parametrize(("text", "local", "by", "what"), WRONG)
def test_a_wrong_bound_is_found(text: str, local: str, by: int, what: str) -> None:
    mask = parse_expr(text)
    target = _target(mask)
    predicate = mask_predicate(target)
    assert predicate is not None and tile_fault(target, predicate) is None
    fault = tile_fault(_shifted(target, local, by), predicate)
    assert fault is not None and fault.what == what
