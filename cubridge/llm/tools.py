"""Tools in a text protocol that every provider can speak: a reply calls them in fenced blocks marked `tool`, whose first line is
the name of the tool and its argument; further lines belong to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic, render
from cubridge.ir.source import SourceFile, Span
from cubridge.llm.reply import Block, blocks
from cubridge.llm.transcript import Transcript

TAG: Final = "tool"
MAX_CALLS: Final = 24
"""Calls of one reply."""


@dataclass(frozen=True, slots=True)
class Call:
    """`argument`: the rest of the first line. `body`: the lines after it; line n of the body is line n + 1 of `file`."""

    tool: str
    argument: str
    body: tuple[str, ...]
    file: SourceFile

    def span(self, body_line: int = 0) -> Span:
        """Line `body_line` of the body, from 1; 0 is the first line of the call."""
        return Span.whole_line(self.file, body_line + 1)


Tool = Callable[[Call], str]
"""Does what a call asks and says what came of it. Errors: CuError, for the model to mend."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A call as it was written, and what came of it: `faults` where it was refused."""

    text: str
    result: str
    faults: tuple[Diagnostic, ...] = ()


def read_calls(reply: str) -> tuple[Call, ...]:
    """The calls of a reply in order. Errors: CU711; CU715 for a reply without calls, with too many, or one without a name."""
    found = [_call(b) for b in blocks(reply) if b.tag == TAG]
    if not found:
        raise _unreadable("the reply calls no tool")
    if len(found) > MAX_CALLS:
        raise _unreadable(f"the reply calls {len(found)} tools; {MAX_CALLS} are the most")
    return tuple(found)


def _call(block: Block) -> Call:
    lines = block.source.text.split("\n")[:-1]
    words = lines[0].split(None, 1) if lines else []
    if not words:
        raise _unreadable("a call begins with the name of its tool", block.span)
    return Call(words[0], words[1].strip() if len(words) > 1 else "", tuple(lines[1:]), block.source)


def _unreadable(message: str, span: Span | None = None) -> CuError:
    help = "call a tool in a block that opens with ```tool, its name on the first line"
    return CuError(
        Diagnostic("CU715", message, help=help) if span is None else Diagnostic("CU715", message, span, help=help)
    )


def run_calls(reply: str, tools: Mapping[str, Tool], transcript: Transcript) -> Iterator[Answered]:
    """Run the calls of a reply one after the other, up to the first that is refused. A tool that is not in the table is one.
    Errors: as `read_calls`; what says that time is over or a tool of this machine is missing (exit codes from 5)."""
    for call in read_calls(reply):
        faults: tuple[Diagnostic, ...] = ()
        try:
            result = _tool(call, tools)(call)
        except CuError as error:
            if error.exit_code >= 5:
                raise
            faults, result = error.diagnostics, render(error.diagnostics)
        transcript.tool(call.tool, call.file.text, result)
        yield Answered(call.file.text, result, faults)
        if faults:
            return


def _tool(call: Call, tools: Mapping[str, Tool]) -> Tool:
    if call.tool not in tools:
        message = f"there is no tool `{call.tool}`"
        raise CuError(Diagnostic("CU715", message, call.span(), help=f"tools: {', '.join(tools)}"))
    return tools[call.tool]
