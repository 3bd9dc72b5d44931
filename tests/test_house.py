"""The house: no file of the package imports itself through others, whether at the top, late, or for types alone; and its map in
CONTRIBUTING.md is of this house."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "cubridge"


def modules(package: Path) -> dict[str, Path]:
    """The files of a package by the names that imports give them."""
    found = {".".join(p.relative_to(package.parent).with_suffix("").parts): p for p in package.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imports(package: Path) -> networkx.DiGraph[str]:
    """Which files import which."""
    files = modules(package)
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(files)
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            graph.add_edges_from((name, other) for other in _named(node, files))
    return graph


def _named(node: ast.AST, files: dict[str, Path]) -> list[str]:
    match node:
        case ast.Import():
            return [a.name for a in node.names if a.name in files]
        case ast.ImportFrom(module=str(module), level=0):
            among = [f"{module}.{a.name}" for a in node.names]
            return [m if m in files else module for m in among if m in files or module in files]
        case ast.ImportFrom():
            raise AssertionError("imports name modules in full")
        case _:
            return []


def circles(package: Path) -> list[list[str]]:
    components = networkx.strongly_connected_components(imports(package))
    return sorted(sorted(c) for c in components if len(c) > 1)


def test_no_circle() -> None:
    assert circles(PACKAGE) == []


PLANTED = {
    "at the top": "from house.kitchen import table\n",
    "late": "def eat():\n    from house import kitchen\n",
    "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.kitchen\n",
}


@pytest.mark.parametrize("how", PLANTED)
def test_a_planted_circle_is_found(tmp_path: Path, how: str) -> None:
    house = tmp_path / "house"
    house.mkdir()
    texts = {"__init__": "", "garden": "", "kitchen": "import house.cellar\n", "cellar": PLANTED[how]}
    for name, text in texts.items():
        (house / f"{name}.py").write_text(text, encoding="utf-8")
    assert circles(house) == [["house.cellar", "house.kitchen"]]
    (house / "cellar.py").write_text("from house import garden\n", encoding="utf-8")
    assert circles(house) == []


# ---- the map ---------------------------------------------------------------------------------------------------------


def rooms() -> set[str]:
    """Packages by their path below the package itself; of those in `engine` and `llm` the map says what it wants to."""
    folders = {p.parent.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("__init__.py")} - {"."}
    return {f for f in folders if not f.startswith(("engine/", "llm/")) and f.count("/") < 2} | {"kernels"}


def mapped(text: str) -> set[str]:
    """The rooms of a map: one a line, those inside another below it and further in."""
    found: set[str] = set()
    around = ""
    for indent, name in re.findall(r"^    ( *)(\w+) {2,}\S", text, re.MULTILINE):
        around = around if indent else name
        found.add(f"{around}/{name}" if indent else name)
    return found


def named_files(text: str) -> set[str]:
    return set(re.findall(r"`([\w/]+\.(?:py|toml|md|cuh))`", text))


def strangers(text: str) -> set[str]:
    """Files that a text names and that are not there, by the ends of their paths."""
    names = {
        p.relative_to(ROOT).as_posix() for d in ("cubridge", "tests", "bench", "docs") for p in (ROOT / d).rglob("*.*")
    }
    names |= {p.name for p in ROOT.iterdir()}
    return {f for f in named_files(text) if not any(n == f or n.endswith(f"/{f}") for n in names)}


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_map_has_every_room() -> None:
    assert mapped(CONTRIBUTING.split("## The way")[0]) == rooms()


def test_every_file_that_is_named_is_there() -> None:
    assert len(named_files(CONTRIBUTING)) > 40
    assert strangers(CONTRIBUTING) == set()


def test_a_planted_room_or_file_is_found() -> None:
    assert mapped("    cellar      wine\n      shelf       bottles\n") == {"cellar", "cellar/shelf"}
    assert strangers("open `passes/mask.py`, then `passes/no_such_pass.py`") == {"passes/no_such_pass.py"}
