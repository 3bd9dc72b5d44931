"""What the command line reads and writes. Output goes to its place only when it is complete."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile


def read_source(path: str) -> SourceFile:
    """A file, or stdin for `-`. Errors: OSError."""
    if path == "-":
        return SourceFile("<stdin>", sys.stdin.buffer.read())
    return SourceFile.read(Path(path))


def write_output(text: str | bytes, path: Path | None) -> None:
    """To stdout, or to a file that is replaced in one step. Errors: OSError."""
    data = text.encode() if isinstance(text, str) else text
    if path is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def output_folder(path: Path) -> Path:
    """The folder, made if it is not there, and writable. Errors: CU112."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        message = f"the output folder {path} cannot be written: {error.strerror}"
        raise CuError(Diagnostic("CU112", message, help="give a folder of your own with -o")) from error


def progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
