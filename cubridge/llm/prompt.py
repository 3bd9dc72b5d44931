"""Prompts are files with named slots, `{{slot}}`; one left open, or one too many, is our own fault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.ir.diagnostics import InternalError

_FOLDER: Final = Path(__file__).with_name("prompts")
_SLOT: Final = re.compile(r"\{\{([a-z_]+)\}\}")


@cache
def template(name: str) -> str:
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """The part of a page under one of its `##` headings."""
    parts = re.split(r"^## ", template(name), flags=re.MULTILINE)
    found = [part for part in parts if part.startswith(f"{heading}\n")]
    if len(found) != 1:
        raise InternalError(f"page {name} has {len(found)} sections `{heading}`")
    return found[0].removeprefix(heading).strip()


def slots(name: str) -> frozenset[str]:
    """The slots of a prompt file."""
    return frozenset(_SLOT.findall(template(name)))


def fill(name: str, values: Mapping[str, str]) -> str:
    """The prompt `name` with its slots filled. Slots inside the values stay as they are."""
    if slots(name) != frozenset(values):
        raise InternalError(f"prompt {name}: slots {sorted(slots(name) ^ frozenset(values))} do not match")
    return _SLOT.sub(lambda match: values[match[1]], template(name))


def numbered(text: str, first: int = 1) -> str:
    """`text` with line numbers, as replies refer to it."""
    return "\n".join(f"{number:4} | {line}" for number, line in enumerate(text.splitlines(), first))
