"""Rows of the instruction table against the hardware, on random and edge operands: `python -m bench.trust.rows`, on a GPU.

Every row that works lane by lane or on the lanes of a warp is put into a kernel of its own, which the driver assembles and the PTX
machine runs on the same operands. Bits must be equal; approximate functions have the bound that their row claims. Rows of memory,
barriers, bulk copies and wgmma have no text of their own here: whole kernels test them (`bench.trust.gpu`, `bench/gpu.py`)."""

from __future__ import annotations

import argparse
import ctypes
import math
import random
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch, Schedule, TensorMemory
from cubridge.backend.ptx.parser import parse_program
from cubridge.backend.ptx.table import Row, Token, load_table
from cubridge.ir.source import SourceFile

LANES: Final = 32
BLOCKS: Final = 16
MOST_SOURCES: Final = 12
MOST_RESULTS: Final = 4
_ELSEWHERE: Final = (
    "ld", "st", "atom", "red.", "cp.", "cvta", "mapa", "bar", "mbarrier", "fence", "membar", "wgmma", "ldmatrix", "stmatrix",
    "setmaxnreg", "griddepcontrol", "prefetch", "createpolicy", "bra", "ret", "exit", "trap", "nanosleep",
)  # fmt: skip
"""Rows that a whole kernel tests, or that do nothing to see."""
_MEMBERS: Final = {"shfl.sync": 3, "vote.sync": 1, "redux.sync": 1, "match.": 1, "elect.sync": 0}
"""Which source of a row is its member mask."""
_DOUBLES: Final = re.compile(r"(add|sub|mul|fma)\b.*\.f64$")
"""Rows that claim nothing of the payload of a NaN: the hardware keeps one of its operands'."""
_MAGNITUDE: Final = (1 << 63) - 1
_INFINITY: Final = 0x7FF << 52
_EDGES: Final = (
    0, 1 << 31, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF,
    0x3EFFFFFF, 0x4B800001, 0x3FFFFFFF, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF, 15, 16, 31, 32, 33, 63, 64, 65, 0x40490FDB, 0xC2C80000,
    0x3F7FFFFF, 0x33000000, 0x38FFF000, 0x477FF000, 0x5F000000, 0x4F000000, 0xCF000000, 0x7FFF8000, 0x00010001, 0x7C007C00,
)  # fmt: skip
"""Zeros, ones, infinities, NaN, denormals, ties, integer extremes, shifts of the width and more, halves."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Of an approximate function: relative, absolute, and the operands that the claim is for."""

    relative: float
    absolute: float = 0.0
    least: float = 0.0
    most: float = math.inf


BOUNDS: Final = {
    "ex2.approx": Bound(2.0**-22), "lg2.approx": Bound(2.0**-22, 2.0**-22), "rcp.approx": Bound(2.0**-23, least=2.0**-126),
    "sqrt.approx": Bound(2.0**-22), "rsqrt.approx": Bound(2.0**-22), "tanh.approx": Bound(2.0**-10.9),
    "sin.approx": Bound(0.0, 2.0**-20.5, most=math.pi), "cos.approx": Bound(0.0, 2.0**-20.5, most=math.pi),
    "div.approx": Bound(2.0**-22, least=2.0**-120, most=2.0**120), "div.full": Bound(2.0**-22),
}  # fmt: skip


# ---- texts -----------------------------------------------------------------------------------------------------------


def tested_rows() -> list[Row]:
    return [row for row in load_table().rows.values() if not row.name.startswith(_ELSEWHERE)]


def _parts(tokens: Sequence[Token]) -> list[Token]:
    return [Token(token.kind) for token in tokens for _ in range(token.count)]


def _group(row: Row, token: Token, names: Iterator[str]) -> str:
    found = [next(names) for _ in range(token.count)]
    return found[0] if token.count == 1 and not row.name.startswith("mma") else "{" + ", ".join(found) + "}"


def _members(row: Row) -> int | None:
    return next((at for name, at in _MEMBERS.items() if row.name.startswith(name)), None)


def entry(row: Row) -> str:
    """A kernel that loads 8 bytes an operand, executes the row, and stores 8 bytes a result, lane by lane."""
    sources, results = _parts(row.sources), _parts(row.results)
    lines = [f".visible .entry row{row.index}(.param .u64 given, .param .u64 made)", "{"]
    lines += [".reg .b64 %from, %to, %wide, %value;", ".reg .b32 %lane, %block, %bit;"]
    for kind, tokens in (("s", sources), ("d", results)):
        for n, token in enumerate(tokens):
            lines.append(f".reg .{ {'p': 'pred', 'R': 'b64'}.get(token.kind, _narrow(row, kind, n)) } %{kind}{n};")
    lines += [
        "mov.u32 %lane, %tid.x;", "mov.u32 %block, %ctaid.x;", f"mad.lo.u32 %lane, %block, {LANES}, %lane;",
        "mul.wide.u32 %wide, %lane, 8;", "ld.param.u64 %from, [given];", "ld.param.u64 %to, [made];",
        "add.s64 %from, %from, %wide;", "add.s64 %to, %to, %wide;",
    ]  # fmt: skip
    stride = 8 * LANES * BLOCKS
    for n, token in enumerate(sources):
        lines.append(f"ld.global.u64 %value, [%from+{n * stride}];")
        lines.append(_take(token, f"%s{n}", _narrow(row, "s", n)))
    lines.append(_statement(row))
    for n, token in enumerate(results):
        lines.append(_give(token, f"%d{n}", _narrow(row, "d", n)))
        lines.append(f"st.global.u64 [%to+{n * stride}], %value;")
    return "\n".join([*lines, "ret;", "}"])


