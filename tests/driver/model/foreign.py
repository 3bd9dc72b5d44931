"""A kernel of one's own that no rule reads: the sm80 kernel with a loop that tests at its end."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

from cubridge.driver.kernels import FOLDER, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.model.anchored import statements
from cubridge.frontend.cuda.lift import Lifted
from cubridge.ir.printer import to_text

SOURCE = FOLDER / "sm80" / "attention_forward.cu"
_CHANGES = (
    ("    #pragma unroll 1\n    for (int t = 0; t < count; ++t) {\n", "    int t = 0;\n    if (count > 0) do {\n"),
    ("        slot ^= 1;\n    }\n", "        slot ^= 1;\n    } while (++t < count);\n"),
)


@cache
def foreign_text() -> str:
    text = SOURCE.read_text(encoding="utf-8")
    for old, new in _CHANGES:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def write_foreign(folder: Path) -> Path:
    """The text with its contract, whose headers are those of the package."""
    path = folder / "attention_forward.cu"
    path.write_text(foreign_text(), encoding="utf-8")
    contract = SOURCE.with_suffix(".toml").read_text(encoding="utf-8")
    path.with_suffix(".toml").write_text(contract.replace('include = ".."', f'include = "{FOLDER}"'), encoding="utf-8")
    return path


@cache
def original(head_dim: int = 64) -> Lifted:
    return lift_kernel(choose_kernel("sm80"), "bf16", head_dim)


@cache
def annotated(head_dim: int = 64) -> str:
    """The CuIR that the rules lift from the original, with the lines of the foreign text."""
    kernel = original(head_dim).kernel
    lines = to_text(kernel).rstrip("\n").split("\n")
    body = [*statements(kernel.body)]
    start = next(n for n, line in enumerate(lines) if line.startswith("def attention_forward")) + 1
    moved = _moved_lines()
    printed = [n for n in range(start, len(lines)) if lines[n].strip() and not lines[n].strip().startswith("else:")]
    assert len(printed) == len(body)
    for number, statement in zip(printed, body, strict=True):
        lines[number] += f"  # {moved[statement.span.location[0]]}"
    return "\n".join(lines) + "\n"


def _moved_lines() -> dict[int, int]:
    """From lines of the original to lines of the foreign text; the head of the loop is its own."""
    old, new = SOURCE.read_text(encoding="utf-8").split("\n"), foreign_text().split("\n")
    moved: dict[int, int] = {}
    for tag, a, a_end, b, _ in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            moved |= {line + 1: line - a + b + 1 for line in range(a, a_end)}
    loop = next(n for n, line in enumerate(old, 1) if "for (int t = 0; t < count" in line)
    moved[loop] = next(n for n, line in enumerate(new, 1) if "do {" in line)
    return moved


def lift_reply(cuir: str | None = None) -> str:
    return (
        "```syntax\n1-90: macros, structs\n91-190: regions\n200-: the kernel\n```\n\n"
        "```workers\n200-: all threads of the block\n```\n\n"
        f"```cuir\n{annotated() if cuir is None else cuir}```\n"
    )
