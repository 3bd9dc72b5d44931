"""Each mutation hits the kernels, once, where it should, and still compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.text_mutants import MUTATIONS, text_mutants
from cubridge.backend.compile.compiler import compile_best
from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.frontend.contract import read_contract
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

NEEDS_A_SCORE = {"score change dropped"}


def kernel(name: str) -> SourceFile:
    path = KERNELS_DIR / name / "attention_forward.cu"
    return SourceFile(f"{name}/{path.name}", path.read_bytes())


@pytest.mark.parametrize("name", ["sm80", "sm90a"])
def test_each_mutation_changes_few_lines(name: str) -> None:
    source = kernel(name)
    found = dict(text_mutants(source))
    assert set(found) == set(MUTATIONS) - NEEDS_A_SCORE
    for mutant in found.values():
        before, after = set(source.text.splitlines()), mutant.text.splitlines()
        assert 1 <= sum(line not in before for line in after) + abs(len(after) - len(source.text.splitlines())) <= 2


def test_a_score_change_can_be_dropped() -> None:
    source = kernel("sm80")
    scored = SourceFile.from_text(
        "x.cu",
        source.text.replace(
            "const Params& p) {}\n// @endregion score", "const Params& p) {\n    s[0][0] = 1.f;\n}\n// @endregion score"
        ),
    )
    assert scored != source
    assert "const Params& p) { return;\n    s[0][0]" in dict(text_mutants(scored))["score change dropped"].text


@pytest.mark.parametrize("mutation", ["host constant wrong", "last key tile lost", "zero output"])
def test_mutants_compile(mutation: str, tmp_path: Path) -> None:
    mutant = dict(text_mutants(kernel("sm80")))[mutation]
    contract = read_contract(KERNELS_DIR / "sm80" / "attention_forward.toml", mutant)
    assert compile_best(mutant, contract, DType.BF16, 64, cache_dir=tmp_path).cubin
    if mutation == "host constant wrong":
        assert (
            contract.field("exponent_scale").value
            != read_contract(KERNELS_DIR / "sm80" / "attention_forward.toml").field("exponent_scale").value
        )
