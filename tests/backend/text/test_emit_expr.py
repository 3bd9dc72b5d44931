"""C expressions: their spelling, that they parse back to the tree they come from, that a compiler computes CuIR's value."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pycparser import c_ast, c_parser

from cubridge.backend.ptx.device import ONE_SCHEDULE
from cubridge.backend.text.emit_c import CudaPrinter
from cubridge.backend.text.emit_expr import C_TYPES, Expressions
from cubridge.backend.text.emit_types import Types
from cubridge.backend.text.names import Names, Spelling
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import Attr, Captured, Expr, Field, Name
from cubridge.ir.parser import parse_expr
from cubridge.ir.types import DType
from tests.backend.ptx.foreign import Given, run
from tests.backend.text.expressions import VALUES, random_expr
from tests.support.golden_texts import golden_kernel

KERNELS = Path(__file__).parents[3] / "cubridge" / "kernels"
NAMES = Names({"Lq": "len_q", "Lk": "len_kv", "Hq": "heads_q"})
DTYPES = (DType.I32, DType.F32, DType.BOOL)


def expressions() -> Expressions:
    return Expressions(Types.of_region(golden_kernel("sm80"), "row_probs"), Spelling(NAMES, {}))


def c_text(text: str) -> str:
    return CudaPrinter().visit(expressions().of(parse_expr(text)))


@pytest.mark.parametrize(
    ("cuir", "c"),
    [
        ("s * 2.0 + 1.0", "s[r][c] * 2.f + 1.f"),
        ("s * (s + 1)", "s[r][c] * (s[r][c] + 1.f)"),
        ("s - (s - s)", "s[r][c] - (s[r][c] - s[r][c])"),
        ("-(-s)", "-(-s[r][c])"),
        ("s - -2.0", "s[r][c] - -2.f"),
        ("-inf", "-INFINITY"),
        ("s * LOG2E / LN2", "s[r][c] * LOG2E / LN2"),
        ("s * pi", "s[r][c] * 3.141592653589793f"),
        ("1e-08 * s", "1e-08f * s[r][c]"),
        ("1e+20 * s", "1e20f * s[r][c]"),
        ("f32(j) - f32(i)", "frag_col_f32(kv_start, c) - (float)i"),
        ("f32(j - i)", "(float)(j - i)"),
        ("(j < Lk) & (j <= i) | (j < 4)", "((j < p.len_kv) & (j <= i)) | (j < 4)"),
        ("~(j < Lk) ^ (i == 0)", "!(j < p.len_kv) ^ (i == 0)"),
        ("where(j <= i, s, where(j < 4, 0.0, -inf))", "j <= i ? s[r][c] : (j < 4 ? 0.f : -INFINITY)"),
        ("where(s == -inf, 0.0, exp2(s))", "select(s[r][c] == -INFINITY, 0.f, exp2_approx(s[r][c]))"),
        ("where(row.m == -inf, 0.0, exp2(row.m))", "row.m[r] == -INFINITY ? 0.f : exp2_approx(row.m[r])"),
        ("Lk // BLOCK_KV + i % 4", "p.len_kv / BLOCK_KV + i % 4"),
        ("(i - Lq) // 4", "floor_div(i - p.len_q, 4)"),
        ("(i - Lq) % 4", "floor_mod(i - p.len_q, 4)"),
        ("i // (0 - 4)", "floor_div(i, 0 - 4)"),
        ("f32(i) / 4", "(float)i / 4.f"),
        ("f32(maximum(i, 0)) + minimum(s, 1)", "(float)imax(i, 0) + fminf(s[r][c], 1.f)"),
        ("abs(i - j)", "iabs(i - j)"),
        ("exp2(s * p.exponent_scale - row.m)", "exp2_approx(s[r][c] * p.exponent_scale - row.m[r])"),
        ("i * D", "i * HEAD_DIM"),
        ("i64(i) * 3000000000", "(i64)i * 3000000000LL"),
    ],
)
def test_spelling(cuir: str, c: str) -> None:
    assert c_text(cuir) == c


def test_a_captured_read_stays_behind_its_condition() -> None:
    golden = golden_kernel("sm80")
    table = Field("table", Captured(DType.F32, (Name("Lk"),)), fixed=False)
    types = Types.of_region(replace(golden, params=(*golden.params, table)), "row_probs")
    expr = parse_expr("where(j < Lk, exp2(p.table[j]), s)")
    assert CudaPrinter().visit(Expressions(types, Spelling(NAMES, {})).of(expr)).startswith("j < p.len_kv ? ")


def test_what_rounds_to_the_largest_number_of_fp32_is_one() -> None:
    assert "3.40282346638529e38f" in c_text("maximum(s, -3.40282346638529e+38)")


@pytest.mark.parametrize(
    ("cuir", "message"),
    [
        ("1e39 * s", "too large for fp32"),
        ("i64(i) // (i - 9)", "32-bit"),
        ("maximum(i64(i), 0)", "no device form"),
        ("ceil_div(i64(i), 2)", "32-bit"),
        ("B * i", "holds the size B"),
        ("rowmax(s * 2.0)", "reads an array"),
    ],
)
def test_what_device_code_cannot_say(cuir: str, message: str) -> None:
    with pytest.raises(CuError, match=message) as caught:
        c_text(cuir)
    assert caught.value.diagnostics[0].code == "CU603"


# ---- the printed text is the tree ------------------------------------------------------------------------------------


def same_tree(a: c_ast.Node, b: c_ast.Node) -> bool:
    own = [(n, getattr(a, n)) for n in a.attr_names]
    if type(a) is not type(b) or own != [(n, getattr(b, n)) for n in b.attr_names]:
        return False
    pairs = list(zip(a.children(), b.children(), strict=False))
    return len(a.children()) == len(b.children()) and all(same_tree(x, y) for (_, x), (_, y) in pairs)


def parsed(expression: str) -> c_ast.Node:
    text = f"typedef long long i64; int f() {{ return {expression}; }}"
    return c_parser.CParser().parse(text).ext[1].body.block_items[0].expr


@settings(max_examples=150, deadline=None, derandomize=True)
@given(rnd=st.randoms(use_true_random=False), dtype=st.sampled_from(DTYPES))
def test_text_parses_to_the_tree_it_was_printed_from(rnd: Random, dtype: DType) -> None:
    tree = expressions().of(random_expr(rnd, dtype, 5), dtype)
    assert same_tree(parsed(CudaPrinter().visit(tree)), tree)


def test_same_tree_can_fail() -> None:
    assert not same_tree(parsed("a - (b - c)"), parsed("a - b - c"))
    assert not same_tree(parsed("a < b & c"), parsed("(a < b) & d"))


# ---- a compiler computes what CuIR means -----------------------------------------------------------------------------


def value_of(expr: Expr) -> float:
    def lookup(node: Expr) -> float:
        match node:
            case Name(name):
                return VALUES[name]
            case Attr(Name(scope), name):
                return VALUES[f"{scope}.{name}"]
            case _:
                raise AssertionError(node)

    return float(evaluate(expr, lookup))


def program(cases: list[tuple[Expr, DType]]) -> str:
    """Puts out the value of every expression, in double; helpers come from the kernels' own headers. All of it is constant, so that
    the compiler computes it."""
    base = (KERNELS / "common" / "base.cuh").read_text(encoding="utf-8")
    helpers = [
        line.replace("DEVICE ", "__device__ ")
        for line in base.split("\n")
        if line.startswith("DEVICE ") and line.endswith("}")
    ]
    lines = [
        "typedef long long i64; typedef double real;\n#define INFINITY __longlong_as_double(0x7ff0000000000000ll)",
        *helpers,
        "__device__ real fmaxf_(real a, real b) { return a < b ? b : a; }",
        "__device__ real fminf_(real a, real b) { return b < a ? b : a; }",
        "G(double* out) { const int i = 37, j = 70, kv_start = 64, BLOCK_KV = 64; struct { int len_q, len_kv; } p = {193, 130};",
        "struct { int h, q_start; } tile = {3, 32}; real s[1][1] = {{0.75}}; const int r = 0, c = 0;",
    ]
    for n, (expr, dtype) in enumerate(cases):
        text = re.sub(r"([0-9.])f\b", r"\1", CudaPrinter().visit(expressions().of(expr, dtype)))
        lines.append(f"{{ {C_TYPES[dtype]} x = {text}; out[{n}] = (double)x; }}")
    text = "\n".join([*lines, "}"])
    for old, new in (("float", "real"), ("fmaxf(", "fmaxf_("), ("fminf(", "fminf_("), ("fabsf", "fabs")):
        text = text.replace(old, new)
    return text.replace("frag_col_f32(kv_start, c)", "(real)j")


def has_value(expr: Expr) -> bool:
    try:
        return math.isfinite(value_of(expr)) and abs(value_of(expr)) < 2**31
    except CuError:
        return False


def test_log1p_unit_is_as_near_as_declared() -> None:
    base = (KERNELS / "common" / "base.cuh").read_text(encoding="utf-8")
    (function,) = re.findall(r"^DEVICE (float log1p_unit.*?^})", base, re.MULTILINE | re.DOTALL)
    at = "const int n = blockIdx.x * blockDim.x + threadIdx.x;"
    text = f"__device__ {function}\nG(const float* x, float* y) {{ {at} y[n] = log1p_unit(x[n]); }}"
    x = torch.cat((torch.linspace(0, 1, 1 << 15), torch.linspace(-50, 0, 1 << 15).exp2()))
    y = run(text, Given((x, torch.empty_like(x)), threads=256, blocks=x.numel() // 256), ONE_SCHEDULE)
    right = torch.log1p(x.double())
    assert bool(((y.double() - right).abs() <= FUNCTIONS["log1p_unit"].rel_error * right).all())


def test_compiled_values_are_those_of_cuir() -> None:
    rnd = Random(20)
    drawn = ((random_expr(rnd, d, 4), d) for d in DTYPES * 120)
    cases = [(e, d) for e, d in drawn if has_value(e)]
    assert len(cases) > 300
    out = torch.zeros(len(cases), dtype=torch.float64)
    values = run(program(cases), Given((out,), threads=1), ONE_SCHEDULE).tolist()
    wrong = [(e, v, value_of(e)) for (e, _), v in zip(cases, values, strict=True) if v != value_of(e)]
    assert not wrong, wrong[:3]
