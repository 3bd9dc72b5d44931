"""Lifting by a model: one answer in three labelled parts, judged until it is right. What is accepted is kept beside the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cubridge.driver.model.headers import header_texts
from cubridge.driver.model.instructions import TILES
from cubridge.driver.model.prompts import Attempt, earlier
from cubridge.driver.model.rounds import Question, first_right
from cubridge.driver.model.sidecar import write_sidecar
from cubridge.frontend.cuda.vocabulary import BUILTIN_STATEMENTS, INSTRUCTIONS
from cubridge.ir.diagnostics import CuError, Diagnostic, render
from cubridge.ir.source import SourceFile
from cubridge.llm.prompt import fill, numbered, template
from cubridge.llm.reply import fenced, one_block

if TYPE_CHECKING:
    from cubridge.driver.model.lift_judge import LiftJudge
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.llm.budget import Conversation
    from cubridge.llm.provider import Reply

PURPOSE: Final = "lift"
PARTS: Final = ("syntax", "workers", "cuir")
"""The three parts of an answer, each a fenced block of this tag."""


def lift_by_model(judge: LiftJudge, why: Sequence[Diagnostic], talk: Conversation) -> Lifted:
    """The first answer that is right, which is written beside the text. `why`: what the rules could not read.
    Errors: CU708 when the budget ends first, with the faults of the last answer; OSError; what the provider raises."""

    def judged(reply: Reply) -> tuple[SourceFile, Lifted]:
        cuir = read_answer(reply)
        return cuir, judge.judge(cuir)

    question = Question(PURPOSE, lift_system(), lambda attempts: lift_prompt(judge, why, attempts))
    cuir, lifted = first_right(question, judged, talk)
    write_sidecar(judge.kernel, judge.dtype, judge.head_dim, cuir, talk.provider.name)
    return lifted


def read_answer(reply: Reply) -> SourceFile:
    """The annotated CuIR of a reply, which has all three parts. Errors: CU711 to CU713."""
    if not reply.complete:
        raise CuError(Diagnostic("CU713", "the reply was cut off at the token limit"))
    return [one_block(reply.text, (part,)) for part in PARTS][-1].source


# ---- prompts ---------------------------------------------------------------------------------------------------------


def lift_system() -> str:
    """The part that every lift shares."""
    return fill("lift_system", {"instructions": _instruction_table(), "cuir_page": template("cuir")})


def _instruction_table() -> str:
    rows = [(f"`{i.op}`", f"`{ptx}`") for ptx, i in INSTRUCTIONS.items() if i.result is None]
    rows += [(f"`{op}`", f"`{name}()`") for name, op in BUILTIN_STATEMENTS.items()]
    rows += [(f"`{op}`", "many, in a tile function") for op in TILES]
    return "\n".join(f"| {op} | {ptx} |" for op, ptx in (("operation", "instruction"), ("---", "---"), *rows))


def lift_prompt(judge: LiftJudge, why: Sequence[Diagnostic], attempts: Sequence[Attempt]) -> str:
    kernel = judge.kernel
    instance = kernel.instantiation(judge.dtype, judge.head_dim)
    headers = "\n\n".join(f"`{name}`\n\n{fenced('text', text)}" for name, text in header_texts(kernel).items())
    return fill(
        "lift",
        {
            "text": fenced("text", numbered(kernel.text.source.text)),
            "headers": headers or "none",
            "contract": fenced("toml", kernel.contract_path.read_text(encoding="utf-8")),
            "instance": ", ".join(f"{name}={value}" for name, value in instance.macros)
            + f", element type {instance.dtype}",
            "why": fenced("text", render(why)),
            "earlier": earlier(attempts),
        },
    )
