"""Kernels of our own writing in no dialect of ours, and how tests lift them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from cubridge.driver.foreign.lift import ForeignLift, lift_foreign

FOLDER: Final = Path(__file__).parent / "kernels"


@cache
def lifted(name: str) -> ForeignLift:
    return lift_foreign(FOLDER / f"{name}.cu", FOLDER / f"{name}.toml")


SHAPES: Final = {"peeled": "1,1,1,32,96"}


def changed(name: str, old: str, new: str, folder: Path) -> Path:
    """The kernel with one edit, and a contract for one shape beside it."""
    text, contract = ((FOLDER / f"{name}{suffix}").read_text() for suffix in (".cu", ".toml"))
    assert text.count(old) == 1, f"{text.count(old)} times"
    path = folder / f"{name}.cu"
    path.write_text(text.replace(old, new))
    head, _, rest = contract.partition("shapes = ")
    path.with_suffix(".toml").write_text(
        head + f'shapes = ["{SHAPES.get(name, "1,1,1,64,53")}"]' + rest[rest.index("\n") :]
    )
    return path
