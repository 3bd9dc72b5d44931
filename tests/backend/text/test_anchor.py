"""Where edits stand in a kernel text, however that text is laid out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.backend.text.anchor import anchors, function_text, spelling_of, struct_text
from cubridge.backend.text.diff import diff
from cubridge.backend.text.names import Names
from cubridge.frontend.contract import read_contract
from cubridge.ir.diagnostics import CuError, Refused
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import SourceMap, SourceRegion
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


def region(text: str, name: str = "score") -> SourceRegion:
    file = SourceFile.from_text("region.cu", text)
    return SourceRegion(name, Span(file, 0, len(file.data)))


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


# ---- functions -------------------------------------------------------------------------------------------------------


def test_a_body_is_found_behind_comments_strings_and_calls() -> None:
    text = (
        "// score(x) { of the past\n/* void score() { } */\n"
        'DEVICE void helper(int a) { log("}{"); }\n'
        "DEVICE\nvoid score (float (&s)[ROWS][S_COLS],\n  int kv_start, const WorkTile& tile, const Params& p)\n"
        "{ // one {\n  if (a) { b(); } /* } */\n}\nint after;\n"
    )
    found = function_text(region(text), "score")
    assert found.body.text == "{ // one {\n  if (a) { b(); } /* } */\n}"
    assert found.lead.text == ""


def test_the_comment_that_opens_a_region_belongs_to_its_first_function() -> None:
    found = function_text(region("// what it does\n// and why\nDEVICE void score(int a) {}\n"), "score")
    assert found.lead.text == "// what it does\n// and why\n"


@pytest.mark.parametrize(
    "text",
    ["", "void other() {}", "void score(int a);", "void score(int a) { {", "void score(int a", "x = score(1) + 2;"],
)
def test_a_region_without_its_function_is_an_error(text: str) -> None:
    with pytest.raises(CuError) as caught:
        function_text(region(text), "score")
    assert caught.value.diagnostics[0].code == "CU606"


def test_a_struct_is_found_with_its_semicolon() -> None:
    text = "// struct KeySequence { old };\nstruct KeySequence {\n  int lo, hi;\n};\nint x;\n"
    found = struct_text(region(text), "KeySequence")
    assert found.definition.text == "struct KeySequence {\n  int lo, hi;\n};"
    assert found.lead.text == "// struct KeySequence { old };\n"
    with pytest.raises(CuError, match="does not define the struct"):
        struct_text(region("// struct KeySequence {};"), "KeySequence")


# ---- signatures ------------------------------------------------------------------------------------------------------


def test_names_of_a_signature() -> None:
    parameters = "float (&scores)[MY_ROWS][MY_COLS], int start, const WorkTile& w, const Params& params"
    spelling = spelling_of("score", parameters, Names({}), region(""))
    assert spelling.arguments == {"s": "scores", "kv_start": "start", "tile": "w", "p": "params"}
    assert (spelling.params, spelling.rows, spelling.score_columns) == ("params", "MY_ROWS", "MY_COLS")


def test_a_signature_with_other_arguments_is_an_error() -> None:
    with pytest.raises(CuError, match="has 4: s, kv_start, tile, p") as caught:
        spelling_of("score", "float (&s)[ROWS][S_COLS], const Params& p", Names({}), region(""))
    assert caught.value.diagnostics[0].code == "CU606"


def test_names_of_a_contract() -> None:
    names = Names.of(read_contract(KERNELS / "sm80" / "attention_forward.toml"))
    sizes = {"B": "batch", "Hq": "heads_q", "Hk": "heads_kv", "Lq": "len_q", "Lk": "len_kv"}
    assert names == Names(sizes, "HEAD_DIM", names.params)
    assert {*sizes.values(), "q_row", "lse"} < names.params and "exponent_scale" not in names.params
