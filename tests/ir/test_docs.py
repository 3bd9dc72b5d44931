"""docs/cuir.md says all words of CuIR, and its examples are CuIR."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from cubridge.ir.families import ALL_REGIONS, FAMILIES
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import OPS, SIZES
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from cubridge.ir.vocabulary import FIELD_FORMS, GEMMS, ORCHESTRATION_CALLS, PRECEDENCE, SCORE_STATE, SECTIONS
from cubridge.verify.verifier import verify
from tests.support.backward import lifted_backward
from tests.support.cases import merged
from tests.support.golden_texts import GOLDEN_NAMES, golden_file

PAGE = (Path(__file__).parents[2] / "docs" / "cuir.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("kind", "block"), BLOCKS, ids=lambda x: x[:20])
def test_example(kind: str, block: str) -> None:
    """An excerpt stands in the golden text; regions put into both golden kernels verify and round trip."""
    if kind in (*GOLDEN_NAMES, "backward"):
        text = golden_file(kind).text if kind in GOLDEN_NAMES else str(lifted_backward("sm90a-backward"))
        lines = [line.strip() for line in text.splitlines()]
        excerpt = [line.strip() for line in dedent(block).splitlines()]
        assert any(lines[at : at + len(excerpt)] == excerpt for at in range(len(lines)))
        return
    assert kind == "region"
    for name in GOLDEN_NAMES:
        text = merged(golden_file(name).text, block)
        assert text != golden_file(name).text
        kernel = parse(SourceFile.from_text("example", text))
        assert verify(kernel) == ()
        assert to_text(kernel) == text


@pytest.mark.parametrize(
    "word",
    [
        *OPS, *FUNCTIONS, *ALL_REGIONS, *FIELD_FORMS, *GEMMS, *ORCHESTRATION_CALLS, *PRECEDENCE, *SECTIONS, SCORE_STATE, *FAMILIES,
        *SIZES, *DType,
    ],
)  # fmt: skip
def test_word_is_explained(word: str) -> None:
    assert re.search(rf"`[^`\n]*(?<!\w){re.escape(word)}(?!\w)[^`\n]*`", PAGE)


def test_there_are_examples_of_each_kind() -> None:
    assert {kind for kind, _ in BLOCKS} == {"region", "backward", *GOLDEN_NAMES}
