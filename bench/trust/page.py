"""Writes docs/trust.md: everything that lifting believes and does not read, with the GPU test of each belief.

python -m bench.trust.page            prints the page
python -m bench.trust.page --write    writes it
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from bench.trust.gpu import TESTS
from cubridge.frontend.cuda.lemmas import Lemma, load_lemmas
from cubridge.frontend.cuda.vocabulary import INSTRUCTIONS, Instruction
from cubridge.ir.functions import FUNCTIONS

PAGE: Final = Path(__file__).parents[2] / "docs" / "trust.md"

_HEAD: Final = """# The trusted base

What lifting believes and does not read: the meaning of single instructions, and of helpers whose bodies are tested. The
rest of a kernel is read. A wrapper is known by the one instruction in it, whatever its name; a helper by the digest of its body
and of everything that it calls, whatever its name, layout and locals. Another body under a listed name is refused
(CU424). The digests are in `cubridge/frontend/cuda/lemmas.toml`.

Each row is tested on a GPU by the test in its last column (`python -m bench.trust.gpu`), and in the emulator by every check of an
adaptation. This page is written by `python -m bench.trust.page --write`.
"""

_PROOFS: Final = Path(__file__).with_name("proofs.md")
"""The part of the page that no table says."""


def page() -> str:
    """The text of docs/trust.md."""
    return "\n".join(
        (_HEAD, *_instructions(), "", *_helpers(), "", *_functions(), "", _PROOFS.read_text(encoding="utf-8"))
    )


def gpu_tests(name: str) -> list[str]:
    """The GPU tests that cover a helper, or an instruction by its text."""
    found = (t for t in TESTS if name in t.covers or any(name.startswith(c) for c in t.covers if " " in c or "." in c))
    return [t.name for t in found]


def _instructions() -> Iterator[str]:
    yield "## Instructions"
    yield ""
    yield "Normal form: one blank between words, labels and predicates numbered. `%n` are the operands of the asm."
    yield ""
    rows = (
        [f"`{text}`", f"`{_meaning(i)}`", i.claims, _needs(i), ", ".join(gpu_tests(text))]
        for text, i in INSTRUCTIONS.items()
    )
    yield from _table(("instruction", "CuIR", "claim", "the asm must say", "GPU test"), rows)


def _meaning(instruction: Instruction) -> str:
    return f"{instruction.op}({', '.join(f'%{n}' for n in instruction.operands)})"


def _needs(instruction: Instruction) -> str:
    return ", ".join(
        word for word, needed in (("volatile", instruction.volatile), ("memory", instruction.memory)) if needed
    )


def _helpers() -> Iterator[str]:
    yield "## Helpers, lane maps and types"
    yield ""
    rows = (
        [f"`{m.name}({', '.join(m.params)})`", _lemma_meaning(m), m.claims, ", ".join(gpu_tests(m.name))]
        for m in load_lemmas().rows
    )
    yield from _table(("helper", "CuIR", "claim", "GPU test"), rows)


def _lemma_meaning(lemma: Lemma) -> str:
    match lemma.kind:
        case "value":
            return f"`{lemma.means}`"
        case "operation":
            fields = ", ".join(f"{n}={v}" for n, v in lemma.fields.items())
            return f"`{lemma.op}({fields})`"
        case "rows":
            return f"`i - tile.q_start`; {lemma.tile_rows} rows a {lemma.team}, from {lemma.row_origin}"
        case "columns":
            return f"`j - kv_start`, `e`; {lemma.lanes} lanes a row"
        case "view":
            return "`base[b, h]`"
        case _:
            return lemma.means or lemma.kind


def _functions() -> Iterator[str]:
    yield "## Elementary functions"
    yield ""
    yield "Declared errors of device functions, which enter the bound of every check. 0: CUDA's library, correct up to 2 ulp."
    yield ""
    rows = (
        [f"`{name}`", f"`{f.cuda}`", f"{f.rel_error:.2g}", f"{f.abs_error:.2g}"]
        for name, f in FUNCTIONS.items()
        if f.cuda is not None and f.result.name == "FLOAT"
    )
    yield from _table(("CuIR", "CUDA", "relative error", "absolute error"), rows)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
