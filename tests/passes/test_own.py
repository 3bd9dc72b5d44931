"""Passes from outside: what may be registered, what their options may be, where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import ClassVar, Literal

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Expr, Kernel
from cubridge.passes import own
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.own import all_passes, register_pass
from cubridge.passes.pipeline import parse_text, parse_toml
from cubridge.passes.registry import PASSES
from cubridge.passes.runner import PassFault, run_pipeline
from tests.support.golden_texts import golden_kernel


@dataclass(frozen=True)
class Rename(Pass):
    """Rename the kernel."""

    name: ClassVar[str] = "rename"
    to: str
    times: int = 1
    rate: float = 0.5
    loud: bool = False
    how: Literal["up", "down"] = "up"

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError("`times` is from 1")

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        return replace(kernel, name=self.to * self.times)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is registered, and no package is installed that brings a pass."""
    monkeypatch.setattr(own, "_registered", {})
    monkeypatch.setattr(own, "entry_points", lambda group: ())
    own._load_installed.cache_clear()
    yield
    own._load_installed.cache_clear()


def test_a_registered_pass_runs_by_its_name() -> None:
    assert register_pass(Rename) is Rename
    pipeline = parse_text('rename{to="x",times="2"}', all_passes())
    assert run_pipeline(golden_kernel("sm80"), pipeline).name == "xx"
    assert all_passes()["rename"] is Rename and all_passes().keys() > PASSES.keys()


def test_replies_of_models_name_built_in_passes_alone() -> None:
    register_pass(Rename)
    with pytest.raises(CuError, match="no pass is called `rename`"):
        parse_text('rename{to="x"}')


def test_plain_options_print_back() -> None:
    register_pass(Rename)
    text = 'rename{to="a b",times="3",rate="1e-05",loud="True",how="down"}'
    pipeline = parse_text(text, all_passes())
    assert pipeline.passes == (Rename("a b", 3, 1e-5, True, "down"),)
    assert pipeline.to_text() == text and parse_toml(pipeline.to_toml(), all_passes()) == pipeline


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('to="x",times="1.5"', "`1.5` is not an integer"),
        ('to="x",times="0"', "`times` is from 1"),
        ('to="x",rate="inf"', "`inf` is not a number"),
        ('to="x",loud="yes"', "`yes` is not True or False"),
        ('to="x",how="left"', "`left` is none of up, down"),
        ("", "needs the option `to`"),
    ],
)
def test_an_option_that_does_not_fit(options: str, message: str) -> None:
    register_pass(Rename)
    with pytest.raises(CuError, match=message) as caught:
        parse_text(f"rename{{{options}}}", all_passes())
    assert caught.value.diagnostics[0].code == "CU504"


class NoRun(Pass):
    name: ClassVar[str] = "no-run"


class Plain(NoRun):
    name: ClassVar[str] = "plain"
    option: int

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        return kernel


def odd(name: str, kind: object = Expr) -> type:
    run = {"run": lambda self, kernel, ctx: kernel, "name": name, "__annotations__": {"x": kind}}
    return dataclass(frozen=True)(type("Odd", (Pass,), run))


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (int, "`int` is not derived from `Pass`"),
        (NoRun, "has no `run`"),
        (odd("dce"), "is called `dce`, as another pass is"),
        (odd("Two Words"), "a name has small letters, digits and hyphens"),
        (Plain, "is no dataclass of its own"),
        (odd("listing", list[int]), "has an option `x` of a type that no text gives"),
        (odd("unknown", "Elsewhere"), "a type that is not imported"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_be_a_pass(cls: type, message: str) -> None:
    with pytest.raises(CuError, match=message) as caught:
        register_pass(cls)  # pyright: ignore
    assert caught.value.diagnostics[0].code == "CU516"
    assert all_passes() == PASSES


def test_a_cell_that_is_run_again_replaces_its_pass_and_another_class_does_not() -> None:
    register_pass(Rename)
    register_pass(Rename)
    with pytest.raises(CuError, match="as another pass is"):
        register_pass(odd("rename"))


def test_passes_of_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = EntryPoint("rename", f"{__name__}:Rename", own.GROUP)
    monkeypatch.setattr(own, "entry_points", lambda group: (mine,) if group == "cubridge.passes" else ())
    assert all_passes()["rename"] is Rename
    own._load_installed.cache_clear()
    broken = EntryPoint("gone", "no_such_module:Gone", own.GROUP)
    monkeypatch.setattr(own, "entry_points", lambda group: (broken,))
    with pytest.raises(CuError, match="`gone` of no_such_module:Gone cannot be loaded"):
        all_passes()


@dataclass(frozen=True)
class Wrong(Pass):
    """Fails, or gives nothing."""

    name: ClassVar[str] = "wrong"
    fails: bool

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        return kernel.no_such_field if self.fails else None  # pyright: ignore


@pytest.mark.parametrize(("fails", "message"), [(True, "AttributeError"), (False, "gives None, which is no kernel")])
def test_a_pass_that_fails_is_named(fails: bool, message: str) -> None:
    register_pass(Wrong)
    with pytest.raises(PassFault, match=message) as caught:
        run_pipeline(golden_kernel("sm80"), parse_text(f'dce,wrong{{fails="{fails}"}}', all_passes()))
    assert caught.value.diagnostics[0].code == "CU517"
    assert (caught.value.pass_name, caught.value.at) == ("wrong", 1)
    if fails:
        assert "test_own.py" in (caught.value.diagnostics[0].help or "")
