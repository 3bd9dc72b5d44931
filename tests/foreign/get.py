"""Fetches the kernels of others that tests/foreign runs, and the headers that they need: `python -m tests.foreign.get`."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.foreign.sources import CUTLASS, FLASH_ATTENTION_2, FOREIGN, HEADERS, RELEASE

_WANTED = ("csrc/flash_attn/src/", "csrc/cutlass/include/")


def get_flash_attention_2() -> None:
    """From the source distribution. To name it, pip runs its setup.py, which imports what is put into `tools`."""
    tools = FOREIGN / "tools"
    _pip("install", "-q", "--upgrade", "--target", str(tools), "packaging", "psutil", "ninja", "setuptools", "wheel")
    with tempfile.TemporaryDirectory() as folder:
        options = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-q", "-d", folder)
        variables = {"FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE", "PYTHONPATH": str(tools)}
        _pip("download", *options, f"flash-attn=={RELEASE}", **variables)
        [archive] = Path(folder).iterdir()
        with tarfile.open(archive) as tar:
            top = f"{FLASH_ATTENTION_2.name}/"
            wanted = [m for m in tar.getmembers() if m.name.removeprefix(top).startswith(_WANTED)]
            tar.extractall(FOREIGN, wanted, filter="data")


def get_headers() -> None:
    """The C++ library of CUDA, and the headers that the runtime's include."""
    packages = ("nvidia-cuda-cccl>=13.0,<13.1", "nvidia-cuda-crt>=13.0,<13.1")
    _pip("install", "-q", "--no-deps", "--upgrade", "--target", str(HEADERS), *packages)


def _pip(*arguments: str, **variables: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, env=os.environ | variables)


if __name__ == "__main__":
    FOREIGN.mkdir(exist_ok=True)
    if not HEADERS.is_dir():
        get_headers()
    if not CUTLASS.is_dir():
        get_flash_attention_2()
