"""PTX on disk: made once for the same content, made again where it is damaged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest

from cubridge.backend.compile import compiler
from cubridge.backend.compile.compiler import compile_kernel, compile_ptx
from cubridge.backend.ptx import compiled
from cubridge.backend.ptx.compiled import machine_of
from cubridge.ir.contract import Instantiation, instantiations
from cubridge.ir.types import DType
from tests.kernels.emulated import kernel_text


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What NVRTC is asked for, with a cache of its own."""
    monkeypatch.setenv("CUBRIDGE_CACHE", str(tmp_path))
    asked: list[str] = []
    nvrtc = compiler.run_nvrtc

    def counted(name: str, *rest: object) -> object:
        asked.append(name)
        return nvrtc(name, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(compiler, "run_nvrtc", counted)
    compiled._loaded.cache_clear()
    return asked


def form() -> Instantiation:
    return instantiations(kernel_text("sm80").contract, DType.BF16, 64)[0]


def test_the_same_text_is_compiled_once(runs: list[str]) -> None:
    first = machine_of(kernel_text("sm80"), form())
    compiled._loaded.cache_clear()
    second = machine_of(kernel_text("sm80"), form())
    assert first[1] == second[1] and runs == ["kernel.cu"]
    assert machine_of(kernel_text("sm80"), form())[0] is second[0]
    assert machine_of(kernel_text("sm80", ("    zero(o);\n", "    zero(o); ;\n")), form())[1] != first[1]


def test_machine_code_and_ptx_come_of_one_compile(runs: list[str]) -> None:
    """Who comes while it goes on waits for it; and PTX that was made alone is the one that machine code is made of."""
    text = kernel_text("sm80")
    with ThreadPoolExecutor(1) as pool:
        code = pool.submit(compile_kernel, text.source, text.contract, form())
        while not runs:
            sleep(0.001)
        assert machine_of(text, form())[1] == code.result().key and len(runs) == 1
    other = kernel_text("sm80", ("    zero(o);\n", "    zero(o); ;\n"))
    alone = compile_ptx(other.source, other.contract, form()).text
    compile_kernel(other.source, other.contract, form())
    assert compile_ptx(other.source, other.contract, form()).text == alone and len(runs) == 3


def test_a_damaged_file_is_made_again(runs: list[str], tmp_path: Path) -> None:
    machine_of(kernel_text("sm80"), form())
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().replace(b"add.s32", b"sub.s32", 1))
    compiled._loaded.cache_clear()
    machine_of(kernel_text("sm80"), form())
    assert len(runs) == 2


def test_a_folder_that_cannot_be_written(runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUBRIDGE_CACHE", str(tmp_path / "file"))
    assert machine_of(kernel_text("sm80"), form())[0] and len(runs) == 1
