"""Lowering by a model: it edits the regions in which two kernels differ, with tools, until the text passes every check."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cubridge.backend.text.anchor import anchors
from cubridge.backend.text.diff import diff, render_diff
from cubridge.driver.lower import patched_source
from cubridge.driver.model.headers import header_texts
from cubridge.driver.model.prompts import quoted
from cubridge.driver.model.region_editor import RegionEditor
from cubridge.driver.model.rounds import ask
from cubridge.ir.diagnostics import CuError, Diagnostic, render
from cubridge.ir.nodes import Kernel
from cubridge.ir.printer import print_field_type, print_function
from cubridge.ir.vocabulary import VALUE_REGIONS
from cubridge.llm.prompt import fill, numbered, section, template
from cubridge.llm.provider import Request
from cubridge.llm.reply import fenced
from cubridge.llm.tools import Answered, Call, Tool, run_calls

if TYPE_CHECKING:
    from cubridge.backend.text.lower import Patched
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.driver.model.text import TextJudge
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.llm.budget import Conversation

PURPOSE: Final = "lower"
REPLIES_A_ROUND: Final = 8
"""Replies with tool calls that a round of the budget stands for."""
_STEPS_SHOWN: Final = 6
"""The last steps that a prompt repeats in full."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """`kernel`: the CuIR of the text, where lifting can read it; else the target that it was written for."""

    patched: Patched
    kernel: Kernel
    is_lifted: bool


@dataclass(slots=True)
class Session:
    """The tools of one lowering, and whether it is over."""

    editor: RegionEditor
    judge: TextJudge
    lowered: Lowered | None = None

    def tools(self) -> dict[str, Tool]:
        return {
            "read_region": self.editor.read,
            "edit_region": self.editor.edit,
            "compile": self._compile,
            "check": self._check,
            "finish": lambda _: self.finish(),
        }

    def _compile(self, _: Call) -> str:
        patched = self.editor.patched()
        return self.judge.compile(self.judge.guard(patched, patched_source(patched)))

    def _check(self, _: Call) -> str:
        patched = self.editor.patched()
        return self.judge.emulate(self.judge.guard(patched, patched_source(patched)))

    def finish(self) -> str:
        """All checks of the text; `lowered` is there where they pass. Errors: as `TextJudge`."""
        patched = self.editor.patched()
        source = patched_source(patched)
        text = self.judge.guard(patched, source)
        kernel = self.judge.lift(source)
        said = [self.judge.emulate(text, past_numbers=True), self.judge.compile(text), self.judge.launch(text)]
        said.insert(
            0,
            "lifting reads it: its CuIR is verified and right"
            if kernel
            else "lifting cannot read it: runs alone judge it",
        )
        self.lowered = Lowered(patched, kernel or self.judge.target, kernel is not None)
        return "\n".join(said)


@dataclass(slots=True)
class _History:
    """What each reply did."""

    steps: list[list[Answered]] = field(default_factory=list[list[Answered]])

    def last_faults(self) -> tuple[Diagnostic, ...]:
        return tuple(fault for answer in self.steps[-1] for fault in answer.faults) if self.steps else ()

    def text(self) -> str:
        if not self.steps:
            return ""
        shown = [_step(n, answers) for n, answers in enumerate(self.steps, 1)][-_STEPS_SHOWN:]
        return fill("steps", {"steps": "\n\n".join(shown)})


def _step(number: int, answers: Sequence[Answered]) -> str:
    parts = [f"Reply {number}:"]
    for answer in answers:
        said = "was refused" if answer.faults else "gave"
        parts += [fenced("text", quoted(answer.text)), f"{said}", fenced("text", quoted(answer.result))]
    return "\n\n".join(parts)


def lower_by_model(
    kernel: ChosenKernel, lifted: Lifted, target: Kernel, talk: Conversation, judge: TextJudge
) -> Lowered:
    """The text that passes every check, and its patch.
    Errors: CU602 for a difference outside regions; CU708 when the budget ends first; what the provider raises."""
    allowed = tuple(
        a.region.name
        for a in anchors(diff(lifted.kernel, target), lifted.kernel, lifted.source_map, kernel.text.contract.patchable)
    )
    session = Session(RegionEditor(kernel.text.source, lifted.source_map, allowed), judge)

    def request(earlier: str) -> Request:
        return Request(PURPOSE, lower_system(kernel), _prompt(kernel, lifted, target, session.editor, earlier))

    return converse(session, request, talk)


def converse(session: Session, request: Callable[[str], Request], talk: Conversation) -> Lowered:
    """Replies with tool calls until `finish` passes. `request`: after the steps until now, as text. Errors: as `lower_by_model`."""
    talk.budget = replace(talk.budget, rounds=talk.budget.rounds * REPLIES_A_ROUND)
    history = _History()
    while session.lowered is None:
        asked = request(history.text())
        reply = ask(talk, asked, history.last_faults())
        history.steps.append(_answers(reply.text, session, talk))
        talk.transcript.verdict(asked.purpose, session.lowered is not None, render(history.last_faults()))
    return session.lowered


def _answers(reply: str, session: Session, talk: Conversation) -> list[Answered]:
    """A reply that calls nothing is answered too."""
    answers: list[Answered] = []
    try:
        for answer in run_calls(reply, session.tools(), talk.transcript):
            answers.append(answer)
            if session.lowered is not None:
                break
    except CuError as error:
        if error.exit_code >= 5:
            raise
        answers.append(Answered("(the reply)", render(error.diagnostics), error.diagnostics))
    return answers


# ---- prompts ---------------------------------------------------------------------------------------------------------


def lower_system(kernel: ChosenKernel) -> str:
    """The part that every lowering of a kernel shares."""
    pages = {"cuir_page": template("cuir"), "kernels_page": section("kernels", "The text")}
    return fill("lower_system", {"tools": template("tools"), "regions": regions_page(kernel), **pages})


def regions_page(kernel: ChosenKernel) -> str:
    """What a region of a kernel may hold."""
    return fill("regions", {"functions": fenced("text", "\n".join(helper_signatures(kernel)))})


_HELPER: Final = re.compile(r"^DEVICE (?:constexpr )?(\w+) (\w+)(\([^{}]*\))\s*\{", re.MULTILINE)


def helper_signatures(kernel: ChosenKernel) -> list[str]:
    """What regions may call, as the headers declare it."""
    from cubridge.driver.model.guard import Guard

    instance = kernel.instantiation("bf16", kernel.text.contract.head_dims[0])
    names = Guard.of(kernel, instance).callable
    texts = header_texts(kernel).values()
    found = [(m[2], f"{m[1]} {m[2]}{m[3]}") for text in texts for m in _HELPER.finditer(text) if m[2] in names]
    builtin = sorted(names - {name for name, _ in found})
    return [*(line for _, line in sorted(found)), "of CUDA: " + ", ".join(builtin)]


def regions_text(editor: RegionEditor) -> str:
    """The regions that may change, as they are now."""
    return "\n\n".join(
        f"`{name}`\n\n{fenced('text', numbered(chr(10).join(editor.lines(name)) + chr(10)))}" for name in editor.allowed
    )


def _prompt(kernel: ChosenKernel, lifted: Lifted, target: Kernel, editor: RegionEditor, earlier: str) -> str:
    return fill(
        "lower",
        {
            "difference": fenced("text", render_diff(lifted.kernel, target)),
            "target": fenced("text", "\n\n".join(_of_region(target, name) for name in editor.allowed)),
            "allowed": ", ".join(f"`{name}`" for name in editor.allowed),
            "regions": regions_text(editor),
            "head": fenced("text", _head(kernel, lifted)),
            "earlier": earlier,
        },
    )


def _head(kernel: ChosenKernel, lifted: Lifted) -> str:
    """The text up to the first region that is a function."""
    start = lifted.source_map.region("tile_setup").span.start
    return kernel.text.source.slice(0, start)


def _of_region(target: Kernel, region: str) -> str:
    fields = {
        "params": tuple(f for f in target.params if not f.fixed),
        "tile_state": target.tile_state,
        "row_state": target.row_state,
    }
    if region in fields:
        lines = "".join(f"    {f.name}={print_field_type(f.type)},\n" for f in fields[region])
        return f"{region}(\n{lines})"
    names = VALUE_REGIONS if region == "kv_range" else (region,)
    return "\n\n".join(print_function(target.region(name)) for name in names)
