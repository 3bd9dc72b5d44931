"""The table of instructions, and what rows make of edge values: against numbers that torch or Python computes."""

from __future__ import annotations

import struct

import pytest
import torch

import bench.trust.rows as trust
from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch, Schedule, TensorMemory
from cubridge.backend.ptx.parser import parse_program
from cubridge.backend.ptx.table import load_table
from cubridge.ir.source import SourceFile

EDGES = (
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345,
    0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x3EFFFFFF, 0x4B800000, 0x4B800001, 0x3FFFFFFF,
    0x7FFFFFFF, 0x80000001, 0xFFFFFFFF, 31, 32, 33, 0x12345678, 0xC2C80000,
    0x3F7FFFFF, 0x33000000, 0x38FFF000, 0x477FE000, 0x477FF000, 0x5F000000, 0x4F000000, 0xCF000000,
)  # fmt: skip
"""32 words: zeros, ones, infinities, NaN, denormals, ties, integer extremes, shifts of the width and more."""


def run_row(instruction: str, a: list[int], b: list[int], c: list[int], width: int = 4) -> list[int]:
    """`instruction` on registers a, b, c -> d, lane by lane."""
    kind, register = ("b32", "%r") if width == 4 else ("b64", "%q")
    body = f"""
.version 9.0
.target sm_90a
.visible .entry kernel(.param .u64 given, .param .u64 made)
{{
.reg .pred %p; .reg .b32 %r<5>; .reg .b64 %q<5>; .reg .b64 %rd<9>; .reg .b32 %t;
ld.param.u64 %rd1, [given]; ld.param.u64 %rd2, [made];
mov.u32 %t, %tid.x;
mul.wide.u32 %rd3, %t, 8;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
ld.global.{kind} {register}1, [%rd4]; ld.global.{kind} {register}2, [%rd4+256]; ld.global.{kind} {register}3, [%rd4+512];
{instruction}
st.global.b64 [%rd5], %q4;
ret;
}}
"""
    machine = Machine(parse_program(SourceFile.from_text("row.ptx", body), "kernel"), {})
    given = b"".join(struct.pack("<Q", x) for values in (a, b, c) for x in values)
    tensors = (TensorMemory("given", given, 0, 16), TensorMemory("made", b"\xff" * 256, 1, 16))
    launch = PtxLaunch(Grid((1, 1, 1), (32, 1, 1), 0), bytes(16), tensors, ((0, 0), (8, 1)))
    [made] = machine.run(launch, Schedule.FORWARD, 5.0)
    return list(struct.unpack("<32Q", made))


def words(instruction: str, a: list[int], b: list[int] | None = None, c: list[int] | None = None) -> list[int]:
    found = run_row(f"{instruction}\ncvt.u64.u32 %q4, %r4;", a, b or a, c or a)
    assert all(x < 1 << 32 for x in found)
    return found


A, B = list(EDGES), [*EDGES[7:], *EDGES[:7]]


def floats(bits: list[int]) -> torch.Tensor:
    return torch.tensor([struct.unpack("<f", struct.pack("<I", x))[0] for x in bits], dtype=torch.float32)


def canonical(values: torch.Tensor) -> list[int]:
    bits = [x & 0xFFFFFFFF for x in values.view(torch.int32).tolist()]
    return [0x7FFFFFFF if n else x for x, n in zip(bits, values.isnan().tolist(), strict=True)]


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add.f32", torch.add), ("sub.rn.f32", torch.sub), ("mul.f32", torch.mul), ("div.rn.f32", torch.div),
        ("max.f32", torch.fmax), ("min.f32", torch.fmin), ("max.NaN.f32", torch.maximum), ("min.NaN.f32", torch.minimum),
    ],
)  # fmt: skip
def test_floats(name: str, expected: object) -> None:
    assert callable(expected)
    right = canonical(expected(floats(A), floats(B)))
    found = words(f"{name} %r4, %r1, %r2;", A, B)
    zeros = {0, 0x80000000}
    assert all(f == r or (name[:3] in ("max", "min") and {f, r} == zeros) for f, r in zip(found, right, strict=True))


