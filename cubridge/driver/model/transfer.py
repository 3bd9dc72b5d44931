"""Transfer by a model: it answers with a pipeline or a whole target, judged as any proposal; what fails goes back to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cubridge.driver.model.checks import verify_target
from cubridge.driver.model.judge import ValueJudge
from cubridge.driver.model.prompts import transfer_prompt, transfer_system
from cubridge.driver.model.rounds import Question, first_right
from cubridge.driver.transfer import Transferred, transfer_before_checks
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.parser import parse
from cubridge.llm.reply import one_block
from cubridge.passes.pipeline import Pipeline, parse_text

if TYPE_CHECKING:
    from cubridge.driver.reference import TracedReference
    from cubridge.driver.sandbox.process import Sandbox
    from cubridge.ir.nodes import Kernel
    from cubridge.llm.budget import Conversation
    from cubridge.llm.provider import Reply

PURPOSE: Final = "transfer"
_TAGS: Final = ("pipeline", "cuir")


def transfer_by_model(
    source: Kernel,
    reference: TracedReference,
    talk: Conversation,
    sandbox: Sandbox,
    judge: ValueJudge,
    further: Callable[[Kernel], None] | None = None,
) -> Transferred:
    """The first answer that is right. `further`: what a target must pass besides, such as being lowered by rules.
    Errors: CU708 when the budget ends first, with the faults of the last answer; what the provider raises."""

    def judged(reply: Reply) -> Transferred:
        transferred = read_answer(reply, source, reference, sandbox)
        judge.judge(transferred.kernel)
        if further is not None:
            further(transferred.kernel)
        return transferred

    question = Question(PURPOSE, transfer_system(), lambda attempts: transfer_prompt(source, reference, attempts))
    return replace(first_right(question, judged, talk), proposer=talk.provider.name)


def read_answer(reply: Reply, source: Kernel, reference: TracedReference, sandbox: Sandbox) -> Transferred:
    """The target of a reply, verified but not run. Errors: CU711 to CU713 for the reply; CU1xx, CU2xx, CU5xx, CU72x."""
    if not reply.complete:
        message = "the reply was cut off at the token limit"
        raise CuError(Diagnostic("CU713", message, help="think less, and answer with a pipeline if one can say it"))
    block = one_block(reply.text, _TAGS)
    if block.tag == "pipeline":
        return sandbox.run(transfer_before_checks, source, reference.attention.spec, parse_text(block.source))
    target = parse(block.source)
    sandbox.run(verify_target, source, target)
    return Transferred(target, Pipeline(()), ())
