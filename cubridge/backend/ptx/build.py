"""Builds the native library with the C++ compiler that the package index has (`ziglang`): `python -m cubridge.backend.ptx.build`.

setup.py calls this when a wheel or an editable install is made; the library carries the digest of its sources."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

NATIVE: Final = Path(__file__).resolve().parent / "native"
LIBRARY: Final = "libptx.so"
_HEADER: Final = "rows.h"
_FLAGS: Final = ("-std=c++20", "-O2", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra")
_BASELINES: Final = {"x86_64": ("x86_64-linux-gnu.2.17", "x86_64_v3"), "aarch64": ("aarch64-linux-gnu.2.17", "generic")}


def sources_digest(folder: Path = NATIVE) -> str:
    """Of every source by name and content."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".cpp", ".h"):
            digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def build_library(target: Path, folder: Path = NATIVE) -> None:
    """Compile the sources in `folder` into the library `target`, which appears whole or not at all."""
    triple, cpu = _BASELINES[platform.machine()]
    compiler = [sys.executable, "-m", "ziglang", "c++", "-target", triple, f"-mcpu={cpu}"]
    compile_ = [*compiler, *_FLAGS, f'-DPTX_DIGEST="{sources_digest(folder)}"']
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        header = Path(made, "headers.pch")  # read once, not by every unit
        # It names files of the compiler: what zig kept of another environment's build would name files that are gone.
        fresh = os.environ | dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(Path(made, "cache")))
        command = [*compile_, "-x", "c++-header", str(folder / _HEADER), "-o", str(header)]
        subprocess.run(command, check=True, env=fresh)
        units = sorted(folder.glob("*.cpp"))
        objects = [Path(made, unit.stem + ".o") for unit in units]

        def compile_unit(unit: Path, result: Path) -> None:
            subprocess.run([*compile_, "-include-pch", str(header), "-c", str(unit), "-o", str(result)], check=True)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(compile_unit, units, objects))
        linked = Path(made, LIBRARY)
        subprocess.run([*compiler, "-shared", "-s", *map(str, objects), "-o", str(linked)], check=True)
        staged = target.with_suffix(".new")
        staged.write_bytes(linked.read_bytes())
        staged.chmod(0o755)
        os.replace(staged, target)


if __name__ == "__main__":
    build_library(NATIVE.parent / LIBRARY)
