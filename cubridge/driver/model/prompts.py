"""What models are told: the slots of the prompt files, filled from the kernel, the reference and the passes themselves."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cubridge.ir.printer import to_text
from cubridge.llm.prompt import fill, numbered, template
from cubridge.llm.reply import fenced
from cubridge.passes.options import defaults, kinds
from cubridge.passes.registry import PASSES

if TYPE_CHECKING:
    from cubridge.driver.reference import TracedReference
    from cubridge.ir.nodes import Kernel
    from cubridge.passes.base import Pass

MAX_QUOTED: Final = 20_000
"""Characters of an earlier reply, or of its diagnostics, that a prompt repeats."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An answer that was refused, and the rendered diagnostics."""

    reply: str
    diagnostics: str


# ---- passes ----------------------------------------------------------------------------------------------------------


def pass_catalogue() -> str:
    """Every pass with its docstring and options."""
    return "\n\n".join(_entry(name, cls) for name, cls in PASSES.items())


def _entry(name: str, cls: type[Pass]) -> str:
    may_be_left_out = defaults(cls)
    options = [
        f"- option `{option}`{' (may be left out)' if option in may_be_left_out else ''}: {kind}"
        for option, kind in kinds(cls).items()
    ]
    return "\n".join((f"## {name}", "", fenced("text", inspect.getdoc(cls) or ""), *options))


# ---- transfer --------------------------------------------------------------------------------------------------------


def transfer_system() -> str:
    """The part that every transfer shares."""
    return fill("transfer_system", {"cuir_page": template("cuir"), "passes": pass_catalogue()})


def transfer_prompt(source: Kernel, reference: TracedReference, attempts: Sequence[Attempt]) -> str:
    return fill(
        "transfer",
        {
            "source": fenced("text", numbered(to_text(source))),
            "reference": fenced("python", reference_text(reference)),
            "found": fenced("text", reference.explain()),
            "earlier": earlier(attempts),
        },
    )


def reference_text(reference: TracedReference) -> str:
    """What the user wrote: a file whole, for its constants; of a live callable the definition alone."""
    loaded = reference.traced.reference
    if reference.path is not None:
        return loaded.file.text
    try:
        return inspect.getsource(loaded.function)  # pyright: ignore[reportArgumentType]
    except (OSError, TypeError):
        return "# the text of this function is not known; what tracing found is all of it"


def earlier(attempts: Sequence[Attempt]) -> str:
    """Refused answers, the last one in full; of those before it the diagnostics alone."""
    if not attempts:
        return ""
    parts = [
        f"Answer {number} was refused:\n\n{fenced('text', quoted(attempt.diagnostics))}\n"
        for number, attempt in enumerate(attempts, 1)
    ]
    parts.insert(-1, f"Answer {len(attempts)}:\n\n{fenced('text', quoted(attempts[-1].reply))}\n")
    return fill("earlier", {"attempts": "\n".join(parts)})


def quoted(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "\n.. (cut)"
