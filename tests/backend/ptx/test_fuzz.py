"""The native library with sanitizers, on texts that are broken at random."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import tests.backend.ptx.test_foreign as plain
import tests.backend.ptx.test_foreign_hopper as hopper
from cubridge.backend.compile.cache import content_key, default_cache_dir
from cubridge.backend.ptx.build import NATIVE, sources_digest
from cubridge.backend.ptx.compiled import machine_of
from cubridge.ir.contract import instantiations
from cubridge.ir.types import DType
from tests.backend.ptx.foreign import Given, launch_of, machine
from tests.backend.ptx.fuzz import Case
from tests.backend.ptx.running import kept_launches, launcher
from tests.backend.ptx.test_calls import SUMS
from tests.backend.ptx.test_calls import given as sums_given
from tests.kernels.emulated import kernel_text, random_inputs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ with its sanitizers is not installed"),
]
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GLIBCXX_ASSERTIONS")
FLAGS = ("-std=c++20", "-O1", "-g", "-fPIC", "-ffp-contract=off", "-march=x86-64-v3", *SANITIZERS)
COUNT = 400


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with sanitizers: two minutes, once for the same sources."""
    library = default_cache_dir() / "sanitized" / f"{content_key(sources_digest(), FLAGS)}.so"
    if library.exists():
        return library
    folder = tmp_path_factory.mktemp("sanitized")
    header = folder / "rows.h"
    header.symlink_to(NATIVE / "rows.h")
    command = ["g++", *FLAGS, f'-DPTX_DIGEST="{sources_digest()}"', f"-I{NATIVE}"]
    subprocess.run([*command, "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)

    def compile_unit(unit: Path) -> str:
        made = str(folder / f"{unit.stem}.o")
        subprocess.run([*command, "-include", str(header), "-c", str(unit), "-o", made], check=True)
        return made

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(compile_unit, sorted(NATIVE.glob("*.cpp"))))
    library.parent.mkdir(parents=True, exist_ok=True)
    staged = library.with_suffix(f".{os.getpid()}")
    subprocess.run(["g++", *FLAGS, "-shared", *objects, "-o", str(staged)], check=True)
    os.replace(staged, library)
    return library


def environment() -> dict[str, str]:
    """For a Python that loads the library with sanitizers."""
    files = [
        subprocess.check_output(["g++", f"-print-file-name=lib{name}.so"], text=True) for name in ("asan", "stdc++")
    ]
    return os.environ | {"LD_PRELOAD": " ".join(x.strip() for x in files), "ASAN_OPTIONS": "detect_leaks=0"}


def test_what_the_sanitizers_notice(sanitized: Path) -> None:
    """A row far behind the last one."""
    command = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(sanitized)!r}).ptx_row(1 << 20, 0)"]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert found.returncode != 0 and "Assertion" in found.stderr + found.stdout


def foreign_cases() -> list[Case]:
    x = torch.randn(128)
    given = (
        ("sum", plain.SUM, Given((x, torch.empty(1)))),
        ("exchange", plain.EXCHANGE, Given((x[:32], torch.empty(32)), threads=32)),
        ("copy", plain.COPY, Given((plain.numbers(128, 4), torch.empty(128, 4)))),
        ("last", plain.LAST, plain.blocks()),
        ("tma", plain.TMA, plain.tma()),
        ("products", hopper.TWO_PRODUCTS, hopper.given()),
        ("pair", hopper.PAIR, hopper.pair()),
        ("calls", SUMS, sums_given()),
    )
    return [
        Case(name, machine(text).program.source.data, "kernel", launch_of(text, launch)) for name, text, launch in given
    ]


def packaged_case(arch: str, monkeypatch: pytest.MonkeyPatch) -> Case:
    """One of our kernels with the launch that the launcher makes."""
    made = kept_launches(monkeypatch)
    text = kernel_text(arch)
    launcher(text)(*random_inputs((1, 2, 1, 70, 130, 64)), lse=True)
    program = machine_of(text, instantiations(text.contract, DType.BF16, 64)[0])[0].program
    return Case(arch, program.source.data, program.entry, made[-1])


@pytest.mark.parametrize("seed", [0, 1])
def test_broken_texts_under_sanitizers(
    sanitized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    cases = [packaged_case(arch, monkeypatch) for arch in ("sm80", "sm90a")] + 2 * foreign_cases()
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    command = [
        sys.executable,
        "-m",
        "tests.backend.ptx.fuzz",
        str(sanitized),
        str(tmp_path / "cases"),
        str(seed),
        str(COUNT),
    ]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, f"{found.stderr[-3000:]}\n{tmp_path / 'last.ptx'}"
    ends = dict(line.split() for line in found.stdout.splitlines())
    assert int(ends["run"]) > 10 and int(ends["CU833"]) > 10 and int(ends["CU838"]) > 10