def test_signs_of_zeros_in_max_and_min() -> None:
    a, b = [0, 0x80000000] * 16, [0x80000000, 0] * 16
    assert set(words("max.f32 %r4, %r1, %r2;", a, b)) == {0}
    assert set(words("min.f32 %r4, %r1, %r2;", a, b)) == {0x80000000}


def test_flushed_denormals() -> None:
    found = words("add.ftz.f32 %r4, %r1, %r2;", [1, 0x80000001, 0x00800000, 0x3F800000] * 8, [0] * 32)
    assert found[:4] == [0, 0, 0x00800000, 0x3F800000]
    assert words("ex2.approx.ftz.f32 %r4, %r1;", [0xC3020000] * 32)[0] == 0  # 2^-130
    assert words("ex2.approx.f32 %r4, %r1;", [0xC3020000] * 32)[0] == 1 << 19


def test_fused_sums_are_rounded_once() -> None:
    a, b, c = [0x3F800001] * 32, [0x3F800001] * 32, [0xBF800002] * 32  # (1 + 2^-23)^2 - 1 - 2^-22 = 2^-46
    assert words("fma.rn.f32 %r4, %r1, %r2, %r3;", a, b, c)[0] == 0x28800000


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_halves(name: str, dtype: torch.dtype) -> None:
    right = [x & 0xFFFF for x in floats(A).to(dtype).view(torch.int16).tolist()]
    right = [0x7FFF if n else x for x, n in zip(right, floats(A).isnan().tolist(), strict=True)]
    found = words(f"cvt.rn.{name}x2.f32 %r4, %r2, %r1;", A, B)
    assert [x & 0xFFFF for x in found] == right
    single = words(f"cvt.rn.{name}.f32 %r4, %r1;\ncvt.f32.{name} %r4, %r4;", A)
    assert [0x7FFFFFFF if x & 0x7FFFFFFF > 0x7F800000 else x for x in single] == canonical(floats(A).to(dtype).float())


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("add.s32 %r4, %r1, %r2;", lambda a, b: a + b),
        ("sub.u32 %r4, %r1, %r2;", lambda a, b: a - b),
        ("mul.lo.s32 %r4, %r1, %r2;", lambda a, b: a * b),
        ("mul.hi.s32 %r4, %r1, %r2;", lambda a, b: signed(a) * signed(b) >> 32),
        ("mul.hi.u32 %r4, %r1, %r2;", lambda a, b: a * b >> 32),
        ("max.s32 %r4, %r1, %r2;", lambda a, b: max(signed(a), signed(b))),
        ("min.u32 %r4, %r1, %r2;", lambda a, b: min(a, b)),
        ("shl.b32 %r4, %r1, %r2;", lambda a, b: a << b if b < 32 else 0),
        ("shr.u32 %r4, %r1, %r2;", lambda a, b: a >> b if b < 32 else 0),
        ("shr.s32 %r4, %r1, %r2;", lambda a, b: signed(a) >> min(b, 31)),
        ("shf.l.wrap.b32 %r4, %r1, %r2, %r1;", lambda a, b: ((b << 32 | a) << (a & 31)) >> 32),
        ("shf.r.clamp.b32 %r4, %r1, %r2, %r2;", lambda a, b: (b << 32 | a) >> min(b, 32)),
        ("clz.b32 %r4, %r1;", lambda a, b: 32 - a.bit_length()),
        ("popc.b32 %r4, %r1;", lambda a, b: a.bit_count()),
        ("brev.b32 %r4, %r1;", lambda a, b: int(f"{a:032b}"[::-1], 2)),
        ("bfind.u32 %r4, %r1;", lambda a, b: a.bit_length() - 1),
        ("lop3.b32 %r4, %r1, %r2, %r1, 0x1e;", lambda a, b: a ^ (b | a)),
        ("bfi.b32 %r4, %r1, %r2, 4, 8;", lambda a, b: (b & ~0xFF0) | (a & 0xFF) << 4),
        ("bfe.s32 %r4, %r1, 28, 8;", lambda a, b: signed(a) >> 28),
        ("prmt.b32 %r4, %r1, %r2, 0x7531;", lambda a, b: odd_bytes(a, b)),
        ("abs.s32 %r4, %r1;", lambda a, b: abs(signed(a))),
        ("setp.lt.s32 %p, %r1, %r2;\nselp.b32 %r4, 1, 0, %p;", lambda a, b: signed(a) < signed(b)),
        ("cvt.rzi.s32.f32 %r4, %r1;", lambda a, b: clamp(a, int)),
    ],
)  # fmt: skip
def test_integers(instruction: str, expected: object) -> None:
    assert callable(expected)
    right = [expected(a, b) & 0xFFFFFFFF for a, b in zip(A, B, strict=True)]
    assert words(instruction, A, B) == right


