"""The page: one file that needs no other and no network. A section is a function from data to HTML."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from typing import Final

from cubridge.show.asked import asked_section
from cubridge.show.changes import changes_section
from cubridge.show.checks import left_section, proofs_section, refusals_section, runs_section
from cubridge.show.compiled import compiled_section, speed_section
from cubridge.show.html import Html, element, joined
from cubridge.show.mask import mask_section
from cubridge.show.schedule import schedule_section
from cubridge.show.tables import mark
from cubridge.show.timeline import timeline_section
from cubridge.show.view import Speed, View

SECTIONS: Final[dict[str, tuple[str, Callable[[View], Html]]]] = {
    "asked": ("What was asked", asked_section),
    "mask": ("Mask", mask_section),
    "schedule": ("Schedule", schedule_section),
    "timeline": ("Who does what when", timeline_section),
    "changes": ("What was changed", changes_section),
    "runs": ("Runs", runs_section),
    "refusals": ("Wrong kernels", refusals_section),
    "proofs": ("Proofs", proofs_section),
    "compiled": ("Compiled", compiled_section),
    "left": ("Not checked", left_section),
}
SPEED: Final = ("speed", "Speed")


def page(view: View, speed: Speed | None = None) -> str:
    """A whole HTML document. It may run the script of this package, and load nothing."""
    title = f"{view.asked.name} on {view.kernel}"
    script = _file("page.js")
    policy = "; ".join(
        (
            "default-src 'none'", "img-src data:", "style-src 'unsafe-inline'", "base-uri 'none'", "form-action 'none'",
            f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'",
        )
    )  # fmt: skip
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", _file("page.css")),
    )
    body = element(
        "body", _header(view, title), _nav(), element("main", *_sections(view, speed)), element("script", script)
    )
    return joined((Html("<!doctype html>\n"), element("html", head, body, lang="en"), "\n"))


def framed(text: str) -> str:
    """A page within another, apart from it: for notebooks."""
    return element(
        "iframe", srcdoc=text, sandbox="allow-scripts", width="100%", height=700, title="CuBridge", class_="cubridge"
    )


def _file(name: str) -> Html:
    return Html(files("cubridge.show").joinpath(name).read_text(encoding="utf-8"))


def _header(view: View, title: str) -> Html:
    verdict = f"{view.verdict}, {view.basis}" if view.accepted else view.verdict.upper()
    about = f"{view.arch}, {view.dtype}, sizes {view.shape} (B, Hq, Hk, Lq, Lk, D)"
    return element("header", element("h1", title), element("p", mark(view.accepted, verdict, verdict), " ", about))


def _nav() -> Html:
    names = {key: title for key, (title, _) in SECTIONS.items()} | dict((SPEED,))
    links = (element("li", element("a", title, href=f"#{key}")) for key, title in names.items())
    return element("nav", element("ul", *links), aria_label="sections")


def _sections(view: View, speed: Speed | None) -> list[Html]:
    drawn = [_section(key, title, draw(view)) for key, (title, draw) in SECTIONS.items()]
    return [*drawn, _section(*SPEED, speed_section(speed))]


def _section(key: str, title: str, content: Html) -> Html:
    return element("section", element("h2", title), content, id=key)
