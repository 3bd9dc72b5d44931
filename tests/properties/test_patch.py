"""Random edits of random texts: bytes outside stay, and `git apply` of the diff gives the same text."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.backend.text.patch import TextEdit, apply_edits, diff_lines, unified_diff
from cubridge.ir.source import SourceFile, Span

TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "a\r\n", "}\n", "\n", "\u00e4 b c", " x"]), max_size=40).map("".join)


@st.composite
def files_and_edits(draw: st.DrawFn) -> tuple[SourceFile, list[TextEdit]]:
    data = draw(TEXTS).encode()
    file = SourceFile("kernel.cu", data)
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=8)))
    spans = [Span(file, start, end) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    return file, [TextEdit(span, draw(TEXTS).encode()) for span in spans]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(files_and_edits())
def test_marked_lines_are_both_texts(case: tuple[SourceFile, list[TextEdit]]) -> None:
    file, edits = case
    lines = diff_lines(file, edits)
    assert b"".join(line.text for line in lines if line.mark != "+") == file.data
    assert b"".join(line.text for line in lines if line.mark != "-") == apply_edits(file, edits)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(files_and_edits())
def test_bytes_outside_the_edits_stay(case: tuple[SourceFile, list[TextEdit]]) -> None:
    file, edits = case
    rest, at = apply_edits(file, edits), 0
    for edit in edits:
        untouched = file.data[at : edit.span.start]
        assert rest.startswith(untouched + edit.new)
        rest, at = rest[len(untouched + edit.new) :], edit.span.end
    assert rest == file.data[at:]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(files_and_edits())
def test_git_applies_the_diff(case: tuple[SourceFile, list[TextEdit]]) -> None:
    file, edits = case
    patch = unified_diff(diff_lines(file, edits), file.name)
    new = apply_edits(file, edits)
    if not patch or not file.data or not new:
        return  # an empty file is a file that git would create or delete
    with TemporaryDirectory() as folder:
        path = Path(folder) / file.name
        path.write_bytes(file.data)
        subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, input=patch, check=True)
        assert path.read_bytes() == new
