"""Children, rewriting, substitution and free names."""

from __future__ import annotations

from dataclasses import fields

import pytest

from cubridge.ir import nodes
from cubridge.ir.nodes import Binary, IntLit, Name, Node
from cubridge.ir.parser import parse_expr
from cubridge.ir.walk import children, field_names, free_names, map_children, rewrite, substitute, walk
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel


def test_field_names_cover_every_field_but_the_place() -> None:
    for cls in vars(nodes).values():
        if isinstance(cls, type) and issubclass(cls, Node):
            assert set(field_names(cls)) == {f.name for f in fields(cls)} - {"span"}


def test_children_come_in_text_order() -> None:
    expr = parse_expr("where(x < y, p.a[i, j], -z)")
    assert [c.span.text for c in children(expr)] == ["x < y", "p.a[i, j]", "-z"]
    assert [n.id for n in walk(expr) if isinstance(n, Name)] == ["x", "y", "p", "i", "j", "z"]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_map_that_changes_nothing_gives_the_same_object(name: str) -> None:
    kernel = golden_kernel(name)
    assert map_children(kernel, lambda child: child) is kernel
    assert rewrite(kernel, lambda child: child) is kernel


def test_rewrite_goes_bottom_up_and_keeps_the_rest() -> None:
    def fold(node: Node) -> Node:
        match node:
            case Binary("+", IntLit(a), IntLit(b)):
                return IntLit(a + b, span=node.span)
            case _:
                return node

    old = parse_expr("x * (1 + 2 + 3) + y")
    new = rewrite(old, fold)
    assert new == parse_expr("x * 6 + y")
    assert isinstance(old, Binary) and isinstance(new, Binary)
    assert new.right is old.right
    assert new.span == old.span


def test_substitution_is_simultaneous() -> None:
    swapped = substitute(parse_expr("x - y * p.x"), {"x": Name("y"), "y": Name("x")})
    assert swapped == parse_expr("y - x * p.x")


def test_free_names_leave_out_scopes_and_constants() -> None:
    assert free_names(parse_expr("where(j <= i + Lq, s * p.a[tile.h], -inf)")) == {"i", "j", "Lq", "s"}
