"""Our own kernels compile for real, in every form that their contracts list first, without spills."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.backend.compile.compiler import compile_best, compile_kernel, listed_instantiations
from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.frontend.contract import read_contract
from cubridge.ir.contract import LaunchContract
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType


def kernel(name: str) -> tuple[SourceFile, LaunchContract]:
    contract = read_contract(KERNELS_DIR / name / "attention_forward.toml")
    return SourceFile.read(KERNELS_DIR / name / contract.source), contract


@pytest.mark.parametrize("name", ["sm80", "sm90a"])
@pytest.mark.parametrize(("dtype", "head_dim"), [(DType.BF16, 128), (DType.F16, 64)])
def test_the_first_form_compiles_without_spills(name: str, dtype: DType, head_dim: int, tmp_path: Path) -> None:
    source, contract = kernel(name)
    compiled = compile_best(source, contract, dtype, head_dim, cache_dir=tmp_path)
    assert compiled.instantiation == listed_instantiations(contract, dtype, head_dim)[0]
    assert compiled.resources.spills == 0 and compiled.resources.stack == 0
    assert compiled.warnings == ()
    assert 0 < compiled.shared_bytes <= compiled.target.shared_limit


def test_the_sm80_kernel_runs_on_hopper_as_sm_90a(tmp_path: Path) -> None:
    source, contract = kernel("sm80")
    form = listed_instantiations(contract, DType.BF16, 64)[0]
    assert compile_kernel(source, contract, form, "sm_90a", cache_dir=tmp_path).resources.spills == 0


def test_wgmma_that_the_assembler_serialises_is_an_error(tmp_path: Path) -> None:
    """The output is read between a gemm and its wait, in a branch: the assembler must then wait after each wgmma, whatever
    the form."""
    source, contract = kernel("sm90a")
    wait = "wgmma_wait<1>();"
    assert source.text.count(wait) == 1
    broken = SourceFile.from_text(source.name, source.text.replace(wait, "row_rescale(o, row, tile, p); " + wait))
    with pytest.raises(CuError) as caught:
        compile_best(broken, contract, DType.BF16, 64, cache_dir=tmp_path)
    assert caught.value.diagnostics[0].code == "CU810" and "serialise" in str(caught.value)


def test_a_form_whose_wgmma_are_serialised_is_passed_over(tmp_path: Path) -> None:
    source, contract = kernel("sm90a")
    early = "if (BLOCK_KV > 64) row_rescale(o, row, tile, p); wgmma_wait<1>();"
    text = SourceFile.from_text(source.name, source.text.replace("wgmma_wait<1>();", early))
    found = compile_best(text, contract, DType.BF16, 64, cache_dir=tmp_path)
    assert found.instantiation == listed_instantiations(contract, DType.BF16, 64)[1]


def test_a_fault_in_a_kernel_has_its_line(tmp_path: Path) -> None:
    source, contract = kernel("sm80")
    broken = SourceFile.from_text(source.name, source.text.replace("j < p.len_kv ?", "j < p.length ?"))
    form = listed_instantiations(contract, DType.BF16, 64)[0]
    with pytest.raises(CuError) as caught:
        compile_kernel(broken, contract, form, cache_dir=tmp_path)
    span = caught.value.diagnostics[0].span
    assert span.text == "length" and "p.length" in span.file.line(span.location[0])
