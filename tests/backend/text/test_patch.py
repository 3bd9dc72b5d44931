"""Text edits on bytes: overlaps, line ends, files without a last newline; and lowering as a whole."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cubridge.backend.text.lower import lower
from cubridge.backend.text.names import Names
from cubridge.backend.text.patch import TextEdit, apply_edits, diff_lines, unified_diff
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import SourceRegion
from tests.backend.text.lowering import NAMES, lowered, regions_of, small_kernel, source_ir, target_ir

MASK = """
variant_params(
    exponent_scale=Scalar(f32, host=D ** -0.5 * LOG2E),
    prefix=Scalar(i32, host=Lq // 4),
)

@region
def mask(s, kv_start, tile):
    s = where((j < Lk) & ((j <= i) | (j < p.prefix)), s, -inf)
"""


def file(text: str) -> SourceFile:
    return SourceFile.from_text("kernel.cu", text)


def edit(source: SourceFile, old: str, new: str) -> TextEdit:
    start = source.data.index(old.encode())
    return TextEdit(Span(source, start, start + len(old.encode())), new.encode())


def git_apply(source: bytes, patch: bytes, folder: Path) -> bytes:
    (folder / "kernel.cu").write_bytes(source)
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, input=patch, check=True, capture_output=True
    )
    return (folder / "kernel.cu").read_bytes()


def test_edits_are_applied_at_once() -> None:
    source = file("one two three\n")
    edits = [edit(source, "three", "3"), edit(source, "one", "1"), TextEdit(Span(source, 4, 4), b"and ")]
    assert apply_edits(source, edits) == b"1 and two 3\n"


@pytest.mark.parametrize(("first", "second"), [((0, 5), (4, 6)), ((0, 5), (0, 5)), ((2, 2), (2, 2)), ((0, 9), (3, 4))])
def test_overlaps_are_refused(first: tuple[int, int], second: tuple[int, int]) -> None:
    source = file("one two three\n")
    with pytest.raises(CuError, match="overlap") as caught:
        apply_edits(source, [TextEdit(Span(source, *second), b"x"), TextEdit(Span(source, *first), b"y")])
    assert caught.value.diagnostics[0].code == "CU605"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "end"])
def test_git_takes_the_diff(end: str, last: str, tmp_path: Path) -> None:
    lines = [f"line {n} \u00e4" for n in range(40)]
    source = SourceFile("kernel.cu", (end.join([*lines, last])).encode())
    edits = [
        edit(source, "line 3 ", "new 3" + end + "x "),
        edit(source, f"line 30 \u00e4{end}", ""),
        edit(source, "39", "end"),
    ]
    patch = unified_diff(diff_lines(source, edits), "kernel.cu")
    assert git_apply(source.data, patch, tmp_path) == apply_edits(source, edits)
    assert patch.count(b"\n@@ ") == 3


def test_a_text_without_a_last_newline(tmp_path: Path) -> None:
    source = file("a\nb")
    edits = [edit(source, "b", "c")]
    patch = unified_diff(diff_lines(source, edits), "kernel.cu")
    assert patch.count(b"\\ No newline at end of file") == 2
    assert git_apply(source.data, patch, tmp_path) == b"a\nc"


def test_no_edits_no_diff() -> None:
    assert unified_diff(diff_lines(small_kernel(), []), "kernel.cu") == b""


# ---- lowering --------------------------------------------------------------------------------------------------------


def test_counts_and_regions() -> None:
    result = lowered(MASK)
    assert (result.regions_changed, result.lines_added, result.lines_removed) == (("params", "mask"), 3, 1)
    assert result.text != small_kernel().data


def test_a_change_that_the_text_does_not_show_is_none() -> None:
    renamed = "@region\ndef key_count(keys):\n    return (maximum(keys.hi - keys.lo, 0))\n"
    assert lowered(renamed).regions_changed == ()
    vote = "@region\ndef row_rescale(o, row, tile):\n    moved = row.o_scale != 1.0\n    if any_lane(moved):\n"
    vote += "        o = o * row.o_scale\n"
    assert (lowered(vote).regions_changed, lowered(vote).patch) == ((), b"")


def test_nothing_changes_outside_the_regions() -> None:
    result = lowered(MASK)
    after = regions_of(SourceFile("kernel.cu", result.text))
    before = regions_of(small_kernel())
    assert [r.name for r in after.regions] == [r.name for r in before.regions]
    for old, new in zip(before.regions, after.regions, strict=True):
        assert (old.digest == new.digest) == (old.name not in result.regions_changed)
    assert _outside(after.regions, result.text) == _outside(before.regions, small_kernel().data)


def _outside(regions: tuple[SourceRegion, ...], data: bytes) -> list[bytes]:
    parts, at = [], 0
    for region in regions:
        parts.append(data[at : region.span.start])
        at = region.span.end
    return [*parts, data[at:]]


def test_crlf_and_other_scripts_survive(tmp_path: Path) -> None:
    data = small_kernel().data.replace(b"Row r of s", "Строка r".encode()).replace(b"\n", b"\r\n")
    source = SourceFile("kernel.cu", data)
    result = lowered(MASK, source)
    assert result.text.replace(b"\r\n", b"").count(b"\n") == 0
    assert result.text.replace(b"\r\n", b"\n").replace("Строка r".encode(), b"Row r of s") == lowered(MASK).text
    assert git_apply(data, result.patch, tmp_path) == result.text


def test_the_kernels_own_names_are_used() -> None:
    text = small_kernel().text
    old = "mask(float (&s)[ROWS][S_COLS], int kv_start, const WorkTile& tile, const Params& p)"
    new = "mask(float (&scores)[ROWS][S_COLS], int first, const WorkTile& c, const Params& params)"
    assert old in text
    result = lowered(MASK, file(text.replace(old, new)), Names({**NAMES.size_fields, "Lk": "keys"}))
    body = result.text.decode()
    assert "const int i = c.q_start + frag_row(r);" in body
    assert "const int j = first + frag_col(c_);" in body
    line = "scores[r][c_] = (j < params.keys) & ((j <= i) | (j < params.prefix)) ? scores[r][c_] : -INFINITY;"
    assert line in body


def test_a_stale_map_is_an_error() -> None:
    changed = file(small_kernel().text + "// edited\n")
    with pytest.raises(CuError) as caught:
        lower(changed, regions_of(small_kernel()), source_ir(), target_ir(MASK), NAMES)
    assert caught.value.diagnostics[0].code == "CU601"


def test_comments_and_foreign_lines_of_fields_stay() -> None:
    text = small_kernel().text
    old = "    float l[ROWS];           // running sum of weights, PARTIAL over lanes\n"
    new = "    // sums\n" + old + "    int unknown, other;  // not CuIR's\n"
    changes = "row_state(\n    m=Row(f32),\n    best=Row(i32),\n    l=Partial(f32),\n    o_scale=Row(i32),\n)\n"
    result = lowered(changes, file(text.replace(old, new))).text.decode()
    start, end = result.index("// @region row_state\n"), result.index("    // @endregion row_state")
    assert result[start:end] == (
        "// @region row_state\n"
        "    float m[ROWS];           // reference of the exponents, score units: the running maximum or a little less\n"
        "    int best[ROWS];\n"
        "    // sums\n"
        "    float l[ROWS];           // running sum of weights, PARTIAL over lanes\n"
        "    int o_scale[ROWS];\n"
        "    int unknown, other;  // not CuIR's\n"
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ("variant_params(\n    flag=Scalar(i32),\n)\n", "CU603"),
        ("variant_params(\n    table=Captured(bf16, Lk),\n)\n", "CU603"),
        ("variant_params(\n    a__b=Captured(f32, Lk),\n)\n", "CU604"),
        ("@region\ndef score(s, kv_start, tile):\n    while_ = 1\n    goto = 1\n", "CU604"),
        ("@region\ndef score(s, kv_start, tile):\n    x = 1\n    i = 0\n", "CU205"),
        ("@region\ndef score(s, kv_start, tile):\n    if s > 0.0:\n        s = 0.0\n", "CU205"),
        ("@region\ndef row_init(row, tile):\n    row.m = f32(e)\n", "CU201"),
        ("@region\ndef row_update(s, row, kv_start, tile):\n    row.m = rowmax(row.m)\n", "CU203"),
        ("@region\ndef row_finalize(o, lse, row, tile):\n    lse = rowmax(o)\n", "CU603"),
        (
            "@region\ndef row_rescale(o, row, tile):\n    if any_lane(row.m > 0.0):\n        o = o * 2\n    o = o\n",
            "CU603",
        ),
    ],
)
def test_what_cannot_be_lowered(changes: str, code: str) -> None:
    with pytest.raises(CuError) as caught:
        lowered(changes)
    assert caught.value.diagnostics[0].code == code
