"""Tile sizes are read from the use of tiles."""

from __future__ import annotations

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import print_expr
from cubridge.passes.shape import tile_shape
from tests.support.edit_text import edited
from tests.support.golden_texts import GOLDEN_NAMES

FORMS = {
    "as written": (),
    "start in a local": (
        ("score(s, n * BLOCK_KV, tile)", "start = BLOCK_KV * n\nscore(s, start, tile)"),
        ("tile.q_start = block_x * BLOCK_Q", "tile.q_start = BLOCK_Q * block_x"),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_sizes_whatever_the_spelling(form: str) -> None:
    shape = tile_shape(edited("sm80", *FORMS[form]))
    assert (print_expr(shape.queries), print_expr(shape.keys)) == ("BLOCK_Q", "BLOCK_KV")


def test_both_kernels_show_theirs() -> None:
    shapes = [tile_shape(edited(name)) for name in GOLDEN_NAMES]
    assert {print_expr(s.queries) for s in shapes} == {"BLOCK_Q"} and {print_expr(s.keys) for s in shapes} == {
        "BLOCK_KV"
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("tile.q_start = block_x * BLOCK_Q", "tile.q_start = block_x"), "size of a query tile"),
        (("score(s, n * BLOCK_KV, tile)", "commit()"), "size of a key tile"),
    ],
)
def test_a_kernel_that_shows_none(change: tuple[str, str], says: str) -> None:
    with pytest.raises(CuError, match=says):
        tile_shape(edited("sm80", change))
