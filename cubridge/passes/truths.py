"""Captured booleans, which kernels have as integers."""

from __future__ import annotations

from dataclasses import replace

from cubridge.ir.nodes import Binary, Expr, Index, IntLit, Name, Node
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import map_children


def with_truths(expr: Expr, spec: AttentionSpec) -> Expr:
    """An expression of `spec` with its captured booleans compared with 0."""
    truths = {c.name for c in spec.captures if c.dtype == "bool"}

    def change(node: Node) -> Node:
        match node:
            case Index(Name(name), indices) if name in truths:
                load = replace(node, indices=tuple(change(x) for x in indices))
                return Binary("!=", load, IntLit(0), span=node.span)
            case Name(name) if name in truths:
                return Binary("!=", node, IntLit(0), span=node.span)
            case _:
                return map_children(node, change)

    result = change(expr)
    assert isinstance(result, Expr)
    return result