def _narrow(row: Row, kind: str, n: int) -> str:
    """16-bit operands need registers of 16 bits: the assembler wants the width that the name says."""
    words = row.name.split(".")
    types = [w for w in words[1:] if w.lstrip("subf").isdigit() or w in ("bf16", "f16", "bf16x2", "f16x2")]
    if words[0] == "cvt":
        chosen = types[0] if kind == "d" else types[-1]
        return (
            "b16"
            if chosen[-2:] in ("16", "s8", "u8", "b8") and "x2" not in chosen and not chosen.endswith("x2")
            else "b32"
        )
    if words[0] in ("shl", "shr") and n == 1:
        return "b32"
    if words[0] in ("mul", "mad") and "wide" in words:
        return "b16" if types[-1].endswith("16") and kind == "s" else "b32"
    if words[0] == "mov" and " " in row.name:
        parts = row.name.endswith("4")
        small = ("unpack" in row.name) == (kind == "d")
        wide64 = ".b64" in row.name
        return (
            ("b16" if (wide64 and parts) or (not wide64 and not parts) else "b8" if parts else "b32")
            if small
            else "b32"
        )
    if words[0] == "setp" and kind == "d":
        return "b32"
    return "b16" if types and types[-1].endswith("16") and words[0] not in ("mma",) else "b32"


def _take(token: Token, name: str, narrow: str) -> str:
    match token.kind:
        case "p":
            return f"cvt.u32.u64 %bit, %value;\nand.b32 %bit, %bit, 1;\nsetp.ne.u32 {name}, %bit, 0;"
        case "R":
            return f"mov.b64 {name}, %value;"
        case _:
            return f"cvt.u{ {'b8': 8, 'b16': 16}.get(narrow, 32) }.u64 {name}, %value;"


def _give(token: Token, name: str, narrow: str) -> str:
    match token.kind:
        case "p":
            return f"selp.u64 %value, 1, 0, {name};"
        case "R":
            return f"mov.b64 %value, {name};"
        case _:
            return f"cvt.u64.u{ {'b8': 8, 'b16': 16}.get(narrow, 32) } %value, {name};"


def _statement(row: Row) -> str:
    sources, results = (f"%s{n}" for n in range(MOST_SOURCES)), (f"%d{n}" for n in range(MOST_RESULTS))
    operands = [_group(row, token, results) for token in row.results]
    if len(operands) == 2:
        operands = ["|".join(operands)]
    given = [_group(row, token, sources) for token in row.sources]
    for n, token in enumerate(row.sources):
        if token.kind == "i":
            given[n] = "0x1e"
    if (at := _members(row)) is not None:
        given[at] = "0xffffffff"
    name = row.name.split(" ")[0]
    return f"{name} {', '.join([*operands, *given])};"


def module(rows: Sequence[Row]) -> str:
    return ".version 8.6\n.target sm_90a\n.address_size 64\n" + "\n".join(map(entry, rows)) + "\n"


# ---- operands --------------------------------------------------------------------------------------------------------


def operands(row: Row, seed: int) -> list[list[int]]:
    """8 bytes a lane for each source: edges against each other, then random bits and floats."""
    draw = random.Random(f"{row.name} {seed}")
    count = LANES * BLOCKS
    return [[_operand(row, n, lane, draw) for lane in range(count)] for n in range(len(_parts(row.sources)))]


def _operand(row: Row, n: int, lane: int, draw: random.Random) -> int:
    if row.name.startswith("mma"):
        pair = [struct.unpack("<I", struct.pack("<f", float(draw.randint(-3, 3))))[0] for _ in range(2)]
        if n >= sum(t.count for t in row.sources[:2]):
            return pair[0]
        return _halves(row, pair)
    value = _EDGES[(lane * (7 * n + 1) + 5 * n) % len(_EDGES)] if lane < LANES * BLOCKS // 2 else _random(draw)
    if draw.random() < 0.3:
        value |= _EDGES[draw.randrange(len(_EDGES))] << 32
    if row.name.startswith(("div.s", "div.u", "rem.")) and n == 1:
        value |= 1  # by zero there is no result to compare
    return value


