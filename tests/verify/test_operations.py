"""The rows of operations: what the rest of CuIR derives from them is whole."""

from __future__ import annotations

import pytest

from cubridge.ir import nodes
from cubridge.ir.nodes import OPS, Op
from cubridge.ir.walk import field_names
from cubridge.verify.body import OPERANDS, TILE_RULES


@pytest.mark.parametrize("cls", OPS.values())
def test_a_row_names_its_own_fields(cls: type[Op]) -> None:
    assert {*cls.effect.writes, *cls.keywords} <= {*field_names(cls)}


@pytest.mark.parametrize("cls", OPS.values())
def test_every_operand_has_a_rule(cls: type[Op]) -> None:
    assert cls in TILE_RULES or {*field_names(cls)} <= OPERANDS.keys()


def test_every_rule_has_an_operand() -> None:
    assert {name for cls in OPS.values() for name in field_names(cls)} >= OPERANDS.keys()


def test_no_operation_is_left_out() -> None:
    classes = (c for c in vars(nodes).values() if isinstance(c, type) and issubclass(c, Op) and c is not Op)
    assert {*classes} == {*OPS.values()}
