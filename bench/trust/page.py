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


_PROOFS: Final = """## What is proved of a kernel, and what is tested

Of every target, whoever wrote it, `cubridge/judge/proof` reads back from the regions what it computes and asks, part by part, whether that is the
reference's. The report has a line for each part; its first line says what the result rests on.

| part | is proved if | by |
| --- | --- | --- |
| mask | masked tiles hide exactly the keys that the reference hides, and every key past the end | solver |
| score, weight | the weight of a key is the reference's times a number of its row, for every raw score | algebra, cases |
| rows | each field of the row state is a sum or maximum over the keys seen so far, relative to a reference; it is so at the start, after any tile and for any new reference; the largest weight stays within 2^64 of 1 | induction: algebra, cases, solver |
| finalize, LSE | output and log-sum-exp of a row follow from these as the reference says; a row that sees no key gives 0 and -inf | algebra, cases |
| captures | each parameter holds the captured value of its name, of its extents and type | solver |
| keys | no key that a row sees is outside of the visited tiles; every key of an unmasked tile is seen by every row; no tile is visited twice; all roles take every step once and in order, whatever their number | solver |
| schedule | every query tile of every head and batch is met once, with the reference's key head | solver |

All of it holds for every size that the verifier allows (B 512, heads 256, lengths 2^20), every value of captured tensors, every raw score. What is decided by which:

- **Solver**: integers and predicates, by z3, with `//` and `%` that floor and captured tensors as functions that nothing is known of. Each question has a
  limit in steps of the solver, the same on every machine; what it does not decide is not proved. Where a claim does not hold it gives a point, which goes
  into the report and to the model.
- **Algebra**: quotients of sums of products with rational powers and exponentials (`sums.py`, `formulas.py`). A decimal is the simplest fraction that rounds to it. Other
  functions are identities of these (`rewrites.py`), or functions that nothing is known of.
- **Cases**: where the sign of a number or the truth of a predicate decides, each answer in turn. Cases that contradict themselves are left out.

Assumed, and not proved: arithmetic is that of the real numbers (rounding has its own bound, which runs are held to); scores, captured floats and what they make are finite;
captured integers are within the size that the report says; Hk divides Hq; a grid has as many blocks as there are query tiles, where no counter says so; what `any_lane` skips is an exact no-op (CU225); the
orchestration computes scores, output and stores as the structure rules say (CU214, CU263). Believed: z3, this package and the rules above.

Refused as not proved: conditions on floats that fp32 may round, integers past 2^24 that become floats, division by what may be 0 and is not so in the reference, state
that nothing explains (a counter of tiles), a reference of the row that may leave its largest score.

What a part without a proof has are tests: runs against the fp64 oracle and points of long problems. Of a kernel that rules made that is said and allowed. Of what a model wrote it is
refused, unless the user says `--accept tested`; a text that lifting cannot read, and CuIR that a model read from a text, are judged by runs alone and refused unless the user says
`--accept runs`. A part with a counterexample is refused always.

`tests/judge/proof` holds kernels that agree with their reference at every size and value of the checks and nowhere else, plants rules that are not sound into the prover,
and asks numbers about every identity. Answers are kept under `$CUBRIDGE_CACHE/proofs` by the content of question and prover.
"""


def page() -> str:
    """The text of docs/trust.md."""
    return "\n".join((_HEAD, *_instructions(), "", *_helpers(), "", *_functions(), "", _PROOFS))


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
