"""What the command line reads and writes. Output goes to its place only when it is complete."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import refuse_odd, replace_file
from cubridge.ir.source import SourceFile


def open_streams() -> None:
    """Stand in for standard streams that were closed before we started, lest files that are opened later take their numbers:
    reading stdin and writing stdout fail, and what stderr is told is lost."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r", encoding="utf-8")
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def read_source(path: str) -> SourceFile:
    """A file, or stdin for `-`. Errors: OSError."""
    if path == "-":
        try:
            return SourceFile("<stdin>", sys.stdin.buffer.read())
        except OSError as error:
            raise OSError(error.errno, error.strerror, "<stdin>") from error
    return SourceFile.read(Path(path))


def show(text: str) -> None:
    """A line or more on stdout. Errors: as `write_output`."""
    write_output(f"{text}\n", None)


def write_output(text: str | bytes, path: Path | None) -> None:
    """To stdout, to a file that is replaced in one step, or into a device or FIFO that is there. Errors: OSError."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    if path is None:
        _write_stdout(data)
    elif _takes_writes(path):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb", buffering=0) as stream:
            stream.write(data)
    else:
        replace_file(path, data)


def _write_stdout(data: bytes) -> None:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        # what is left in the buffer would fail once more when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "<stdout>") from error


def _takes_writes(path: Path) -> bool:
    """A device, FIFO or socket, or a name of the system such as /dev/stdout: replacing it would destroy it."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(mode):
        folder = path.parent.resolve()
        return folder == Path("/dev") or folder.is_relative_to("/proc")
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def output_folder(path: Path, names: Sequence[str], appended: Sequence[str] = ()) -> Path:
    """The folder, made if it is not there, and writable. `names`: of the files that will be replaced in it; `appended`: of those
    that go on. Errors: CU112."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        message = f"the output folder {path} cannot be written: {error.strerror}"
        raise CuError(Diagnostic("CU112", message, help="give a folder of your own with -o")) from error
    try:
        refuse_odd(path, (*names, *appended))
    except OSError as error:
        raise _in_the_way(f"{error.filename} {error.strerror}") from error
    for name in appended:
        if (path / name).is_symlink():
            raise _in_the_way(f"{path / name} is a link, and would be written to where it points")
    return path


def _in_the_way(message: str) -> CuError:
    return CuError(Diagnostic("CU112", message, help="move it away, or give another folder with -o"))


def progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
