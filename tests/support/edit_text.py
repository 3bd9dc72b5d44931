"""Changes of a golden kernel's text for tests, written without the indentation of the place."""

from __future__ import annotations

from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile
from tests.support.golden_texts import golden_file


def edited(name: str, *changes: tuple[str, str]) -> Kernel:
    """A golden kernel with the first place of each text replaced. Text of whole lines is found at any depth, and what
    replaces it goes there; a part of a line is replaced as it is."""
    text = golden_file(name).text
    for old, new in changes:
        text = _replace_lines(text, old, new) or _replace_part(text, old, new)
    return parse(SourceFile.from_text(f"{name}.cuir", text))


def _replace_lines(text: str, old: str, new: str) -> str | None:
    lines, wanted = text.split("\n"), [line.strip() for line in old.split("\n")]
    for at in range(len(lines) - len(wanted) + 1):
        if [line.strip() for line in lines[at : at + len(wanted)]] == wanted:
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            inserted = [indent + line for line in new.split("\n")] if new else []
            return "\n".join([*lines[:at], *inserted, *lines[at + len(wanted) :]])
    return None


def _replace_part(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new, 1)
