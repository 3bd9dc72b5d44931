"""The order engine on both kernels, and on kernels that each lack one statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cubridge.ir.nodes import For, If, Loop, Stmt
from cubridge.ir.order import check_order
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel


def without_one(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Each statement at any depth, with the body that lacks it."""
    for x, stmt in enumerate(body):
        before, after = body[:x], body[x + 1 :]
        yield stmt, before + after
        for name in ("then", "orelse") if isinstance(stmt, If) else ("body",) if isinstance(stmt, For | Loop) else ():
            for inner, changed in without_one(getattr(stmt, name)):
                yield inner, (*before, replace(stmt, **{name: changed}), *after)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_kernels_have_no_order_fault(name: str) -> None:
    assert check_order(golden_kernel(name)) == ()


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_deleting_any_statement_is_found(name: str) -> None:
    kernel = golden_kernel(name)
    missed = [s.span.text for s, body in without_one(kernel.body) if not check_order(replace(kernel, body=body))]
    assert missed == []
