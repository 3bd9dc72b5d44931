"""Regions are found by their markers, however these are laid out."""

from __future__ import annotations

from cubridge.frontend.cuda.markers import read_source_map
from cubridge.ir.source import SourceFile
from cubridge.ir.source_map import SOURCE_REGIONS


def test_markers_with_blanks_and_at_the_ends() -> None:
    text = "\n".join(f"\t//@region {n} \nx{n}\n  //  @endregion {n}" for n in SOURCE_REGIONS)
    regions = read_source_map(SourceFile.from_text("x.cu", text)).regions
    assert [r.span.text for r in regions] == [f"x{n}\n" for n in SOURCE_REGIONS]
