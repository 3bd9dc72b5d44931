"""Texts that mean harm, or are broken at random: each ends with a diagnostic, in time, and never takes Python with it."""

from __future__ import annotations

import random
import time
from functools import cache

import pytest
import torch

from cubridge.backend.compile.nvrtc import run_nvrtc
from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch, Schedule, TensorMemory
from cubridge.backend.ptx.parser import MOST_BYTES, parse_program
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile
from tests.backend.ptx.foreign import HEAD, Given, run
from tests.backend.ptx.test_foreign import TMA
from tests.backend.ptx.test_foreign_hopper import TWO_PRODUCTS

TEXT = """\
.version 9.0
.target sm_90a
.visible .entry kernel(.param .u64 x)
{{
.reg .pred %p<4>;
.reg .b32 %r<9>;
.reg .b64 %q<9>;
{}
}}
"""


def launched(text: str, seconds: float = 2.0, grid: Grid | None = None, flags: int = 1) -> tuple[bytes, ...]:
    machine = Machine(parse_program(SourceFile.from_text("kernel.ptx", text), "kernel"), {})
    tensors = (TensorMemory("x", b"\xff" * 4096, flags, 16),)
    params = bytes(max(8, machine.program.param_bytes))
    return machine.run(
        PtxLaunch(grid or Grid((1, 1, 1), (64, 1, 1), 4096), params, tensors, ((0, 0),)), Schedule.HOSTILE, seconds
    )


def said(body: str, grid: Grid | None = None) -> Diagnostic:
    with pytest.raises(CuError) as caught:
        launched(TEXT.format(body), grid=grid)
    return caught.value.diagnostics[0]


ONE_THREAD = "mov.u32 %r1, %tid.x;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 exit;\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("L: bra L;", "CU837"),
        ("mov.u64 %q1, -8;\nld.global.u32 %r1, [%q1];", "CU835"),
        ("mov.u64 %q1, 0x7f0000000000;\nst.u32 [%q1], 5;", "CU835"),
        ("mov.u32 %r1, 0x7fffff00;\nst.shared.u32 [%r1], 5;", "CU835"),
        ("mov.u32 %r1, 4094;\nst.shared.u32 [%r1], 5;", "CU834"),
        (
            "mov.u64 %q1, 0;\ncp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%q1], [%q1], 0, [%q1];",
            "CU834",
        ),
        ("mov.u64 %q1, 0;\nld.param.u32 %r1, [%q1+100000];", "CU835"),
        ("ld.local.u32 %r1, [%q1];", "CU833"),
        ("mov.u64 %q1, 0;\nld.local.u32 %r1, [%q1];", "CU835"),
        (".local .b8 big[200000000];\nret;", "CU836"),
        (".shared .b8 big[200000000];\nret;", "CU836"),
        (".reg .b64 %many<1000000>;\nret;", "CU838"),
        ("bar.sync 99;", "CU834"),
        ("bar.sync 1, 96;", "CU832"),
        ("bar.sync 1, 33;", "CU834"),
        ("setmaxnreg.inc.sync.aligned.u32 256;", "CU832"),
        ("mov.u32 %r1, 64;\nmbarrier.arrive.shared::cta.b64 _, [%r1];", "CU834"),
        (f"{ONE_THREAD}mbarrier.init.shared::cta.b64 [64], 0;\nmbarrier.arrive.shared::cta.b64 _, [64];", "CU834"),
        (f"{ONE_THREAD}mbarrier.init.shared::cta.b64 [64], 0x100000;", "CU834"),
        ("add.s32 %r1, %r2, 1;\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 ret;", "CU833"),
    ],
)
def test_hostile_bodies(body: str, code: str) -> None:
    assert said(body).code == code


def test_a_text_that_runs_past_its_end() -> None:
    assert len(launched(TEXT.format("mov.u32 %r1, 5;"))) == 1


def test_a_barrier_without_arrivals_that_nobody_uses() -> None:
    assert len(launched(TEXT.format(f"{ONE_THREAD}mbarrier.init.shared::cta.b64 [64], 0;"))) == 1


