"""The functions and structs of a region are found however its text is laid out."""

from __future__ import annotations

import pytest

from cubridge.frontend.cuda.definitions import with_definitions
from cubridge.frontend.cuda.structure import read_program
from cubridge.frontend.cuda.text import folder_headers, read_unit
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import ArgumentText, SourceMap, SourceRegion


def region(text: str) -> SourceRegion:
    """A text that is one region."""
    file = SourceFile.from_text("region.cu", text)
    bare = SourceMap(file, (SourceRegion("score", Span(file, 0, len(file.data))),))
    unit = read_unit(file, {"DEVICE": "__device__"}, folder_headers())
    return with_definitions(bare, read_program(unit)).region("score")


def test_a_body_is_found_behind_comments_strings_and_calls() -> None:
    text = (
        "// score(x) { of the past\n/* void score() { } */\n"
        'DEVICE void helper(int a) { log("}{"); }\n'
        "DEVICE\nvoid score (float (&s)[ROWS][S_COLS],\n  int kv_start, const WorkTile& tile, const Params& p)\n"
        "{ // one {\n  if (a) { b(); } /* } */\n}\nint after;\n"
    )
    found = region(text).function("score")
    assert found.body.text == "{ // one {\n  if (a) { b(); } /* } */\n}"
    assert found.lead.text == ""
    scores = ArgumentText("s", ("ROWS", "S_COLS"))
    assert found.arguments == (scores, ArgumentText("kv_start"), ArgumentText("tile"), ArgumentText("p"))


@pytest.mark.parametrize("head", ["DEVICE void score(int a) {}", "  void score(int) {}"])
def test_the_comment_that_opens_a_region_belongs_to_its_first_function(head: str) -> None:
    found = region(f"// what it does\n// and why\n{head}\n").function("score")
    assert found.lead.text == "// what it does\n// and why\n"


@pytest.mark.parametrize("before", ["int x;\n", "void f() {}\n", "DEVICE\n", "#define ONE 1\n"])
def test_a_comment_above_other_code_stays(before: str) -> None:
    assert region(f"// what it does\n{before}void score(int a) {{}}\n").function("score").lead.text == ""


@pytest.mark.parametrize("text", ["", "void other() {}", "void score(int a);", "int x = score(1) + 2;"])
def test_a_region_without_its_function_is_an_error(text: str) -> None:
    with pytest.raises(CuError, match="does not define the function `score`") as caught:
        region(text).function("score")
    assert caught.value.diagnostics[0].code == "CU606"


def test_what_is_outside_a_region_is_not_in_it() -> None:
    file = SourceFile.from_text("two.cu", "void score(int a) {}\nvoid mask(int b) {}\n")
    bare = SourceMap(file, (SourceRegion("mask", Span(file, 21, len(file.data))),))
    [found] = with_definitions(bare, read_program(read_unit(file, {}, folder_headers()))).regions
    assert [f.name for f in found.functions] == ["mask"]


def test_a_struct_is_found_with_its_semicolon() -> None:
    text = "// struct KeySequence { old };\nstruct KeySequence {\n  int lo, hi;\n};\nint x;\n"
    found = region(text).struct("KeySequence")
    assert found.definition.text == "struct KeySequence {\n  int lo, hi;\n};"
    assert found.lead.text == "// struct KeySequence { old };\n"
    with pytest.raises(CuError, match="does not define the struct"):
        region("// struct KeySequence {};").struct("KeySequence")
