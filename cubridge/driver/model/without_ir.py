"""A model that writes CUDA without CuIR: in one reply, or with tools. It is judged as one that lowers a target is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cubridge.driver.model.lower import Lowered, Session, converse, regions_page, regions_text
from cubridge.driver.model.prompts import reference_text
from cubridge.driver.model.region_editor import RegionEditor
from cubridge.driver.model.use import Approach
from cubridge.ir.diagnostics import CuError, Diagnostic, render
from cubridge.llm.prompt import fill, template
from cubridge.llm.provider import Request
from cubridge.llm.reply import fenced, one_block

if TYPE_CHECKING:
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.driver.model.text import TextJudge
    from cubridge.driver.reference import TracedReference
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.llm.budget import Conversation

_TAG: Final = "cuda"


def write_by_model(
    approach: Approach,
    kernel: ChosenKernel,
    lifted: Lifted,
    reference: TracedReference,
    talk: Conversation,
    judge: TextJudge,
) -> Lowered:
    """The text that passes every check. Errors: CU708 when the budget ends first; of a single reply, what it is refused for; what
    the provider raises."""
    patchable = kernel.text.contract.patchable
    allowed = tuple(r.name for r in lifted.source_map.regions if r.name in patchable)
    session = Session(RegionEditor(kernel.text.source, lifted.source_map, allowed), judge)
    shown = {"reference": fenced("python", reference_text(reference)), "text": fenced(_TAG, kernel.text.source.text)}
    shown["allowed"] = ", ".join(f"`{name}`" for name in allowed)
    if approach is Approach.ONE_SHOT:
        stable = fill("one_shot_system", {"regions": regions_page(kernel)})
        return _once(session, Request(str(approach), stable, fill("one_shot", shown)), talk)
    stable = fill("react_system", {"tools": template("tools"), "regions": regions_page(kernel)})

    def request(earlier: str) -> Request:
        regions = regions_text(session.editor)
        return Request(str(approach), stable, fill("react", {**shown, "regions": regions, "earlier": earlier}))

    return converse(session, request, talk)


def _once(session: Session, request: Request, talk: Conversation) -> Lowered:
    """Errors: CU711 to CU713 for a reply that holds no text; CU716, CU717; as `Session.finish`."""
    reply = talk.ask(request)
    try:
        if not reply.complete:
            raise CuError(Diagnostic("CU713", "the reply was cut off at the token limit"))
        session.editor.take(one_block(reply.text, (_TAG,)).source)
        session.finish()
    except CuError as error:
        talk.transcript.verdict(request.purpose, False, render(error.diagnostics))
        raise
    talk.transcript.verdict(request.purpose, True, "")
    assert session.lowered is not None
    return session.lowered
