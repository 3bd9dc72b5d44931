"""Shared stepping: values per thread, masks, rings, jumps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from cubridge.engine.core.code import METHODS, compile_body
from cubridge.engine.core.expressions import compile_expr, compile_operand
from cubridge.engine.core.operands import Lanes, Ring, lanes_or_one
from cubridge.engine.core.sync import Agent, MBarrier
from cubridge.engine.order.run import OrderRun
from cubridge.engine.values.run import ValueRun
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import OPS, Assign, Break, Gemm, RegionCall, RegisterTile
from cubridge.ir.parser import parse_expr
from tests.support.golden_texts import golden_kernel


def agent(**names: object) -> Agent:
    """Four threads with these names."""
    made = Agent(SimpleNamespace(decide_int=lambda value, node: value), "four threads", 0, 4)  # pyright: ignore
    made.names |= {"thread": Lanes(range(4)), **names}
    return made


@pytest.mark.parametrize(
    "text,expected",
    [
        ("2 + 3 * x", 17),
        ("x // 2 % 2 == 0", True),
        ("-x", -5),
        ("~(x > 4)", False),
        ("x ^ 1", 4),
        ("ring.slot + ring.phase", 0),
        ("(x > 4) & (x < 6)", True),
    ],
)
def test_expressions(text: str, expected: object) -> None:
    assert compile_expr(parse_expr(text))(agent(x=5, ring=Ring(2))) == expected


def test_values_per_thread() -> None:
    here = agent(x=2)
    value = compile_expr(parse_expr("thread % 2 == 0"))(here)
    assert isinstance(value, Lanes)
    assert value.values == (True, False, True, False)
    assert value.mask == 0b0101
    assert compile_expr(parse_expr("thread < 4"))(here) is True
    assert compile_expr(parse_expr("thread * 0 + x"))(here) == 2
    assert lanes_or_one([1, 1]) == 1


@pytest.mark.parametrize("text", ["y", "x / 0", "x.slot", "KeySequence(lo=1)", "q[1]"])
def test_expressions_without_a_value(text: str) -> None:
    with pytest.raises(CuError) as error:
        compile_expr(parse_expr(text))(agent(x=1))
    assert error.value.diagnostics[0].code == "CU301"


def test_operands_name_slots() -> None:
    operand = compile_operand(parse_expr("smem.k[x ^ 1]"))
    ref = operand(agent(x=0))
    assert (ref.key, str(ref)) == (("k", 1), "smem.k[1]")
    assert operand(agent(x=0)) is ref


def test_a_ring_flips_its_phase_when_the_slot_wraps() -> None:
    ring = Ring(2)
    seen = []
    for _ in range(5):
        seen.append((ring.slot, ring.phase))
        ring.next()
    assert seen == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]


@pytest.mark.parametrize("engine", [OrderRun, ValueRun])
def test_an_engine_steps_every_statement(engine: type) -> None:
    assert set(METHODS) == {*OPS.values(), Assign, Gemm, RegionCall, RegisterTile}
    assert [m for m in METHODS.values() if not callable(getattr(engine, m, None))] == []


def test_jumps_lead_into_the_code() -> None:
    code = compile_body(golden_kernel("sm90a"), OrderRun)
    assert len(code) > 143
    assert all(0 <= at.target <= len(code) for at in code)


def test_what_barriers_lack() -> None:
    barrier = MBarrier("b")
    barrier.arrivals = barrier.pending = 2
    barrier.bytes_due = 64
    assert barrier.lacks() == "2 of 2 arrivals and 64 bytes"
    barrier.pending = barrier.bytes_due = 0
    assert barrier.lacks() == "a whole phase"


def test_break_outside_a_loop_is_refused() -> None:
    kernel = replace(golden_kernel("sm80"), body=(Break(),))
    with pytest.raises(CuError) as error:
        compile_body(kernel, OrderRun)
    assert error.value.diagnostics[0].code == "CU301"
