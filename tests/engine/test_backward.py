"""Backward kernels under static rules and in the engines: right as they are, and found out where they are broken."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from cubridge.derive.gradient import derive
from cubridge.engine.core.sync import IN_TURN, Policy
from cubridge.engine.order.engine import check_order
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.spec import Shape
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from cubridge.judge.gradient_runs import Pass, run_pass
from cubridge.verify.verifier import verify
from tests.support.backward import BACKWARD, PAIRS, causal, lifted_backward

Edit = tuple[str, str]
FAULTS: Final = tomllib.loads(Path(__file__).with_name("backward_faults.toml").read_text(encoding="utf-8"))["fault"]
SMALL: Final = Shape(1, 4, 2, 130, 150, 64)


def edited(name: str, *edits: Edit) -> Kernel:
    text = str(lifted_backward(name, 64))
    for old, new in edits:
        lines, part = text.splitlines(), old.splitlines()
        bare = [line.strip() for line in lines]
        at = next(x for x in range(len(lines)) if bare[x : x + len(part)] == part)
        indent = lines[at].removesuffix(bare[at])
        lines[at : at + len(part)] = [indent + line for line in new.splitlines()]
        text = "\n".join((*lines, ""))
    return parse(text)


def broken(fault: dict[str, str]) -> Kernel:
    return edited(fault["kernel"], (fault["old"], fault["new"]))


def faults(by: str) -> list[object]:
    return [pytest.param(f, id=f["name"]) for f in FAULTS if f["by"] == by]


@pytest.mark.parametrize("name", BACKWARD)
def test_they_are_well_formed(name: str) -> None:
    for head_dim in (64, 128):
        kernel = lifted_backward(name, head_dim)
        assert parse(str(kernel)) == kernel
        assert verify(kernel) == ()
        assert check_order(kernel) == ()


@pytest.mark.parametrize("fault", faults("rule"))
def test_static_rules_find(fault: dict[str, str]) -> None:
    found = verify(broken(fault))
    assert fault["code"] in {d.code for d in found}, [d.message for d in found]


@pytest.mark.parametrize("fault", faults("order"))
def test_the_order_engine_finds(fault: dict[str, str]) -> None:
    found = check_order(broken(fault))
    assert fault["code"] in {d.code for d in found}, [d.message for d in found]


# ---- values ----------------------------------------------------------------------------------------------------------

MASKED: Final[tuple[Edit, ...]] = (
    ("s = where(j < Lk, s, -inf)", "s = where((j < Lk) & (j <= i + (Lk - Lq)), s, -inf)"),
    ("whole = tile.kv_start + BLOCK_KV <= Lk", "whole = False"),
)


@cache
def problem(kind: str, shape: Shape) -> GradientProblem:
    attention = causal()
    return make_gradient_problem(attention, derive(attention.spec), kind, shape, 0, "bf16", {})


def accepted(p: GradientProblem, fault: dict[str, str] | None = None, policy: Policy = IN_TURN) -> bool:
    """Are the gradients of causal attention right, with a fault in one of the kernels."""
    edits: dict[str, list[Edit]] = {name: [*MASKED] if name == PAIRS else [] for name in BACKWARD}
    if fault is not None:
        edits[fault["kernel"]].append((fault["old"], fault["new"]))
    return p.accepts(run_pass(Pass(*(edited(n, *e) for n, e in edits.items())), causal(), p, policy))


def test_gradients_are_right() -> None:
    assert accepted(problem("index-coded V", SMALL))
    late = Policy(descending=True, quantum=1, land_at_once=True)
    assert accepted(problem("large scores", Shape(2, 1, 1, 150, 66, 64)), policy=late)


@pytest.mark.parametrize("fault", faults("values"))
def test_wrong_gradients_are_told_apart(fault: dict[str, str]) -> None:
    assert not accepted(problem("index-coded V", SMALL), fault)


@pytest.mark.parametrize("fault", faults("stops"))
def test_the_value_engine_cannot_go_on(fault: dict[str, str]) -> None:
    with pytest.raises(CuError) as error:
        accepted(problem("index-coded V", SMALL), fault)
    assert error.value.diagnostics[0].code == fault["code"]
