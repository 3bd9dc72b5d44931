"""The preprocessor: every byte keeps its place, only the active text of one instantiation is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.frontend.cuda.conditions import holds
from cubridge.frontend.cuda.text import folder_headers, read_unit
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from tests.frontend.cuda.kernels import kernel_text, lift_text, shipped


def masked(text: str, **macros: int | str) -> str:
    unit = read_unit(SourceFile.from_text("x.cu", text), macros, lambda _: None)
    return unit.main.masked.decode()


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("1", True), ("0", False), ("N == 4", True), ("N * 2 > 8", False), ("defined(N) && !defined(M)", True), ("M", False),
        ("defined N", True), ("(N + 2) % 4 == 2", True), ("N / 3 == 1", True), ("-N < 0", True), ("N == 4 ||", None), ("1 +", None),
        ("N / 0", None), ("LOOP", None), ("", None), ("N ? 1 : 2", None), ("~3", None), ("0x10 == 16", True),
    ],
)  # fmt: skip
def test_conditions(condition: str, truth: bool | None) -> None:
    assert holds(condition, {"N": "4", "LOOP": "LOOP + 1"}) is truth


def test_branches_comments_and_attributes_become_blanks() -> None:
    text = (
        "#define DEVICE __device__ __forceinline__\n#if N > 4\nint a;\n#elif N > 2\nint b; // ä\n#else\nint c;\n#endif\n"
        'DEVICE int f() { return 1; /* "x */ }\n'
    )
    result = masked(text, N=3)
    assert len(result.encode()) == len(text.encode())
    assert result.split("\n")[4].strip() == "int b;"
    assert result.count("int ") == 2
    assert result.split("\n")[8].rstrip() == "       int f() { return 1;          }"


def test_nested_branches() -> None:
    text = "#ifdef A\n#ifdef B\nint ab;\n#else\nint a;\n#endif\n#else\n#ifndef B\nint none;\n#endif\n#endif\nint x;\n"
    kept = {k: masked(text, **dict.fromkeys(k, 1)).split() for k in ("", "A", "AB", "B")}
    assert kept == {
        "": ["int", "none;", "int", "x;"],
        "A": ["int", "a;", "int", "x;"],
        "AB": ["int", "ab;", "int", "x;"],
        "B": ["int", "x;"],
    }


def test_continued_lines_and_strings() -> None:
    assert (
        masked('#define M \\\n  1\nconst char* s = "// no comment";\n').split("\n")[2]
        == 'const char* s = "// no comment";'
    )


@pytest.mark.parametrize(
    "text", ["#if 1\nint x;\n", "#endif\n", "#else\n", "#error no\nint x;\n", "#import x\n", '#include "no.h"\n']
)
def test_directives_that_cannot_be_followed(text: str) -> None:
    with pytest.raises(CuError) as caught:
        masked(text)
    assert [d.code for d in caught.value.diagnostics] == ["CU421"]


def test_a_macro_that_the_instantiation_does_not_give_is_the_default_of_the_text() -> None:
    assert "int x[4]" in masked("#ifndef N\n#define N 4\n#endif\nint x[4];\n").replace("  ", "")


def test_crlf_and_non_ascii_text_keep_their_bytes() -> None:
    text = kernel_text("sm80").replace("// group: q, first k", "// Grüße: q, 最初 k").replace("\n", "\r\n")
    lifted = lift_text("sm80", text)
    assert lifted.kernel == shipped("sm80").kernel
    data = text.encode()
    for region in lifted.source_map.regions:
        assert data[region.span.end :].lstrip().startswith(f"// @endregion {region.name}\r\n".encode())
        assert data[: region.span.start].endswith(f"// @region {region.name}\r\n".encode())
    last = lifted.kernel.body[-1]
    assert data[last.span.start : last.span.end].startswith(b"if (p.lse != nullptr)")


def test_headers_of_the_first_folder_that_has_one(tmp_path: Path) -> None:
    for folder, names in (("own", "a"), ("packaged", "ab")):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.cuh").write_text(folder)
    find = folder_headers(tmp_path / "own", tmp_path / "packaged")
    assert [file and file.text for file in map(find, ("a.cuh", "b.cuh", "c.cuh"))] == ["own", "packaged", None]
    assert find("../own/b.cuh") is None