def odd_bytes(a: int, b: int) -> int:
    return int.from_bytes((a.to_bytes(4, "little") + b.to_bytes(4, "little"))[1::2], "little")


def clamp(bits: int, rounded: type[int]) -> int:
    value = float(floats([bits])[0])
    if value != value:
        return 0
    if abs(value) == float("inf") or abs(value) >= 2**31:
        return 2**31 - 1 if value > 0 else -(2**31)
    return rounded(value)


def test_64_bits() -> None:
    a, b = [x << 32 | y for x, y in zip(A, B, strict=True)], [y << 32 | x for x, y in zip(A, B, strict=True)]
    mask = (1 << 64) - 1
    assert run_row("add.s64 %q4, %q1, %q2;", a, b, a, 8) == [(x + y) & mask for x, y in zip(a, b, strict=True)]
    assert run_row("mul.lo.u64 %q4, %q1, %q2;", a, b, a, 8) == [x * y & mask for x, y in zip(a, b, strict=True)]
    assert run_row("mul.hi.u64 %q4, %q1, %q2;", a, b, a, 8) == [x * y >> 64 for x, y in zip(a, b, strict=True)]


def test_shuffles_and_votes() -> None:
    lanes = list(range(32))
    assert words("shfl.sync.bfly.b32 %r4, %r1, 3, 31, -1;", lanes) == [x ^ 3 for x in lanes]
    assert words("shfl.sync.idx.b32 %r4, %r1, 5, 31, -1;", lanes) == [5] * 32
    assert words("shfl.sync.down.b32 %r4|%p, %r1, 4, 31, -1;", lanes) == [x + 4 if x < 28 else x for x in lanes]
    assert words("shfl.sync.up.b32 %r4, %r1, 1, 0, -1;", lanes) == [max(0, x - 1) for x in lanes]
    ballot = "setp.gt.u32 %p, %r1, 7;\nvote.sync.ballot.b32 %r4, %p, -1;"
    assert words(ballot, lanes) == [0xFFFFFF00] * 32
    assert words("redux.sync.add.s32 %r4, %r1, -1;", lanes) == [496] * 32


def test_each_row_is_named_and_explained_once() -> None:
    rows = load_table().rows
    assert len(rows) > 1000 and all(row.meaning for row in rows.values())


def test_each_row_of_lanes_runs_on_the_operands_of_the_gpu_test() -> None:
    rows = trust.tested_rows()
    assert len(rows) > 600
    for row in rows:
        values = trust.operands(row, 0)
        made = trust.on_machine(row, b"".join(struct.pack("<Q", x) for column in values for x in column))
        assert trust.difference(row, values, made, made) is None


def test_the_comparison_with_the_hardware_can_fail() -> None:
    rows = {row.name: row for row in trust.tested_rows()}
    one, above, far = (struct.pack("<Q", x) for x in (0x3F800000, 0x3F800001, 0x3F800010))
    assert trust.difference(rows["add.f32"], [[1]], one, above) is not None
    assert trust.difference(rows["ex2.approx.f32"], [[1]], one, above) is None
    assert trust.difference(rows["ex2.approx.f32"], [[1]], one, far) is not None
