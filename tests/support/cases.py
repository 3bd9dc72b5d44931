"""Case files: a command, its input and its whole output in one text, so that none goes stale.

    # cuirc: verify -                      the command; `-` reads the input from stdin
    # kernel: sm80                         the input is this golden kernel with the definitions below put in ..
    # change: wait_group(1) -> commit()    .. with this replaced, once, ..
    # without: zero(o)                     .. and the first line that holds this left out
    @region
    def score(s, kv_start, tile):
        s = s * 0.5
    # ---- expected ----
    what the command prints, then its diagnostics, then `exit N` unless that is 0

Without `# kernel:` the input is what stands between the command and the line of the expectation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.golden_texts import golden_file

CASES: Final = Path(__file__).parents[1] / "cases"
EXPECTED: Final = "# ---- expected ----\n"

_DIRECTIVE: Final = re.compile(r"# (cuirc|kernel|change|without): (.*)\n")
_DEFINITION: Final = re.compile(
    r"^(?:@\w+[^\n]*\ndef (\w+)\(.*?|(\w+)\(.*?)(?=\n\n|\n@|\n\w+\(|\n*\Z)", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Case:
    """One case file. `head`: everything above the line of the expectation."""

    path: Path
    head: str
    expected: str
    command: tuple[str, ...]
    input: str

    @staticmethod
    def read(path: Path) -> Case:
        head, expected = path.read_text(encoding="utf-8").split(EXPECTED)
        directives = _DIRECTIVE.findall(head)
        command = next(value for key, value in directives if key == "cuirc")
        rest = _DIRECTIVE.sub("", head)
        kernels = [value for key, value in directives if key == "kernel"]
        text = merged(golden_file(kernels[0]).text, rest) if kernels else rest
        for key, value in directives:
            text = _edited(text, key, value)
        return Case(path, head, expected, tuple(command.split()), text)

    def update(self, output: str) -> None:
        self.path.write_text(self.head + EXPECTED + output, encoding="utf-8")


def merged(text: str, definitions: str) -> str:
    """`text` with each section and function of `definitions` in place of the one of that name."""
    changes = {m[1] or m[2]: m[0] for m in _DEFINITION.finditer(definitions)}
    found = {m[1] or m[2] for m in _DEFINITION.finditer(text)}
    assert changes.keys() <= found, changes.keys() - found
    return _DEFINITION.sub(lambda m: changes.get(m[1] or m[2], m[0]), text)


def _edited(text: str, key: str, value: str) -> str:
    if key == "change":
        old, new = value.replace("\\n", "\n").split(" -> ")
        assert old in text, old
        return text.replace(old, new, 1)
    if key == "without":
        lines = text.split("\n")
        del lines[next(at for at, line in enumerate(lines) if value in line)]
        return "\n".join(lines)
    return text
