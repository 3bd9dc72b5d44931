"""`cuirc graph` and `cuirc explain --mask`."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.command import cuirc

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_graph_as_dot_names_every_event_once() -> None:
    ended = cuirc("graph", "sm80", "--counts", "2")
    text = ended.out.decode()
    nodes = re.findall(r"^ {4}(\d+) \[label=", text, re.MULTILINE)
    assert ended.code == 0
    assert sorted(map(int, nodes)) == list(range(len(nodes)))
    edges = {(int(a), int(b)) for a, b in re.findall(r"^  (\d+) -> (\d+)", text, re.MULTILINE)}
    assert all(a < b < len(nodes) for a, b in edges)
    assert {b for _, b in edges} == set(range(1, len(nodes)))


def test_a_graph_as_svg_is_by_its_name(tmp_path: Path) -> None:
    output = tmp_path / "events.svg"
    assert cuirc("graph", "sm90a", "-o", output).code == 0
    root = ElementTree.parse(output).getroot()
    assert root.tag.endswith("svg")
    named = [e.text for e in root.iter() if e.tag.endswith("}text")]
    consumers = [lane for n in (1, 2) for lane in (f"warpgroup {n} (consumer)", "tensor cores")]
    assert named == ["warpgroup 0 (producer)", "copies", *consumers]
    assert sum("arrow" in e.get("class", "") for e in root.iter()) > 40


@pytest.mark.parametrize("counts", ["", "x", "1,2,", "99", "1,1,1,1,1,1,1,1,1"])
def test_counts_that_are_none(counts: str) -> None:
    assert (ended := cuirc("graph", "sm80", "--counts", counts)).codes == ["CU111"]
    assert ended.code == 2


def test_the_mask_of_a_reference_as_text() -> None:
    ended = cuirc("explain", EXAMPLES / "causal_top_left.py", "--tile", "64,64", "--shape", "1,1,1,192,192,64")
    assert ended.code == 0
    assert ended.out.decode().splitlines()[-4:] == [
        "every batch and head: 3 visible, 3 partly, 3 hidden",
        "  0  ▒··",
        " 64  █▒·",
        "128  ██▒",
    ]
    assert cuirc("explain", EXAMPLES / "causal_top_left.py", "--tile", "0,64").codes == ["CU111"]
