"""Files that are written whole or not at all. What lies at a name is replaced, never followed: a link there may point anywhere."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from errno import EEXIST
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """In one step. Errors: OSError that names the path."""
    refuse_odd(path.parent, (path.name,))
    temporary = _written(path, data)
    try:
        _rename(temporary, path, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replace_files(folder: Path, files: Mapping[str, bytes], gone: Iterable[str] = ()) -> None:
    """All of `files`, and nothing left at the names `gone`; or, where that fails, the folder as it was.
    Errors: OSError that names the path."""
    names = (*files, *gone)
    refuse_odd(folder, names)
    fresh: dict[str, Path] = {}
    old: dict[str, Path] = {}
    done: list[str] = []
    try:
        for name, data in files.items():
            fresh[name] = _written(folder / name, data)
        for name in names:
            if os.path.lexists(folder / name):
                aside = _unused(folder)
                _rename(folder / name, aside, folder / name)
                old[name] = aside
            if name in fresh:
                _rename(fresh[name], folder / name, folder / name)
                done.append(name)
    except BaseException:
        for name in done:
            (folder / name).unlink()
        for name, aside in old.items():
            os.rename(aside, folder / name)
        for name in fresh.keys() - set(done):
            fresh[name].unlink(missing_ok=True)
        raise
    for aside in old.values():
        aside.unlink()


def refuse_odd(folder: Path, names: Iterable[str]) -> None:
    """Errors: FileExistsError where a name is there and is neither a file nor a link: a folder, a FIFO, a device."""
    for name in names:
        path = folder / name
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                raise FileExistsError(EEXIST, "is there and is no file that could be replaced", str(path))


def _written(path: Path, data: bytes) -> Path:
    """A new file beside `path`. Errors: OSError that names `path`."""
    temporary = _unused(path.parent)
    with _naming(path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
        except BaseException:
            temporary.unlink()
            raise
    return temporary


def _rename(source: Path, target: Path, named: Path) -> None:
    with _naming(named):
        os.rename(source, target)


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """The user knows nothing of temporary names."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _unused(folder: Path) -> Path:
    return folder / f".cuirc-{secrets.token_hex(8)}"
