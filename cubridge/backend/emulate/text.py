"""The copy of a kernel text that the emulator compiles: locals that nothing has written are NaN in it.

C++ leaves them with what their memory holds, which on a CPU is often the right value of a moment ago. The copy has the lines and
columns of the text; only behind a declaration without initialiser stands a call that fills it.
"""

from __future__ import annotations

import re
from typing import Final

_DECLARATION: Final = re.compile(
    rb"^[ \t]+[A-Za-z_][\w<>:, ]*?[ \t]+(?=[a-z])((?:\w+(?:\[[^;=()]*\])*)(?:,[ \t]*\w+(?:\[[^;=()]*\])*)*);"
)
_NOT_TYPES: Final = (b"return", b"using", b"typedef", b"goto", b"delete", b"extern", b"const", b"constexpr", b"static")
_STRUCT: Final = re.compile(rb"^[ \t]*(?:struct|union|class)\b[^;]*\{")


def with_poison(text: bytes) -> bytes:
    """`text` with a call of emu_poison behind each declaration without initialiser in a function body. Strings and comments with
    unbalanced braces make it miss declarations, nothing worse."""
    lines = text.split(b"\n")
    blocks: list[bool] = []  # the open braces: is it a struct's
    for number, line in enumerate(lines):
        code = line.split(b"//", 1)[0]
        if blocks and not blocks[-1]:
            lines[number] = _poisoned(line, code)
        opened = [bool(_STRUCT.match(code))] * code.count(b"{")
        for char in re.findall(rb"[{}]", code):
            if char == b"{":
                blocks.append(opened.pop() if opened else False)
            elif blocks:
                blocks.pop()
    return b"\n".join(lines)


def _poisoned(line: bytes, code: bytes) -> bytes:
    match = _DECLARATION.match(code)
    if match is None or code.split()[0] in _NOT_TYPES:
        return line
    names = b", ".join(re.findall(rb"(?:^|,)[ \t]*(\w+)", re.sub(rb"\[[^\]]*\]", b"", match[1])))
    return line[: match.end()] + b" emu_poison(" + names + b");" + line[match.end() :]
