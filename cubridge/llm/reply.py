"""From the text of a reply to its fenced blocks. The only parts of a reply that are read are blocks with a known tag."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

_FENCE: Final = re.compile(r"^ {0,3}(`{3,})\s*([A-Za-z_-]*)\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """The text between two fences. `source`: the text as a file that diagnostics can point into."""

    tag: str
    source: SourceFile
    span: Span  # in the reply


def blocks(reply: str, name: str = "<reply>") -> tuple[Block, ...]:
    """All fenced blocks. Errors: CU711 for a fence inside a fence, or one that is never closed."""
    file = SourceFile.from_text(name, reply)
    found: list[Block] = []
    fence, tag, lines, first = "", "", list[str](), 0
    for number, line in enumerate(reply.splitlines(), 1):
        match = _FENCE.match(line)
        if not fence and match:
            fence, tag, lines, first = match[1], match[2], [], number
        elif fence and match and not match[2] and len(match[1]) >= len(fence):
            text = "".join(f"{x}\n" for x in lines)
            found.append(Block(tag, SourceFile.from_text(f"<{tag or 'block'}>", text), Span.whole_line(file, first)))
            fence = ""
        elif fence and match and match[2]:
            raise _malformed("a fence opens inside another", file, number)
        elif fence:
            lines.append(line)
    if fence:
        raise _malformed("this fence is never closed", file, first)
    return tuple(found)


def one_block(reply: str, tags: Collection[str]) -> Block:
    """The one block whose tag is of `tags`. Errors: CU711, CU712 for none or several, or for a block with another tag."""
    found = blocks(reply)
    wanted = [b for b in found if b.tag in tags]
    listed = " or ".join(f"```{t}" for t in sorted(tags))
    if len(wanted) != 1:
        how_many = "no block" if not wanted else f"{len(wanted)} blocks"
        raise CuError(
            Diagnostic("CU712", f"the reply has {how_many} marked {listed}", help=f"give exactly one {listed} block")
        )
    return wanted[0]


def _malformed(message: str, file: SourceFile, line: int) -> CuError:
    return CuError(
        Diagnostic(
            "CU711", message, Span.whole_line(file, line), help="open with ```TAG and close with ``` on lines alone"
        )
    )