def _halves(row: Row, pair: list[int]) -> int:
    if "bf16" in row.name:
        return pair[0] >> 16 | pair[1] & 0xFFFF0000
    floats = [struct.unpack("<f", struct.pack("<I", x))[0] for x in pair]
    low, high = (struct.unpack("<H", struct.pack("<e", x))[0] for x in floats)
    return low | high << 16


def _random(draw: random.Random) -> int:
    if draw.random() < 0.5:
        return draw.getrandbits(64)
    return struct.unpack("<I", struct.pack("<f", draw.gauss(0.0, 1.0) * 2.0 ** draw.randint(-20, 20)))[0]


def _bytes(values: Sequence[Sequence[int]]) -> bytes:
    return b"".join(struct.pack("<Q", x & (1 << 64) - 1) for column in values for x in column)


# ---- both sides ------------------------------------------------------------------------------------------------------


def on_machine(row: Row, given: bytes) -> bytes:
    """What the machine makes of a row's kernel."""
    text = ".version 8.6\n.target sm_90a\n.address_size 64\n" + entry(row)
    machine = Machine(parse_program(SourceFile.from_text("row.ptx", text), f"row{row.index}"), {})
    size = 8 * LANES * BLOCKS * max(1, len(_parts(row.results)))
    tensors = (TensorMemory("given", given or b"\0" * 8, 0, 16), TensorMemory("made", b"\xff" * size, 1, 16))
    launch = PtxLaunch(Grid((BLOCKS, 1, 1), (LANES, 1, 1), 0), bytes(16), tensors, ((0, 0), (8, 1)))
    return machine.run(launch, Schedule.FORWARD, 20.0)[0]


class Hardware:
    """The rows' kernels on the GPU."""

    def __init__(self, rows: Sequence[Row]) -> None:
        import torch

        from cubridge.backend.gpu.driver import checked, cuda_driver

        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.driver, self.checked = cuda_driver(), checked
        self.loaded: Any = checked("assembling", self.driver.cuModuleLoadData(module(rows).encode() + b"\0"))

    def run(self, row: Row, given: bytes) -> bytes:
        import torch

        size = 8 * LANES * BLOCKS * max(1, len(_parts(row.results)))
        source = torch.frombuffer(bytearray(given or b"\0" * 8), dtype=torch.uint8).cuda()
        made = torch.full((size,), 255, dtype=torch.uint8, device="cuda")
        function = self.checked("loading", self.driver.cuModuleGetFunction(self.loaded, f"row{row.index}".encode()))
        values = (source.data_ptr(), made.data_ptr())
        arguments = (values, (ctypes.c_uint64, ctypes.c_uint64))
        self.checked("launching", self.driver.cuLaunchKernel(function, BLOCKS, 1, 1, LANES, 1, 1, 0, 0, arguments, 0))
        torch.cuda.synchronize()
        return bytes(made.cpu().tolist())


# ---- comparing -------------------------------------------------------------------------------------------------------


def difference(row: Row, given: Sequence[Sequence[int]], right: bytes, found: bytes) -> str | None:
    """The first result that the row does not allow."""
    bound = next((b for name, b in BOUNDS.items() if row.name.startswith(name)), None)
    for n, (a, b) in enumerate(zip(struct.iter_unpack("<Q", right), struct.iter_unpack("<Q", found), strict=True)):
        if a == b:
            continue
        lane = n % (LANES * BLOCKS)
        operand = [column[lane] for column in given]
        if _DOUBLES.match(row.name) and a[0] & _MAGNITUDE > _INFINITY and b[0] & _MAGNITUDE > _INFINITY:
            continue
        if bound is None or not _within(bound, operand, a[0], b[0]):
            return f"{[hex(x) for x in operand]}: {a[0]:#x} on the hardware, {b[0]:#x} here"
    return None


def _within(bound: Bound, operand: Sequence[int], right: int, found: int) -> bool:
    last = abs(_float(operand[-1] & 0xFFFFFFFF))
    if not bound.least <= last <= bound.most and (bound.least or bound.most < math.inf):
        return True
    a, b = _float(right), _float(found)
    if a != a or b != b:
        return a != a and b != b
    if math.isinf(a) or math.isinf(b):
        return a == b or min(abs(a), abs(b)) > 3.4e38
    return abs(a - b) <= max(bound.relative * abs(a), bound.absolute, 2.0**-126)


def _float(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.trust.rows", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="sets of operands a row")
    parser.add_argument("--text", type=Path, help="write the kernels as PTX and stop; needs no GPU")
    given = parser.parse_args()
    rows = tested_rows()
    if given.text is not None:
        given.text.write_text(module(rows))
        return 0
    hardware, wrong = Hardware(rows), 0
    for row in rows:
        for seed in range(given.seeds):
            values = operands(row, seed)
            data = _bytes(values)
            told = difference(row, values, hardware.run(row, data), on_machine(row, data))
            if told is not None:
                wrong += 1
                print(f"{row.name}: {told}")
                break
    print(f"{len(rows) - wrong} of {len(rows)} rows hold on {LANES * BLOCKS * given.seeds} operands each")
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
