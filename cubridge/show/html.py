"""Elements of HTML and SVG. What is no `Html` is escaped: names, sources and messages are other people's."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Html(str):
    """Text that is markup already. Only `element`, `joined` and files of this package make it."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | int | float | bool | None) -> Html:
    """`<name ..>children</name>`. `class_` and `for_` are written without the underscore, others with a dash for it; an attribute
    that is None or False is left out."""
    given = "".join(_attribute(n, v) for n, v in attributes.items() if v is not None and v is not False)
    if name in _EMPTY:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


_EMPTY = frozenset({"input", "meta", "br"})


def _attribute(name: str, value: str | int | float | bool) -> str:
    written = name.rstrip("_").replace("_", "-").replace("viewbox", "viewBox")
    if value is True:
        return f" {written}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f' {written}="{html.escape(text)}"'


def joined(parts: Iterable[str]) -> Html:
    """Texts in a row, each escaped unless it is markup."""
    return Html("".join(p if isinstance(p, Html) else html.escape(printable(p)) for p in parts))


def printable(text: str) -> str:
    """Without what no page may hold: control characters, halves of surrogate pairs."""
    return "".join(c if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff") else "\ufffd" for c in text)
