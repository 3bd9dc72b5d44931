"""Kernels are compiled for real; faults are found where they are; the cache goes by content."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.backend.compile.cache import content_key, read_entry
from cubridge.backend.compile.compiler import Compiled, compile_best, compile_kernel
from cubridge.ir.contract import Instantiation, LaunchContract, MacroChoice
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from tests.backend.small_contract import BF16, HEADER, TEXT, exprs, small_contract, text

SPILLING = """\
extern "C" __global__ void __launch_bounds__(1024, 1) small_kernel(float* p) {
    float a[ROWS];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) a[i] = p[i * 7];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) a[i] = a[i] * a[(i * 5 + 3) % ROWS] + p[i];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) p[i] = a[i] + a[(i * 3 + 1) % ROWS];
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "types.cuh").write_text(HEADER)
    return tmp_path


def build(
    folder: Path, body: str = TEXT, contract: LaunchContract | None = None, form: Instantiation = BF16
) -> Compiled:
    return compile_kernel(
        text(body), contract or small_contract(), form, include_dirs=(folder,), cache_dir=folder / "cache"
    )


def fault(folder: Path, body: str = TEXT, contract: LaunchContract | None = None, arch: str | None = None) -> CuError:
    with pytest.raises(CuError) as caught:
        compile_kernel(
            text(body), contract or small_contract(), BF16, arch, include_dirs=(folder,), cache_dir=folder / "cache"
        )
    return caught.value


def test_a_kernel_compiles_without_a_gpu(folder: Path) -> None:
    compiled = build(folder)
    assert compiled.cubin[:4] == b"\x7fELF"
    assert compiled.resources.registers > 0 and compiled.resources.spills == 0
    assert compiled.shared_bytes == 64 * 32 * 2


# ---- messages at their places ----------------------------------------------------------------------------------------


def test_an_error_is_at_its_word_in_the_text(folder: Path) -> None:
    error = fault(folder, TEXT.replace("p.q[threadIdx.x]", "p.queries[0]"))
    (diagnostic,) = error.diagnostics
    assert diagnostic.code == "CU806" and "queries" in diagnostic.message
    assert str(diagnostic.span) == "small.cu:4:26" and diagnostic.span.text == "queries"


def test_columns_count_characters_and_carets_bytes(folder: Path) -> None:
    error = fault(folder, TEXT.replace("    p.o", "    /* größe */ p.nothing"))
    assert str(error.diagnostics[0].span) == "small.cu:4:19"


def test_an_error_in_a_header_is_in_the_header(folder: Path) -> None:
    (folder / "small" / "types.cuh").write_text(HEADER + "__device__ int twice(int x) { return y + x; }\n")
    (diagnostic,) = fault(folder).diagnostics
    assert str(diagnostic.span) == "small/types.cuh:4:38" and diagnostic.span.text == "y"


def test_an_instantiation_is_noted_with_its_line(folder: Path) -> None:
    body = TEXT + 'template <int N> __device__ int f() { static_assert(N > 3, "too small"); return N; }\n'
    body += 'extern "C" __global__ void second(int* p) {\n    p[0] = f<2>();\n}\n'
    (diagnostic,) = fault(folder, body).diagnostics
    assert "too small" in diagnostic.message
    assert [n.span.location[0] for n in diagnostic.notes] == [8]


def test_an_assembler_error_is_at_the_line_of_its_wrapper(folder: Path) -> None:
    broken = '__device__ __forceinline__ void bad(int x) {\n    asm volatile("no.such %0;" :: "r"(x));\n}\n'
    (folder / "small" / "types.cuh").write_text(HEADER + broken)
    error = fault(folder, TEXT.replace("    p.o", "    bad(1);\n    p.o"))
    assert {d.code for d in error.diagnostics} == {"CU807"}
    assert str(error.diagnostics[0].span) == "small/types.cuh:5:5"


def test_a_missing_header_is_at_its_include(folder: Path) -> None:
    (diagnostic,) = fault(folder, '#include "small/none.cuh"\n' + TEXT).diagnostics
    assert "small/none.cuh" in diagnostic.message and diagnostic.span.location[0] == 1


def test_a_text_that_ends_early_has_a_place(folder: Path) -> None:
    error = fault(folder, TEXT.rstrip().removesuffix("}"))
    assert error.diagnostics[0].code == "CU806" and error.diagnostics[0].span.location[0] >= 4


def test_a_header_name_with_two_texts_is_refused(folder: Path) -> None:
    for side in ("a", "b"):
        (folder / side).mkdir()
        (folder / side / "top.cuh").write_text('#include "part.cuh"\n')
        (folder / side / "part.cuh").write_text(f"// {side}\n")
    error = fault(folder, '#include "a/top.cuh"\n#include "b/top.cuh"\n' + TEXT)
    assert error.diagnostics[0].code == "CU804"


def test_a_contract_for_another_kernel_is_refused(folder: Path) -> None:
    error = fault(folder, contract=small_contract(entry="other_kernel"))
    assert error.diagnostics[0].code == "CU808" and "small_kernel" in (error.diagnostics[0].help or "")


