"""Kernels up to the names of their locals."""

from __future__ import annotations

from dataclasses import replace

from cubridge.ir.nodes import Assign, For, Function, Kernel, Name, Node, RegisterTile
from cubridge.ir.walk import map_children, walk

FIXED = frozenset(("tile", "row", "keys"))


def normal(kernel: Kernel) -> Kernel:
    """The kernel with the locals of each function and of its body numbered in the order of the text."""
    return replace(
        kernel,
        regions=tuple(_numbered_function(r) for r in kernel.regions),
        schedule=_numbered_function(kernel.schedule),
        body=tuple(_numbered(Function("", (), kernel.body)).body),
    )


def _numbered_function(function: Function) -> Function:
    return _numbered(function)


def _numbered(function: Function) -> Function:
    names: dict[str, str] = {}
    for node in walk(function):
        for name in _declared(node):
            if name not in FIXED and name not in function.params:
                names.setdefault(name, f"local_{len(names)}")
    result = _renamed(function, names)
    assert isinstance(result, Function)
    return result


def _declared(node: Node) -> tuple[str, ...]:
    match node:
        case Assign(Name(name)) | RegisterTile(name) | For(name):
            return (name,)
        case _:
            return ()


def _renamed(node: Node, names: dict[str, str]) -> Node:
    node = map_children(node, lambda child: _renamed(child, names))
    match node:
        case Name(name) if name in names:
            return replace(node, id=names[name])
        case For(var) if var in names:
            return replace(node, var=names[var])
        case RegisterTile(name) if name in names:
            return replace(node, name=names[name])
        case _:
            return node
