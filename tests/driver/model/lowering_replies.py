"""Lowerings by script: the edits that turn a kernel's text into the one that the rules write."""

from __future__ import annotations

from functools import cache

from cubridge.backend.text.lower import Patched
from cubridge.driver.kernels import ChosenKernel, choose_kernel
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.model.lower import Lowered, lower_by_model
from cubridge.driver.model.policy import Accept
from cubridge.driver.model.text import TextJudge
from cubridge.driver.sandbox.texts import SandboxTools
from cubridge.frontend.cuda.markers import read_source_map
from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import Shape
from cubridge.judge.plan import Case
from cubridge.llm.budget import Conversation
from tests.driver.model.talk import BOX, by_rules, conversation, judge, lifted

CASES = (Case("index-coded V", Shape(1, 2, 1, 70, 130, 64), 3),)


@cache
def chosen(kernel: str = "sm80") -> ChosenKernel:
    return choose_kernel(kernel)


@cache
def patched(name: str, kernel: str = "sm80") -> Patched:
    return lower_kernel(chosen(kernel), lifted(kernel), by_rules(name, kernel).kernel, "bf16", 64)


def region_lines(patch: Patched, region: str) -> list[str]:
    span = read_source_map(patched_source(patch)).region(region).span
    return span.text.split("\n")[:-1]


def source_lines(region: str, kernel: str = "sm80") -> list[str]:
    return lifted(kernel).source_map.region(region).span.text.split("\n")[:-1]


def tool(*lines: str) -> str:
    return "```tool\n" + "\n".join(lines) + "\n```\n"


def edit(region: str, new: list[str], kernel: str = "sm80") -> str:
    """The whole region anew."""
    count = len(source_lines(region, kernel))
    return tool(f"edit_region {region}", f"@modify 1-{count}" if count else "@insert 0", *new)


def edits(name: str, kernel: str = "sm80") -> str:
    """Every region that the rules change."""
    patch = patched(name, kernel)
    return "\n".join(edit(r, region_lines(patch, r), kernel) for r in patch.regions_changed)


def text_judge(
    name: str, kernel: str = "sm80", target: Kernel | None = None, accept: tuple[Accept, ...] = ()
) -> TextJudge:
    goal = target or by_rules(name, kernel).kernel
    return TextJudge(
        chosen(kernel), lifted(kernel).kernel, goal, judge(name, *accept), SandboxTools(BOX), "bf16", 64, CASES
    )  # fmt: skip


def lower(
    name: str, *replies: str, kernel: str = "sm80", accept: tuple[Accept, ...] = ()
) -> tuple[Lowered, Conversation]:
    talk = conversation(*replies)
    target = by_rules(name, kernel).kernel
    return lower_by_model(chosen(kernel), lifted(kernel), target, talk, text_judge(name, kernel, accept=accept)), talk
