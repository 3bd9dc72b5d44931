"""PTX broken at random, on a library with sanitizers: `python -m tests.backend.ptx.fuzz LIBRARY CASES SEED COUNT`.

Each text ends with a run or with a diagnostic that has a place. The last one lies beside the cases, if one does not."""

from __future__ import annotations

import pickle
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import cubridge.backend.ptx.library as native

if __name__ == "__main__":
    native.library = partial(native.library, Path(sys.argv[1]))

from cubridge.backend.ptx.machine import Machine, PtxLaunch, Schedule
from cubridge.backend.ptx.parser import parse_program
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import NOWHERE, SourceFile

_NUMBERS: Final = (
    "0", "1", "-1", "7", "31", "33", "255", "4097", "65536", "0x7fffffff", "0x80000000", "0xffffffff", "0x100000000",
    "-0x80000001", "0x7fffffffffffffff", "0xffffffffffffffff", "123456789012345678901234567890", "0b1", "010", "0f7F800000",
    "0d7FF8000000000000", "08",
)  # fmt: skip
_WORDS: Final = (
    "_",
    "%tid.x",
    "%laneid",
    "%nosuch",
    "{",
    "}",
    "[",
    "]",
    ",",
    ";",
    "!",
    "@%p1",
    "/*",
    '"',
    ".align",
    "-",
)
_MODIFIERS: Final = (
    "s8", "u16", "b32", "s64", "f16x2", "bf16", "pred", "v2", "v4", "v8", "ftz", "sat", "wide", "hi", "x4", "trans", "shared",
    "global", "local", "param", "const", "cta", "cluster", "aligned", "relaxed", "acq_rel", "noinc", "2d", "5d",
    "multicast::cluster", "m64n256k16",
)  # fmt: skip
_TOKEN: Final = re.compile(r"[%$\w.:]+|\S")
_NUMBER: Final = re.compile(r"(?<![\w%.$])-?(?:0[xXfF][0-9a-fA-F]+|\d+)\b")
_UNPLACED: Final = ("CU836", "CU837", "not zero again when the kernel ends")
"""Of a launch as a whole, of time, and of memory at the end."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with a launch that it is right for."""

    name: str
    ptx: bytes
    entry: str
    launch: PtxLaunch


def broken(text: str, draw: random.Random) -> str:
    lines = text.split("\n")
    written = [n for n, line in enumerate(lines) if ";" in line and ".loc" not in line]
    for _ in range(draw.randint(1, 4)):
        at = draw.choice(written)
        lines[at] = _broken_line(lines[at], lines[draw.choice(written)], draw)
    return "\n".join(lines)


def _broken_line(line: str, other: str, draw: random.Random) -> str:
    tokens, others = list(_TOKEN.finditer(line)), list(_TOKEN.finditer(other))
    if not tokens or not others:
        return other
    token, second = draw.choice(tokens), draw.choice(others)[0]
    match draw.randrange(10):
        case 0:
            return line[: token.start()] + line[token.end() :]
        case 1:
            return line[: token.start()] + second + line[token.end() :]
        case 2:
            return line[: token.end()] + " " + draw.choice(_WORDS) + line[token.end() :]
        case 3:
            return line[: token.start()] + draw.choice(_WORDS) + line[token.end() :]
        case 4:
            return re.sub(r"\.[a-z]\w*", "." + draw.choice(_MODIFIERS), line, count=draw.randint(1, 2))
        case 5:
            head, comma, tail = line.partition(",")
            return (
                f"{head.rpartition(' ')[0]} {tail.rstrip(';')}, {head.rpartition(' ')[2]};" if comma else line + other
            )
        case 6:
            return ""
        case 7:
            return line + other
        case _:
            numbers = list(_NUMBER.finditer(line)) or [token]
            found = draw.choice(numbers)
            return line[: found.start()] + draw.choice(_NUMBERS) + line[found.end() :]


def end_of(case: Case, text: str, draw: random.Random) -> str:
    """`run`, or the code of what ended it."""
    try:
        machine = Machine(parse_program(SourceFile("kernel.ptx", text.encode()), case.entry), {})
        launch = replace(
            case.launch,
            params=case.launch.params[: machine.program.param_bytes].ljust(machine.program.param_bytes, b"\0"),
        )
        machine.run(launch, draw.choice(tuple(Schedule)), 0.5)
    except CuError as error:
        first = error.diagnostics[0]
        is_placed = first.span is not NOWHERE or any(x in f"{first.code} {first.message}" for x in _UNPLACED)
        assert is_placed, f"no place: {first.message}"
        return first.code
    return "run"


def main(cases: Path, seed: int, count: int) -> None:
    draw = random.Random(seed)
    ends = Counter[str]()
    found: list[Case] = pickle.loads(cases.read_bytes())
    for _ in range(count):
        case = draw.choice(found)
        text = broken(case.ptx.decode(), draw)
        cases.with_name("last.ptx").write_text(text)
        ends[end_of(case, text, draw)] += 1
    print(*(f"{code} {n}" for code, n in sorted(ends.items())), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
