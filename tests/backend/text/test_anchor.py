"""Where edits stand in a kernel text, however that text is laid out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.backend.text.anchor import anchors, spelling_of
from cubridge.backend.text.diff import diff
from cubridge.backend.text.names import Names
from cubridge.frontend.contract import read_contract
from cubridge.ir.diagnostics import CuError, Refused
from cubridge.ir.nodes import REGIONS
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import ArgumentText, FunctionText, SourceMap, SourceRegion
from tests.backend.text.lowering import regions_of, small_kernel, source_ir, target_ir
from tests.backend.text.test_diff import edited

KERNELS = Path(__file__).parents[3] / "cubridge" / "kernels"
CHANGES = """
variant_params(
    exponent_scale=Scalar(f32, host=2.0),
)

@region
def key_count(keys):
    return 1

@region
def key_tile(keys, t):
    return t

@region
def mask(s, kv_start, tile):
    pass
"""


def test_regions_in_the_order_of_the_text() -> None:
    found = anchors(diff(source_ir(), target_ir(CHANGES)), source_ir(), regions_of(small_kernel()))
    assert [(a.region.name, a.functions) for a in found] == [
        ("params", ()),
        ("kv_range", ("key_count", "key_tile")),
        ("mask", ("mask",)),
    ]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("slot = 0", "slot = 1", "attention_forward"),
        ("tile.b = block_z", "tile.b = 0", "work_tile"),
        ("BLOCK_Q=128", "BLOCK_Q=64", "const"),
        ("optional=True", "optional=False", "params"),
        ("slots=STAGES", "slots=3", "shared"),
        ("threads=WARPS * 32", "threads=64", "threads"),
    ],
)
def test_changes_outside_the_regions_are_refused(old: str, new: str, place: str) -> None:
    target = edited(old, new)
    with pytest.raises(CuError, match=f"the change of `{place}` is outside") as caught:
        anchors(diff(source_ir(), target), source_ir(), regions_of(small_kernel()))
    assert caught.value.diagnostics[0].code == "CU602"


def test_a_region_that_the_contract_keeps_is_refused() -> None:
    edits = diff(source_ir(), target_ir(CHANGES))
    with pytest.raises(Refused, match="the change of `mask` is outside") as caught:
        anchors(edits, source_ir(), regions_of(small_kernel()), ("params", "kv_range"))
    assert caught.value.diagnostics[0].help == "they are params, kv_range"


def test_a_missing_region_is_an_error() -> None:
    whole = regions_of(small_kernel())
    without = SourceMap(whole.file, tuple(r for r in whole.regions if r.name != "mask"))
    with pytest.raises(CuError, match="no region `mask`") as caught:
        anchors(diff(source_ir(), target_ir(CHANGES)), source_ir(), without)
    assert caught.value.diagnostics[0].code == "CU606"


# ---- signatures ------------------------------------------------------------------------------------------------------


NOWHERE_IN_IT = Span(SourceFile.from_text("region.cu", ""), 0, 0)
REGION = SourceRegion("score", NOWHERE_IN_IT)


def score(*arguments: ArgumentText) -> FunctionText:
    return FunctionText("score", arguments, NOWHERE_IN_IT, NOWHERE_IN_IT)


def test_names_of_a_signature() -> None:
    scores = ArgumentText("scores", ("MY_ROWS", "MY_COLS"))
    function = score(scores, ArgumentText("start"), ArgumentText("w"), ArgumentText("params"))
    spelling = spelling_of(function, Names({}), REGION, REGIONS["score"])
    assert spelling.arguments == {"s": "scores", "kv_start": "start", "tile": "w", "p": "params"}
    assert (spelling.params, spelling.rows, spelling.score_columns) == ("params", "MY_ROWS", "MY_COLS")


def test_a_signature_with_other_arguments_is_an_error() -> None:
    with pytest.raises(CuError, match="has 4: s, kv_start, tile, p") as caught:
        spelling_of(
            score(ArgumentText("s", ("ROWS", "S_COLS")), ArgumentText("p")), Names({}), REGION, REGIONS["score"]
        )
    assert caught.value.diagnostics[0].code == "CU606"


def test_an_argument_without_a_name_is_an_error() -> None:
    function = score(ArgumentText("s", ("ROWS", "S_COLS")), ArgumentText("k"), ArgumentText(""), ArgumentText("p"))
    with pytest.raises(CuError, match="does not name its argument `tile`") as caught:
        spelling_of(function, Names({}), REGION, REGIONS["score"])
    assert caught.value.diagnostics[0].code == "CU606"


def test_names_of_a_contract() -> None:
    names = Names.of(read_contract(KERNELS / "sm80" / "attention_forward.toml"))
    sizes = {"B": "batch", "Hq": "heads_q", "Hk": "heads_kv", "Lq": "len_q", "Lk": "len_kv"}
    assert names == Names(sizes, "HEAD_DIM", names.params)
    assert {*sizes.values(), "q_row", "lse"} < names.params and "exponent_scale" not in names.params