def test_warnings_are_kept_with_the_cached_kernel(folder: Path) -> None:
    body = TEXT.replace("    p.o", "    int unused = 3;\n    p.o")
    first, second = build(folder, body), build(folder, body)
    assert second.from_cache and not first.from_cache
    for compiled in (first, second):
        assert [w.severity for w in compiled.warnings] == ["warning"]
        assert compiled.warnings[0].span.text == "unused"


# ---- architectures and limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "own", "newer", "code"),
    [
        ("sm_90", "sm_80", True, "CU801"),
        ("hopper", "sm_80", True, "CU801"),
        ("sm_80", "sm_90a", False, "CU802"),
        ("sm_100a", "sm_90a", False, "CU802"),
    ],
)
def test_a_wrong_architecture_is_refused(folder: Path, arch: str, own: str, newer: bool, code: str) -> None:
    error = fault(folder, contract=small_contract(arch=own, newer_archs=newer), arch=arch)
    assert error.diagnostics[0].code == code
    if arch == "sm_90":
        assert "wgmma" in str(error) and "`sm_90a`" in str(error)


def test_a_kernel_for_sm_80_compiles_for_later_architectures(folder: Path) -> None:
    compiled = compile_kernel(
        text(), small_contract(), BF16, "sm_90a", include_dirs=(folder,), cache_dir=folder / "cache"
    )
    assert compiled.target.name == "sm_90a"


def test_too_much_shared_memory_says_need_limit_and_what_to_change(folder: Path) -> None:
    error = fault(folder, contract=small_contract(shared_bytes=exprs("BLOCK * 8000")[0]))
    (diagnostic,) = error.diagnostics
    assert diagnostic.code == "CU803"
    assert str(32 * 8000) in diagnostic.message and str(163 * 1024) in diagnostic.message
    assert diagnostic.help == "lower BLOCK = 32"


# ---- spills ----------------------------------------------------------------------------------------------------------


def spilling_contract(*rows: str) -> LaunchContract:
    return small_contract(macros=(MacroChoice("ROWS", exprs(*rows)),), shared_bytes=exprs("0")[0])


def test_the_first_form_without_spills_is_taken(folder: Path) -> None:
    found = compile_best(
        text(SPILLING), spilling_contract("200", "100", "8"), DType.BF16, 64, include_dirs=(folder,), cache_dir=folder
    )
    assert found.instantiation.macros == (("ROWS", 8),) and found.resources.spills == 0


def test_if_all_forms_spill_the_least_is_taken_and_said(folder: Path) -> None:
    found = compile_best(
        text(SPILLING), spilling_contract("200", "120"), DType.BF16, 64, include_dirs=(folder,), cache_dir=folder
    )
    assert found.instantiation.macros == (("ROWS", 120),)
    assert found.resources.spills == found.resources.spill_stores + found.resources.spill_loads > 0


def test_an_unlisted_form_is_refused(folder: Path) -> None:
    with pytest.raises(CuError) as caught:
        compile_best(text(), small_contract(), DType.F32, 64, include_dirs=(folder,), cache_dir=folder)
    assert caught.value.diagnostics[0].code == "CU809" and caught.value.exit_code == 4


# ---- the cache -------------------------------------------------------------------------------------------------------


def test_the_same_content_is_compiled_once_wherever_it_lies(folder: Path) -> None:
    first = build(folder)
    moved = SourceFile.from_text("elsewhere/moved.cu", TEXT)
    again = compile_kernel(moved, small_contract(), BF16, include_dirs=(folder,), cache_dir=folder / "cache")
    assert again.from_cache and again.key == first.key and again.cubin == first.cubin


def test_every_part_of_the_content_is_in_the_key(folder: Path) -> None:
    keys = [build(folder).key]
    keys.append(build(folder, TEXT.replace("threadIdx.x]", "threadIdx.x] ")).key)
    keys.append(build(folder, form=Instantiation(DType.F16, (*BF16.macros, ("HALF_FP16", 1)))).key)
    keys.append(build(folder, form=Instantiation(DType.BF16, (("WIDTH", 128), ("BLOCK", 32)))).key)
    (folder / "small" / "types.cuh").write_text(HEADER + "// one more line\n")
    keys.append(build(folder).key)
    assert len(set(keys)) == len(keys)


def test_a_constant_in_the_text_is_in_the_key(folder: Path) -> None:
    scaled = [build(folder, TEXT.replace("p.q[threadIdx.x]", f"p.q[0] * {c}")).key for c in ("0.125f", "0.1251f")]
    assert scaled[0] != scaled[1]


@pytest.mark.parametrize("damage", [b"", b"\x7fELF broken", None])
def test_a_damaged_entry_is_compiled_again(folder: Path, damage: bytes | None) -> None:
    first = build(folder)
    cubin = folder / "cache" / f"{first.key}.cubin"
    cubin.unlink() if damage is None else cubin.write_bytes(damage)
    assert read_entry(folder / "cache", first.key) is None
    again = build(folder)
    assert not again.from_cache and again.cubin == first.cubin
    assert build(folder).from_cache


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    (folder / "file").write_text("")
    compiled = compile_kernel(
        text(), small_contract(), BF16, include_dirs=(folder,), cache_dir=folder / "file" / "cache"
    )
    assert compiled.cubin


def test_parts_of_a_key_do_not_run_together() -> None:
    assert content_key("ab", "c") != content_key("a", "bc") != content_key("abc")
