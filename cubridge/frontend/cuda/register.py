"""Registers helper bodies: writes the digests of the helpers of shipped kernels into `lemmas.toml`, to be reviewed as a diff.

Run after a helper changed and its emulator and GPU tests passed: `python -m cubridge.frontend.cuda.register`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cubridge.frontend.cuda.digest import Digests
from cubridge.frontend.cuda.lemmas import TABLE, Lemma, load_lemmas
from cubridge.frontend.cuda.structure import Program, read_program
from cubridge.frontend.cuda.text import folder_headers, read_unit
from cubridge.ir.source import SourceFile

KERNELS = Path(__file__).parents[2] / "kernels"
_NUMBERS = {"HEAD_DIM": 128, "BLOCK_Q": 128, "BLOCK_KV": 64, "WARPS": 4, "STAGES": 2}


def helper_digests(program: Program, lemma: Lemma) -> Iterator[str]:
    """Digests of what the text declares under the lemma's name with its number of parameters."""
    digests = Digests(program)
    match lemma.kind:
        case "type":
            struct = program.structs.get(lemma.name)
            yield from () if struct is None else (digests.struct(struct),)
        case "macro":
            macro = program.macro(lemma.name)
            yield from () if macro is None else (digests.macro(macro),)
        case _:
            functions = program.functions.get(lemma.name, [])
            yield from (digests.function(f) for f in functions if len(f.params) == len(lemma.params))


def shipped_programs() -> Iterator[tuple[str, Program]]:
    """Every shipped kernel, by folder, for both half types."""
    for path in sorted(KERNELS.glob("*/*.cu")):
        for half in ({}, {"HALF_FP16": 1}):
            macros: Mapping[str, int] = {**_NUMBERS, **half}
            unit = read_unit(SourceFile.read(path), macros, folder_headers(KERNELS))
            yield path.parent.name, read_program(unit)


def current_digests() -> list[tuple[Lemma, list[str]]]:
    """Each row of the table with the digests that shipped kernels have now."""
    programs = list(shipped_programs())
    rows: list[tuple[Lemma, list[str]]] = []
    for lemma in load_lemmas().rows:
        fitting = [
            p for name, p in programs if lemma.kind != "rows" or (lemma.team == "warpgroup") == (name == "sm90a")
        ]
        rows.append((lemma, sorted({d for p in fitting for d in helper_digests(p, lemma)})))
    return rows


def main() -> None:
    """Rewrites the digest lists in place; everything else of the table stays byte for byte."""
    lists = iter(digests for _, digests in current_digests())
    text = TABLE.read_text(encoding="utf-8")
    new = re.sub(r"^digests = \[[^\]]*\]", lambda _: _list(next(lists)), text, flags=re.MULTILINE)
    TABLE.write_text(new, encoding="utf-8")


def _list(digests: list[str]) -> str:
    return "digests = [" + ", ".join(f'"{d}"' for d in digests) + "]"


if __name__ == "__main__":
    main()
