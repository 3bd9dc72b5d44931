"""From the text of a reply to its fenced blocks. The only parts of a reply that are read are blocks with a known tag."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

_BYTE_ORDER_MARK: Final = "\ufeff"
_FENCE: Final = re.compile(r"^ {0,3}(`{3,})[ \t]*([^`\s]*)[^`]*$")
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What moves the cursor of a terminal, or shows text in another order than it has."""


@dataclass(frozen=True, slots=True)
class Block:
    """The text between two fences. `source`: the text as a file that diagnostics can point into."""

    tag: str
    source: SourceFile
    span: Span  # in the reply


def blocks(reply: str, name: str = "<reply>") -> tuple[Block, ...]:
    """All fenced blocks. Errors: CU711 for a fence inside a fence, one that is never closed, or control characters in a block."""
    file = SourceFile.from_text(name, reply.removeprefix(_BYTE_ORDER_MARK))
    found: list[Block] = []
    fence, tag, lines, first = "", "", list[str](), 0
    for number, line in enumerate(file.text.split("\n"), 1):
        line = line.removesuffix("\r")
        match = _FENCE.match(line)
        closes = match is not None and not match[2] and len(match[1]) >= len(fence)
        if not fence and match:
            fence, tag, lines, first = match[1], match[2].lower(), [], number
        elif fence and closes:
            found.append(_block(tag, lines, file, first))
            fence = ""
        elif fence and match and match[2] and len(match[1]) >= len(fence):
            raise _malformed("a fence opens inside another", file, number)
        elif fence:
            lines.append(line)
    if fence:
        raise _malformed("this fence is never closed", file, first)
    return tuple(found)


def _block(tag: str, lines: list[str], file: SourceFile, first: int) -> Block:
    for number, line in enumerate(lines, first + 1):
        if CONTROL.search(line):  # no excerpt: it would reach the terminal
            raise CuError(Diagnostic("CU711", f"line {number} of the reply holds a control character"))
    text = "".join(f"{line}\n" for line in lines)
    return Block(tag, SourceFile.from_text(f"<{tag or 'block'}>", text), Span.whole_line(file, first))


def one_block(reply: str, tags: Collection[str]) -> Block:
    """The one block whose tag is of `tags`; others are the model's own. Errors: CU711, CU712 for none or several."""
    found = blocks(reply)
    wanted = [b for b in found if b.tag in tags]
    listed = " or ".join(f"```{t}" for t in sorted(tags))
    if len(wanted) != 1:
        how_many = "no block" if not wanted else f"{len(wanted)} blocks"
        raise CuError(
            Diagnostic("CU712", f"the reply has {how_many} marked {listed}", help=f"give exactly one {listed} block")
        )
    return wanted[0]


def fenced(tag: str, text: str) -> str:
    """`text` as a fenced block of a prompt: its fence is longer than any inside."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{tag}\n{text.rstrip(chr(10))}\n{fence}"


def _malformed(message: str, file: SourceFile, line: int) -> CuError:
    return CuError(
        Diagnostic(
            "CU711", message, Span.whole_line(file, line), help="open with ```TAG and close with ``` on lines alone"
        )
    )
