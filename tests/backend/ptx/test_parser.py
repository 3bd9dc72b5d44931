"""PTX text -> programs: what is read, and what is refused at its place."""

from __future__ import annotations

import pytest

from cubridge.backend.ptx.machine import Machine
from cubridge.backend.ptx.parser import parse_program
from cubridge.backend.ptx.places import CudaLine
from cubridge.backend.ptx.program import AddressOf, Group, Memory, Program, Reg, Special, Value
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile

HEAD = """\
.version 9.0
.target sm_90a
.address_size 64
.global .align 4 .u32 TABLE[2] = {7, 0x8};
.extern .shared .align 16 .b8 smem[];
"""
PARAMS = ".visible .entry kernel(\n.param .u64 kernel_param_0,\n.param .align 64 .b8 kernel_param_1[128]\n)\n.reqntid 64, 2\n"
REGISTERS = ".reg .pred %p<3>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<9>;\n"


def text(body: str, head: str = HEAD) -> SourceFile:
    return SourceFile.from_text("kernel.ptx", f"{head}{PARAMS}{{\n{REGISTERS}{body}\n}}\n")


def program(body: str, head: str = HEAD) -> Program:
    return parse_program(text(body, head), "kernel")


def refused(body: str, head: str = HEAD) -> Diagnostic:
    with pytest.raises(CuError) as caught:
        Machine(program(body, head), {})
    return caught.value.diagnostics[0]


def test_sizes_and_variables() -> None:
    found = program(".shared .align 8 .b8 own[12];\n.local .align 8 .b8 depot[40];\nret;")
    assert (found.threads, found.param_bytes, found.shared_bytes, found.local_bytes) == (128, 192, 12, 40)
    assert found.data == b"\7\0\0\0\x08\0\0\0"
    assert found.variables["smem"].unsized and found.variables["kernel_param_1"].offset == 64


def test_operands() -> None:
    body = """
ld.global.v2.u32 {%r1, %r2}, [%rd1+-16];
add.s32 %r3, %r1, -5;
mov.u32 %r4, %tid.x;
mov.b64 %rd2, TABLE;
mov.f32 %f1, 0f3F800000;
@!%p1 setp.lt.s32 %p2|%p0, %r1, 010;
"""
    load, add, tid, address, number, compare = program(body).code
    assert load.operands == (Group((Reg(1, 4), Reg(2, 4))), Memory(Reg(9 + 9 + 1, 8), -16))
    assert add.operands[2] == Value(-5) and tid.operands[1] == Special("%tid.x")
    assert isinstance(address.operands[1], AddressOf) and address.operands[1].variable.name == "TABLE"
    assert number.operands[1] == Value(0x3F800000, 4)
    assert compare.guard == Reg(1, 0, True) and compare.operands[0] == Group((Reg(2, 0), Reg(0, 0)))
    assert compare.operands[2] == Value(8)


def test_names_and_labels_of_inner_scopes() -> None:
    body = "{\n.reg .b32 %r1;\nL:\nadd.s32 %r1, %r1, 1;\nbra L;\n}\nL:\nbra.uni L;"
    inner, first, second = program(body).code
    assert inner.operands[0] == Reg(9 + 9 + 9, 4)
    assert (first.target, second.target) == (0, 2)


def test_places_of_inlined_calls() -> None:
    body = """
.file 1 "/a/kernel.cu"
.file 2 "/a//helpers.cuh"
.loc 1 30 5
.loc 2 7 3, function_name $L__info_string0, inlined_at 1 30 5
ret; // .loc 1 99 1
"""
    found = program(body)
    assert found.places.chain(found.code[0].place) == (CudaLine("/a//helpers.cuh", 7), CudaLine("/a/kernel.cu", 30))


@pytest.mark.parametrize(
    ("body", "code", "message", "place"),
    [
        ("add.s32 %r1, %r2, nothing;", "CU838", "`nothing` is not declared", ""),
        ("bra NOWHERE;", "CU838", "a branch to `NOWHERE`, which is no label here", ""),
        ("L:\nL:\nret;", "CU838", "a second label `L`", "L"),
        ("@%r1 ret;", "CU838", "`%r1` is no predicate", "%r1"),
        (".reg .b128 %q;", "CU838", "registers of an unknown type", ".reg .b128 %q"),
        (".frobnicate 5;", "CU838", "an unknown directive", ".frobnicate 5"),
        ("add.s32 %r1, {%r2, %r3;", "CU838", "brackets that do not pair", ""),
        ("add.s32 %r1, %r2,;", "CU838", "an operand is missing", ""),
        ("?!;", "CU838", "this is no statement of PTX", ""),
        ("add.s32 %r1, %r2;", "CU838", "`add.s32` has fewer operands than its row takes", ""),
        ("add.s32 %rd1, %r2, %r3;", "CU838", "`add.s32` has a result that its row does not give", ""),
        ("add.s32 %r1, %r2, %rd3;", "CU838", "`add.s32` has an operand of another width than its row takes", ""),
        ("mov.u32 %r1, %envreg3;", "CU838", "`mov.u32` reads `%envreg3`, which the emulator does not have", ""),
        ("add.frob.s32 %r1, %r2, %r3;", "CU839", "the emulator has no row for the instruction `add.frob.s32`", ""),
        ("ld.global.u32 %r1, [%rd1+0x100000000];", "CU838", "the offset 0x100000000 is too large", ""),
        ("ld.global.u32 %r1, [%rd1+08];", "CU838", "`08` is no number", ""),
        ("add.s32 %r1, %r2, 0x100000000;", "CU838", "has a number that is too large for 4 bytes", ""),
        (".shared .align 0 .b8 x[4];", "CU838", "a variable of an unknown form", ".shared .align 0 .b8 x[4]"),
        (".shared .align 3 .b8 x[4];", "CU838", "a variable of an unknown form", ".shared .align 3 .b8 x[4]"),
        (".shared .pred x;", "CU838", "a variable of an unknown form", ".shared .pred x"),
        (".global .b8 x[99999999];", "CU838", "more bytes of variables than there may be", ".global .b8 x[99999999]"),
        (3 * ".reg .b32 %m<131072>; ", "CU838", "more than 262144 registers", ".reg .b32 %m<131072>"),
        ("{" * 200, "CU838", "braces are more than 100 deep", "{"),
        ("ld.global.L2::128B.u31 %r1, [%rd1];", "CU839", "no row for the instruction `ld.global.u31`", ""),
    ],
)  # fmt: skip
def test_refusals(body: str, code: str, message: str, place: str) -> None:
    found = refused(body)
    assert (found.code, found.span.text) == (code, place or body)
    assert message in found.message


@pytest.mark.parametrize(
    "body", ["a" * 1_000_000, "/*" * 500_000, f"ld.u32 %r1, [%rd1{' ' * 100_000}+ ];", "@" + "%p" * 500_000]
)
def test_long_texts_are_refused_at_once(body: str) -> None:
    assert refused(body).code == "CU838"


@pytest.mark.parametrize(
    ("source", "entry", "message"),
    [
        (text("ret;"), "other", "has no entry `other`"),
        (SourceFile.from_text("a.ptx", HEAD + PARAMS + "{ ret;"), "kernel", "ends inside"),
    ],
)
def test_an_entry_that_is_not_there_and_a_text_that_ends_early(source: SourceFile, entry: str, message: str) -> None:
    with pytest.raises(CuError) as caught:
        parse_program(source, entry)
    assert message in caught.value.diagnostics[0].message
