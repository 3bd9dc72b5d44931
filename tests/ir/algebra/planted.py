"""The algebra with a fault planted: its modules made anew from their source with one text replaced."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

_ROOM: Final = "cubridge.ir.algebra"
_ORDER: Final = ("exprs", "poly", "normal", "interval", "hosts", "facts", "signs")


@dataclass(frozen=True, slots=True)
class Plant:
    """In module `where`, `right` reads `wrong`."""

    where: str
    right: str
    wrong: str


def plants() -> list[Plant]:
    """The rows of `planted.toml`."""
    table = tomllib.loads(Path(__file__).with_name("planted.toml").read_text(encoding="utf-8"))
    return [Plant(where, row["right"], row["wrong"]) for where, rows in table.items() for row in rows]


def algebra(monkeypatch: pytest.MonkeyPatch, plant: Plant | None = None) -> dict[str, Any]:
    """The modules by name; with a plant, copies of them that see each other and nothing else does."""
    made: dict[str, Any] = {}
    for name in _ORDER:
        module = import_module(f"{_ROOM}.{name}")
        made[name] = module if plant is None else _copy(monkeypatch, module, plant if plant.where == name else None)
    return made


def _copy(monkeypatch: pytest.MonkeyPatch, module: ModuleType, plant: Plant | None) -> ModuleType:
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    if plant is not None:
        assert source.count(plant.right) == 1, (
            f"`{plant.right}` stands {source.count(plant.right)} times in {plant.where}"
        )
        source = source.replace(plant.right, plant.wrong)
    made = ModuleType(module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, made)
    exec(compile(source, module.__file__, "exec"), made.__dict__)
    return made
