"""Registers helper bodies: writes the digests that helpers have now into a table of lemmas, to be reviewed as a diff.

Run after a helper changed and its emulator and GPU tests passed:
    python -m cubridge.frontend.cuda.register                             the shipped kernels, `lemmas.toml`
    python -m cubridge.frontend.cuda.register CONTRACT.toml TABLE.toml    a kernel with a table of its own
A row of which the texts declare nothing is a fault.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cubridge.frontend.contract import read_contract
from cubridge.frontend.cuda.digest import Digests
from cubridge.frontend.cuda.lemmas import TABLE, Lemma, read_rows
from cubridge.frontend.cuda.structure import Program, read_program
from cubridge.frontend.cuda.text import folder_headers, read_unit
from cubridge.ir.contract import instantiations
from cubridge.ir.diagnostics import CuError, render
from cubridge.ir.source import SourceFile

PACKAGED = Path(__file__).parents[2] / "kernels"
SHIPPED = tuple(sorted(PACKAGED.glob("*/attention_*.toml")))


def programs(contracts: Sequence[Path]) -> Iterator[tuple[str, Program]]:
    """The kernels of contracts, by architecture, one for each element type."""
    for path in contracts:
        contract = read_contract(path)
        source = SourceFile.read(path.parent / contract.source)
        for dtype, _ in contract.dtypes:
            instance = instantiations(contract, dtype, contract.head_dims[0])[0]
            headers = folder_headers(path.parent / contract.include, PACKAGED)
            yield contract.arch, read_program(read_unit(source, dict(instance.macros), headers))


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


def current_digests(table: Path = TABLE, contracts: Sequence[Path] = SHIPPED) -> list[tuple[Lemma, list[str]]]:
    """Each row of a table with the digests that the kernels have now."""
    known = list(programs(contracts))
    rows: list[tuple[Lemma, list[str]]] = []
    for lemma in read_rows(table):
        fitting = [p for arch, p in known if lemma.arch in ("", arch)]
        rows.append((lemma, sorted({d for p in fitting for d in helper_digests(p, lemma)})))
    return rows


def register(table: Path = TABLE, contracts: Sequence[Path] = SHIPPED) -> list[Lemma]:
    """Rewrites the digest lists in place; everything else of the table stays byte for byte. Gives the rows of which the texts
    declare nothing."""
    rows = current_digests(table, contracts)
    lists = iter(digests for _, digests in rows)
    text = table.read_text(encoding="utf-8")
    new = re.sub(r"^digests = \[[^\]]*\]", lambda _: _list(next(lists)), text, flags=re.MULTILINE)
    table.write_text(new, encoding="utf-8")
    return [lemma for lemma, digests in rows if not digests]


def _list(digests: list[str]) -> str:
    return "digests = [" + ", ".join(f'"{d}"' for d in digests) + "]"


def main(arguments: Sequence[str]) -> int:
    """The command of this module. 0 done, 1 a row or a text is at fault, 2 usage."""
    if len(arguments) not in (0, 2):
        print("usage: python -m cubridge.frontend.cuda.register [CONTRACT.toml TABLE.toml]", file=sys.stderr)
        return 2
    table, contracts = (Path(arguments[1]), (Path(arguments[0]),)) if arguments else (TABLE, SHIPPED)
    try:
        unused = register(table, contracts)
    except CuError as error:
        print(render(error.diagnostics), file=sys.stderr)
        return 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    for lemma in unused:
        print(f"{table}: no text declares `{lemma.name}` with {len(lemma.params)} parameters", file=sys.stderr)
    return 1 if unused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
