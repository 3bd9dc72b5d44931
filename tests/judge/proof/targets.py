"""Kernels that the rules make of specs, and texts of them with something changed."""

from __future__ import annotations

from functools import cache

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.transfer import transfer_unverified
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import AttentionSpec
from tests.passes.specs import CASES


@cache
def source(kernel: str = "sm80") -> Kernel:
    return lift_kernel(choose_kernel(kernel), "bf16", 64).kernel


def spec(name: str) -> AttentionSpec:
    return CASES[name].spec


@cache
def target(name: str, kernel: str = "sm80") -> Kernel:
    return transfer_unverified(source(kernel), spec(name))


def changed(name: str, *changes: tuple[str, str], kernel: str = "sm80") -> Kernel:
    """The target with every occurrence of each text replaced; each must occur."""
    text = to_text(target(name, kernel))
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse(SourceFile("changed.cuir", text.encode()))