@pytest.mark.parametrize(
    "body", ["add.s32 _, 1, 2;", "shfl.sync.idx.b32 _|%p1, 5, 0, 31, -1;", "mov.pred _, 1;", "mov.b64 {_, _}, 7;"]
)
def test_results_that_nobody_wants(body: str) -> None:
    assert len(launched(TEXT.format(body))) == 1


def test_blocks_that_are_too_large() -> None:
    for grid in (
        Grid((1, 1, 1), (2048, 1, 1), 0),
        Grid((1, 1, 1), (32, 1, 1), 1 << 30),
        Grid((3, 1, 1), (32, 1, 1), 0, 2),
    ):
        assert said("ret;", grid).code == "CU836"


@pytest.mark.slow
def test_ten_megabytes_of_text() -> None:
    start = time.monotonic()
    assert said("frob.s32 %r1, %r2, %r3;\n" * 400_000).code == "CU839"
    assert time.monotonic() - start < 60.0


def test_more_text_than_is_read() -> None:
    with pytest.raises(CuError) as caught:
        parse_program(SourceFile("kernel.ptx", b" " * (MOST_BYTES + 1)), "kernel")
    assert caught.value.diagnostics[0].code == "CU838"


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        (
            "__shared__ char big[1 << 20]; big[t] = 1; __syncthreads(); y[t] = big[31 - t];",
            "CU836",
            "1048576 bytes of shared memory",
        ),
        ("char big[1 << 20]; big[(int)x[t]] = 1; y[t] = big[(int)x[0]];", "CU836", "of local memory"),
        ('asm volatile("frobnicate.b32 %0;" :: "r"(t));', "CU839", "frobnicate"),
        ('asm volatile(".frobnicate 5;");', "CU838", "an unknown directive"),
        ('for (;;) asm volatile("" ::: "memory");', "CU837", "does not end"),
        ("((float*)(u64)t)[0] = 1;", "CU835", "no tensor's"),
        ('asm volatile("st.shared.u32 [%0], 1;" :: "r"(0x7fffff00));', "CU835", "shared memory"),
    ],
)
def test_hostile_cuda(statement: str, code: str, message: str) -> None:
    text = f"G(const float* x, float* y) {{ const int t = threadIdx.x; {statement} }}"
    with pytest.raises(CuError) as caught:
        run(text, Given((torch.ones(32), torch.empty(32)), threads=32), seconds=0.5)
    assert caught.value.diagnostics[0].code == code and message in caught.value.diagnostics[0].message


@cache
def compiled(text: str) -> str:
    output = run_nvrtc(
        "kernel.cu", SourceFile.from_text("kernel.cu", HEAD + text), {}, ("--gpu-architecture=compute_90a",)
    )
    return output.ptx.rstrip("\0")


@pytest.mark.parametrize("text", [TMA, TWO_PRODUCTS], ids=["tma", "wgmma"])
def test_texts_that_are_broken_at_random(text: str) -> None:
    """A line dropped, doubled, moved, or with another number, register or modifier."""
    lines = compiled(text).split("\n")
    draw = random.Random(0)
    ends = dict.fromkeys(("right", "refused"), 0)
    for _ in range(40):
        broken = list(lines)
        for _ in range(draw.randint(1, 3)):
            at, other = draw.randrange(20, len(broken) - 2), draw.randrange(20, len(broken) - 2)
            words, others = broken[at].split(), broken[other].split()
            match draw.randrange(4):
                case 0:
                    broken[at] = ""
                case 1:
                    broken[at], broken[other] = broken[other], broken[at]
                case 2:
                    broken[at] += "\n" + broken[other]
                case _ if words and others:
                    broken[at] = broken[at].replace(draw.choice(words), draw.choice(others), 1)
                case _:
                    pass
        try:
            launched("\n".join(broken), seconds=0.5, grid=Grid((1, 1, 1), (128, 1, 1), 0))
            ends["right"] += 1
        except CuError:
            ends["refused"] += 1
    assert ends["refused"] > 10
