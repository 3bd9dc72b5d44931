"""Differences of random kernels: applying them gives the target, and they are empty only between equal texts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.backend.text.diff import apply, diff, render_diff
from cubridge.ir.nodes import (
    Assign,
    Call,
    Field,
    For,
    Function,
    If,
    IntLit,
    Kernel,
    Loop,
    Name,
    Row,
    Scalar,
    Stmt,
    Zero,
)
from cubridge.ir.printer import to_text
from cubridge.ir.types import DType
from tests.backend.text.expressions import random_expr
from tests.support.golden_texts import golden_kernel

RANDOM = st.integers(0, 10**9).map(Random)


def changed(kernel: Kernel, rnd: Random) -> Kernel:
    """A kernel with some of its parts edited at random."""
    regions = tuple(_function(r, rnd) if rnd.random() < 0.3 else r for r in kernel.regions)
    schedule = _function(kernel.schedule, rnd) if rnd.random() < 0.2 else kernel.schedule
    return replace(
        kernel,
        arch=rnd.choice(("sm_80", kernel.arch)),
        params=_fields(kernel.params, rnd),
        row_state=_fields(kernel.row_state, rnd),
        regions=regions,
        schedule=schedule,
        body=_body(kernel.body, rnd) if rnd.random() < 0.5 else kernel.body,
    )


def _function(function: Function, rnd: Random) -> Function:
    result = random_expr(rnd, DType.I32, 2) if rnd.random() < 0.3 else function.result
    return replace(function, body=_body(function.body, rnd), result=result)


def _fields(fields: tuple[Field, ...], rnd: Random) -> tuple[Field, ...]:
    kept = [f for f in fields if rnd.random() < 0.9]
    new = [
        Field(f"new_{n}", rnd.choice((Row(DType.F32), Scalar(DType.I32, IntLit(n)))), False)
        for n in range(rnd.randint(0, 2))
    ]
    rnd.shuffle(new)
    at = rnd.randint(0, len(kept))
    return (*kept[:at], *new, *kept[at:])


def _body(body: tuple[Stmt, ...], rnd: Random) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for statement in body:
        if rnd.random() < 0.15:
            out.append(_statement(rnd, 1))
        if rnd.random() < 0.85:
            out.append(_inside(statement, rnd) if rnd.random() < 0.3 else statement)
    return (*out, _statement(rnd, 1)) if rnd.random() < 0.3 else tuple(out)


def _inside(statement: Stmt, rnd: Random) -> Stmt:
    match statement:
        case If(_, then, orelse):
            return replace(statement, then=_body(then, rnd), orelse=_body(orelse, rnd))
        case For(_, _, _, body) | Loop(body):
            return replace(statement, body=_body(body, rnd))
        case _:
            return _statement(rnd, 0)


def _statement(rnd: Random, depth: int) -> Stmt:
    if depth and rnd.random() < 0.3:
        return If(Call("any_lane", (random_expr(rnd, DType.BOOL, 1),)), (_statement(rnd, 0),))
    target = Name(rnd.choice("xyz"))
    return rnd.choice((Assign(target, random_expr(rnd, DType.F32, 2)), Zero(target)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rnd=RANDOM)
def test_apply_of_diff_is_the_target(rnd: Random) -> None:
    base = golden_kernel("sm80")
    source, target = changed(base, rnd), changed(base, rnd)
    assert repr(apply(diff(source, target), source)) == repr(target)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rnd=RANDOM)
def test_a_diff_is_empty_only_between_equal_texts(rnd: Random) -> None:
    source = golden_kernel("sm80")
    target = changed(source, rnd)
    assert (render_diff(source, target) == "") == (to_text(source) == to_text(target))
