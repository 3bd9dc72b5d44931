"""Edits between trees: how few they are, what they say, and that they refuse trees they were not made for."""

from __future__ import annotations

import pytest

from cubridge.backend.text.diff import Change, apply, diff, render_diff
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import FloatLit, Kernel
from cubridge.ir.parser import parse
from cubridge.ir.paths import Path, Splice
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from tests.backend.text.lowering import source_ir, target_ir
from tests.support.golden_texts import golden_kernel

MASK = """
@region
def mask(s, kv_start, tile):
    s = where(j <= i, s, -inf)
"""


def edited(old: str, new: str) -> Kernel:
    text = to_text(source_ir())
    assert old in text
    return parse(SourceFile.from_text("edited.cuir", text.replace(old, new, 1)))


def test_no_edits_between_equal_trees() -> None:
    assert diff(source_ir(), source_ir()) == ()
    assert render_diff(source_ir(), parse(SourceFile.from_text("again.cuir", to_text(source_ir())))) == ""


def test_one_statement_is_one_edit() -> None:
    (edit,) = diff(source_ir(), target_ir(MASK))
    assert isinstance(edit, Splice)
    assert str(edit.at) == "regions.mask.body"
    assert (edit.start, len(edit.old), len(edit.new)) == (0, 1, 1)
    assert render_diff(source_ir(), target_ir(MASK)) == (
        "@@ mask @@\n- s = where(j < Lk, s, -inf)\n+ s = where(j <= i, s, -inf)\n"
    )


def test_places_are_named() -> None:
    assert render_diff(source_ir(), edited("keys.hi - keys.lo, 0", "keys.hi, 0")) == (
        "@@ key_count @@\n- return maximum(keys.hi - keys.lo, 0)\n+ return maximum(keys.hi, 0)\n"
    )
    assert render_diff(source_ir(), edited("BLOCK_Q=128", "BLOCK_Q=64")) == (
        "@@ const @@\n- BLOCK_Q=128\n+ BLOCK_Q=64\n"
    )
    assert render_diff(source_ir(), edited("l=Partial(f32)", "l=Row(f32)")) == (
        "@@ row_state @@\n- l=Partial(f32)\n+ l=Row(f32)\n"
    )
    assert render_diff(source_ir(), edited("threads=WARPS * 32", "threads=128")) == (
        "@@ threads @@\n- WARPS * 32\n+ 128\n"
    )
    assert render_diff(source_ir(), edited("tile.b = block_z", "tile.b = 0")).startswith("@@ work_tile @@\n")


def test_a_statement_inside_a_loop_is_one_edit() -> None:
    (edit,) = diff(source_ir(), edited("        wait_group(1)", "        wait_group(0)"))
    assert isinstance(edit, Splice)
    assert edit.at.steps[0] == "body"
    assert len(edit.at.steps) > 1
    assert render_diff(source_ir(), edited("        wait_group(1)", "        wait_group(0)")).endswith(
        "- wait_group(1)\n+ wait_group(0)\n"
    )


def test_negative_zero_is_not_zero() -> None:
    assert FloatLit(-0.0) == FloatLit(0.0)
    assert render_diff(source_ir(), edited("row.l = 0.0", "row.l = -0.0")) == (
        "@@ row_init @@\n- row.l = 0.0\n+ row.l = -0.0\n"
    )


def test_applying_gives_the_target() -> None:
    for target in (target_ir(MASK), golden_kernel("sm90a"), edited("slot = 0", "slot = 1")):
        assert apply(diff(source_ir(), target), source_ir()) == target
        assert apply(diff(target, source_ir()), target) == source_ir()


def test_an_edit_of_another_tree_is_refused() -> None:
    with pytest.raises(CuError) as caught:
        apply(diff(source_ir(), target_ir(MASK)), target_ir(MASK))
    assert caught.value.diagnostics[0].code == "CU104"
    change = Change(Path(("arch",)), "sm_70", "sm_80")
    with pytest.raises(CuError, match="`arch` does not hold what this edit changes"):
        apply((change,), source_ir())


def test_an_if_is_compared_inside() -> None:
    target = edited("o = o * row.o_scale", "o = row.o_scale * o")
    (edit,) = diff(source_ir(), target)
    assert str(edit.at) == "regions.row_rescale.body[0].then"
