"""The house: no file of the package imports itself through others, whether at the top, late, or for types alone."""

from __future__ import annotations

import ast
from pathlib import Path

import networkx
import pytest

PACKAGE = Path(__file__).parents[1] / "cubridge"


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
