"""What NVRTC makes of a kernel's text, loaded; by content, on disk and in this process."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from cubridge.backend.compile.cache import content_key, default_cache_dir
from cubridge.backend.compile.headers import include_closure, uses_system_headers
from cubridge.backend.compile.log import messages_of
from cubridge.backend.compile.nvrtc import nvrtc_version, run_nvrtc, system_include_dir
from cubridge.backend.launch.device import KernelText
from cubridge.backend.ptx.machine import Machine
from cubridge.backend.ptx.parser import parse_program
from cubridge.ir.contract import Instantiation
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile

_NAME: Final = "kernel.cu"
_OPTIONS: Final = ("--std=c++17", "--no-source-include", "--no-cache", "-lineinfo")
_MOST_PROGRAMS: Final = 64


def machine_of(text: KernelText, form: Instantiation) -> tuple[Machine, str]:
    """The machine of a text's form, with the hash of all that it was made from.
    Errors: CU805 without NVRTC; CU831 a text that it refuses; CU830, CU838, CU839 as Machine."""
    headers = include_closure(text.source, text.include_dirs)
    texts = tuple((name, header.digest) for name, header in headers.items())
    options = _options(text, form, headers)
    key = content_key("ptx", nvrtc_version(), text.source.digest, texts, options, text.contract.entry)
    return _loaded(_Text(key, text.source, tuple(headers.items()), options, text.contract.entry)), key


@dataclass(frozen=True, slots=True)
class _Text:
    """What a machine is made of; equal by its key."""

    key: str
    source: SourceFile = field(compare=False)
    headers: tuple[tuple[str, SourceFile], ...] = field(compare=False)
    options: tuple[str, ...] = field(compare=False)
    entry: str = field(compare=False)

    @property
    def path(self) -> Path:
        return default_cache_dir() / "ptx" / f"{self.key}.ptx"


@lru_cache(_MOST_PROGRAMS)
def _loaded(text: _Text) -> Machine:
    ptx = _kept(text.path)
    if ptx is None:
        ptx = _compile(text)
        _keep(text.path, ptx)
    files = {_NAME: text.source, **dict(text.headers)}
    return Machine(parse_program(SourceFile("kernel.ptx", ptx), text.entry), files)


def _compile(text: _Text) -> bytes:
    headers = dict(text.headers)
    output = run_nvrtc(_NAME, text.source, headers, text.options)
    errors = [m for m in messages_of(output.log, {_NAME: text.source, **headers}, {}) if m.severity == "error"]
    ptx = output.ptx.rstrip("\0")
    if errors or not ptx.strip():
        found = errors or [Diagnostic("CU806", f"{text.source.name} does not compile: {output.log.strip()[:500]}")]
        raise CuError(*(Diagnostic("CU831", m.message, m.span, m.notes, m.help) for m in found))
    return ptx.encode()


def _options(text: KernelText, form: Instantiation, headers: Mapping[str, SourceFile]) -> tuple[str, ...]:
    arch = text.contract.arch.replace("sm_", "compute_")
    options = (f"--gpu-architecture={arch}", *_OPTIONS, *form.definitions)
    if uses_system_headers((text.source, *headers.values())) and (system := system_include_dir()):
        return (*options, f"--include-path={system}")
    return options


# ---- on disk: the digest of the text, then the text. A damaged file is made again, never used. ----


def _kept(path: Path) -> bytes | None:
    try:
        digest, ptx = path.read_bytes().split(b"\n", 1)
    except (OSError, ValueError):
        return None
    return ptx if digest.decode("latin-1") == hashlib.sha256(ptx).hexdigest() else None


def _keep(path: Path, ptx: bytes) -> None:
    """Whole or not at all. Where the folder cannot be written, the next run compiles again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(ptx).hexdigest().encode() + b"\n" + ptx)
        os.replace(file.name, path)
    except OSError:
        return
