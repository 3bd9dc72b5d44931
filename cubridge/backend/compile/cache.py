"""Compiled kernels on disk, by the content that made them. A damaged entry is compiled again, never used."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from cubridge.backend.compile.log import Resources


@dataclass(frozen=True, slots=True)
class CacheEntry:
    cubin: bytes
    log: str
    resources: dict[str, Resources]


def default_cache_dir() -> Path:
    """`$CUBRIDGE_CACHE`, else a folder of the user's cache."""
    named = os.environ.get("CUBRIDGE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cubridge"


def content_key(*parts: object) -> str:
    """One hash of all parts; strings of different splits never collide."""
    digest = sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def read_entry(folder: Path, key: str) -> CacheEntry | None:
    """None if there is none, or if it is not what was written."""
    try:
        cubin = (folder / f"{key}.cubin").read_bytes()
        described = json.loads((folder / f"{key}.json").read_text())
        if described["sha256"] != sha256(cubin).hexdigest():
            return None
        resources = {name: Resources(**r) for name, r in described["resources"].items()}
        return CacheEntry(cubin, str(described["log"]), resources)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_entry(folder: Path, key: str, entry: CacheEntry) -> None:
    """Each file appears whole or not at all. Where the folder cannot be written, the next run compiles again."""
    described = {
        "sha256": sha256(entry.cubin).hexdigest(),
        "log": entry.log,
        "resources": {name: asdict(r) for name, r in entry.resources.items()},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(folder / f"{key}.cubin", entry.cubin)
        _write_whole(folder / f"{key}.json", json.dumps(described, indent=1).encode())
    except OSError:
        return


def read_ptx(folder: Path, key: str) -> bytes | None:
    """None if there is none, or if it is not what was written."""
    try:
        digest, ptx = (folder / f"{key}.ptx").read_bytes().split(b"\n", 1)
    except (OSError, ValueError):
        return None
    return ptx if digest.decode("latin-1") == sha256(ptx).hexdigest() else None


def write_ptx(folder: Path, key: str, ptx: bytes) -> None:
    """As `write_entry`; its digest is the first line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(folder / f"{key}.ptx", sha256(ptx).hexdigest().encode() + b"\n" + ptx)
    except OSError:
        return


def _write_whole(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)
