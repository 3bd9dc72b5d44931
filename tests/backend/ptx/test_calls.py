"""Functions that were not inlined: calls give the right numbers, faults have their places, and what is not called is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cubridge.backend.ptx.functions import MOST_DEEP
from cubridge.backend.ptx.parser import parse_program
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile
from tests.backend.ptx.foreign import Given, fault, run

SUMS = """
struct Pair { float sum; int count; };
__device__ __noinline__ const float* stage(const float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // stored
    return s;
}
__device__ __noinline__ Pair add(Pair p, float x) {
    if (x < 0) return p;
    p.sum += x;
    p.count += 1;
    return p;
}
__device__ __noinline__ Pair row(const float* s, int n) {
    Pair p = {0, 0};
    for (int k = 0; k < n; ++k) p = add(p, s[k]);
    return p;
}
G(const float* x, float* y) {
    const int t = threadIdx.x;
    const float* s = stage(x);
    Pair p = {0, 0};
    if (t % 3) p = row(s, t);
    __syncthreads();
    s = stage(x + 64);
    p = add(p, s[63 - t]);
    y[t] = p.sum;
    y[t + 64] = (float)p.count;
}
"""


def given() -> Given:
    x = torch.randn(128, generator=torch.Generator().manual_seed(0))
    return Given((x, torch.empty(128)), threads=64)


def sums(x: Tensor) -> Tensor:
    rows = [[*(x[:t] if t % 3 else []), x[127 - t]] for t in range(64)]
    kept = [torch.tensor([v for v in row if v >= 0]) for row in rows]
    return torch.stack([torch.stack([v.sum() for v in kept]), torch.tensor([float(len(v)) for v in kept])]).flatten()


def test_calls_in_loops_and_branches_with_results_of_two_words() -> None:
    launch = given()
    assert torch.allclose(run(SUMS, launch), sums(launch.tensors[0]))


def test_a_race_through_a_call_has_the_lines_of_both() -> None:
    found = fault(SUMS.replace("__syncthreads();  // stored", ""), given())
    assert found.code == "CU833" and "p = add(p, s[k]);" in found.span.text
    assert found.notes[0].message == "called from here" and "p = row(s, t);" in found.notes[0].span.text
    assert "s[threadIdx.x] = x[threadIdx.x];" in found.notes[-1].span.text


def test_both_calls_of_a_function_share_its_static_memory() -> None:
    parts = SUMS.split("__syncthreads();")
    found = fault("__syncthreads();".join(parts[:2]) + parts[2], given())  # without the one between the calls
    assert found.code == "CU833" and "s[threadIdx.x] = x[threadIdx.x];" in found.span.text


def test_an_assertion_that_fails_and_prints() -> None:
    text = """
extern "C" __device__ int vprintf(const char*, const char*);
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, unsigned long);
G(const float* x, float* y) {
    const int t = threadIdx.x;
    if (x[t] > 9) { vprintf("big", nullptr); if (x[t] > 99) __assertfail("x", "f", 1, "g", 1); }
    y[t] = x[t];
}
"""
    fine = torch.arange(32.0)
    assert torch.equal(run(text, Given((fine, torch.empty(32)), threads=32)), fine)
    found = fault(text, Given((fine + 80, torch.empty(32)), threads=32))
    assert found.code == "CU836" and "__assertfail" in found.span.text


def refused(functions: str, body: str) -> Diagnostic:
    text = f".version 9.0\n.target sm_90a\n{functions}\n.visible .entry kernel()\n{{\n.reg .b64 %f;\n{body}\n}}\n"
    with pytest.raises(CuError) as caught:
        parse_program(SourceFile.from_text("kernel.ptx", text), "kernel")
    return caught.value.diagnostics[0]


F = ".func (.param .b32 r) f(.param .b32 a)\n{\nret;\n}"
ARGUMENTS = ".param .b32 r0; .param .b32 a0; .param .b64 b0;\n"


@pytest.mark.parametrize(
    ("functions", "call", "message"),
    [
        (".func f()\n{\ncall f;\n}", "call f;", "`f` calls itself"),
        (".func f();\n.func g()\n{\ncall f;\n}\n.func f()\n{\ncall.uni g;\n}", "call f;", "`f` calls itself"),
        ("", "call %f, p;", "a call through `%f`"),
        (F, "call (r0), %f, (a0), p;", "a call through `%f`"),
        ("", "call f;", "`f` is no function here"),
        (".extern .func f()\n;", "call f;", "`f` has no body here"),
        (F, "call (r0), f;", "`f` is declared with another number of parameters or results"),
        (F, "call f, (a0);", "`f` is declared with another number of parameters or results"),
        (F, "call (r0), f, (b0);", "`b0` is no `.param` variable of the size of"),
        (F, "call (r0), f, (%f);", "`%f` is no `.param` variable of the size of"),
        (".func f(.reg .b32 a)\n{\nret;\n}", "call f, (a0);", "`a0` is no `.param` variable of the size of"),
        (F, "call (r0) f (a0);", "a call of an unknown form"),
    ],
)
def test_calls_that_are_refused(functions: str, call: str, message: str) -> None:
    found = refused(functions, ARGUMENTS + call)
    assert found.code == "CU838" and message in found.message
    assert found.span.text in (call, "call f;", "call.uni g;") and found.span.text.startswith("call")


def chain(count: int, calls: int) -> str:
    """Functions that each call the next so many times."""
    return (
        "\n".join(f".func f{n}()\n{{\n{f'call f{n + 1};' * calls}\n}}" for n in range(count))
        + f"\n.func f{count}()\n{{ }}"
    )


def test_calls_that_are_too_deep_or_too_many() -> None:
    assert f"more than {MOST_DEEP} deep" in refused(chain(MOST_DEEP + 1, 1), "call f0;").message
    assert "bytes of text" in refused(chain(30, 2), "call f0;").message
