"""Files are replaced whole, never followed; a group of them all or none."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cubridge.ir.files import replace_file, replace_files


@contextmanager
def full_after(size: int) -> Generator[None]:
    """No file can grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_all_are_replaced(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"as before")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").symlink_to(outside)
    (folder / "b").write_bytes(b"old")
    (folder / "c").symlink_to(outside)
    (folder / "other").write_bytes(b"other")
    replace_files(folder, {"a": b"1", "b": b"2", "new": b"3"}, gone=("c", "none"))
    assert contents(folder) == {"a": b"1", "b": b"2", "new": b"3", "other": b"other"}
    assert not (folder / "a").is_symlink()
    assert outside.read_bytes() == b"as before"


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    replace_files(tmp_path, {"a": b"old", "c": b"old"})
    with full_after(1000), pytest.raises(OSError, match="File too large") as error:
        replace_files(tmp_path, {"a": b"new", "b": bytes(2000)}, gone=("c",))
    assert error.value.filename == str(tmp_path / "b")
    with full_after(1000), pytest.raises(OSError, match="File too large") as error:
        replace_file(tmp_path / "a", bytes(2000))
    assert error.value.filename == str(tmp_path / "a")
    assert contents(tmp_path) == {"a": b"old", "c": b"old"}


@dataclass(frozen=True)
class Disturbed(Mapping[str, bytes]):
    """Files of which the temporary of the second vanishes while the third is written."""

    folder: Path
    names: tuple[str, str, str]

    def __getitem__(self, name: str) -> bytes:
        if name == self.names[2]:
            written = {p.read_bytes(): p for p in self.folder.iterdir()}
            written[self.names[1].encode()].unlink()
        return name.encode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def test_a_move_that_fails_puts_the_others_back(tmp_path: Path) -> None:
    before = {"a": b"old a", "b": b"old b", "gone": b"old"}
    replace_files(tmp_path, before)
    with pytest.raises(FileNotFoundError) as error:
        replace_files(tmp_path, Disturbed(tmp_path, ("new", "b", "a")), gone=("gone",))
    assert error.value.filename == str(tmp_path / "b")
    assert contents(tmp_path) == before
    with pytest.raises(FileNotFoundError):
        replace_files(tmp_path, Disturbed(tmp_path, ("a", "new", "b")), gone=("gone",))
    assert contents(tmp_path) == before


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("folder", "fifo"):
        with pytest.raises(FileExistsError, match=name):
            replace_file(tmp_path / name, b"new")
        with pytest.raises(FileExistsError, match=name):
            replace_files(tmp_path, {"a": b"new", name: b"new"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "folder"]
