"""Texts over the headers of others, compiled by NVRTC; kept by content, since one takes half a minute and 4 GB."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.backend.compile.cache import content_key
from cubridge.backend.compile.nvrtc import nvrtc_version, run_nvrtc, system_include_dir
from cubridge.backend.ptx.machine import Machine
from cubridge.backend.ptx.parser import parse_program
from cubridge.ir.source import SourceFile
from tests.foreign.sources import FOREIGN, HEADERS

HERE: Final = Path(__file__).parent
_STANDARD: Final = (
    "array", "cstddef", "cstring", "functional", "initializer_list", "limits", "tuple", "type_traits", "utility",
)  # fmt: skip
_EMPTY: Final = (
    "algorithm", "assert.h", "cassert", "cfenv", "cinttypes", "cmath", "cstdint", "cstdio", "cstdlib", "math.h",
    "stdint.h", "stdio.h", "stdlib.h", "string", "vector",
)  # fmt: skip
_OPTIONS: Final = (
    "-std=c++17",
    "--use_fast_math",
    "-lineinfo",
    "-default-device",
    "--pre-include=prelude.h",
    "--no-cache",
)


def _shadows(kinds: Sequence[str]) -> Mapping[str, SourceFile]:
    """Headers of a host, as far as device code needs them: CUDA's own, or nothing."""
    texts = {
        name: f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
        for name in _STANDARD
    }
    texts |= dict.fromkeys(_EMPTY, "#pragma once\n")
    for shadow in (HERE / "shadow" / kind for kind in kinds):
        texts |= {str(path.relative_to(shadow)): path.read_text() for path in shadow.rglob("*") if path.is_file()}
    return {name: SourceFile.from_text(name, text) for name, text in texts.items()}


def compiled(name: str, folders: Sequence[Path], options: Sequence[str], *kinds: str) -> SourceFile:
    """The PTX of the text `name` beside this file. `folders`: of the headers that it includes, besides CUDA's;
    `kinds`: of headers of ours that stand before theirs."""
    source = SourceFile.from_text(name, (HERE / name).read_text())
    shadows = _shadows(("any", *kinds))
    texts = tuple((shadow.name, shadow.digest) for shadow in shadows.values())
    path = FOREIGN / "ptx" / f"{content_key(nvrtc_version(), source.digest, texts, (*map(str, folders), *options))}.ptx"
    with _alone():
        if not path.exists():
            includes = [
                *folders,
                HEADERS / "nvidia/cu13/include",
                HEADERS / "nvidia/cu13/include/cccl",
                system_include_dir(),
            ]
            output = run_nvrtc(name, source, shadows, (*options, *_OPTIONS, *(f"-I{folder}" for folder in includes)))
            assert output.ptx.strip("\0 \n"), output.log[:4000]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(output.ptx.rstrip("\0"))
    return SourceFile.from_text(f"{name}.ptx", path.read_text())


@cache
def machine(ptx: SourceFile, word: str) -> Machine:
    """The entry whose name contains `word`; places are lines of the PTX."""
    [entry] = re.findall(rf"\.entry (\w*{word}\w*)\(", ptx.text)
    return Machine(parse_program(ptx, entry), {})


@contextmanager
def _alone() -> Iterator[None]:
    """One compile at a time on this machine."""
    FOREIGN.mkdir(exist_ok=True)
    with (FOREIGN / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
