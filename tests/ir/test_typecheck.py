"""Types of expressions and of regions, each rule with a text that breaks it."""

from __future__ import annotations

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Captured, Kernel
from cubridge.ir.parser import parse, parse_expr
from cubridge.ir.region_types import check_region
from cubridge.ir.source import SourceFile
from cubridge.ir.typecheck import BASE_NAMES, BOOL, FLOAT, INT, Scope, infer
from cubridge.ir.types import Axis, DType, ValueType
from tests.support.golden_texts import golden_file

ROW, KEY = frozenset({Axis.ROW}), frozenset({Axis.KEY})
TILE = ROW | KEY
SCOPE = Scope(
    {
        **BASE_NAMES,
        "i": ValueType(DType.I32, ROW),
        "j": ValueType(DType.I32, KEY),
        "s": ValueType(DType.F32, TILE),
        "n": INT,
        "wide": ValueType(DType.I64),
        "c": BOOL,
        "x": FLOAT,
        "l": ValueType(DType.F32, ROW, partial=True),
        "m": ValueType(DType.F32, ROW),
    },
    {"p": {"scale": FLOAT}},
    {
        "slope": Captured(DType.F32, (parse_expr("Hq"),)),
        "doc": Captured(DType.I32, (parse_expr("B"), parse_expr("Lk"))),
    },
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s * p.scale", "f32[i, j]"),
        ("f32(j - i) * x", "f32[i, j]"),
        ("2 * s", "f32[i, j]"),
        ("j <= i", "bool[i, j]"),
        ("(j <= i) & c", "bool[i, j]"),
        ("~c", "bool"),
        ("n & 3", "i32"),
        ("wide * n", "i64"),
        ("i64(i) * Lk + j", "i64[i, j]"),
        ("n // 2 % 3", "i32"),
        ("p.slope[n]", "f32"),
        ("p.doc[n, j] == p.doc[n, i]", "bool[i, j]"),
        ("where(j <= i, s, -inf)", "f32[i, j]"),
        ("where(c, 0, x)", "f32"),
        ("maximum(m, rowmax(s))", "f32[i]"),
        ("maximum(n, 0)", "i32"),
        ("partial_rowsum(s)", "partial f32[i]"),
        ("l * m + partial_rowsum(s)", "partial f32[i]"),
        ("l / x - l", "partial f32[i]"),
        ("0.0 + l", "partial f32[i]"),
        ("where(m == 0.0, 0.0, l)", "partial f32[i]"),
        ("-l", "partial f32[i]"),
        ("add_lanes(l) + x", "f32[i]"),
        ("any_lane(m != 1.0)", "bool"),
        ("exp2(s)", "f32[i, j]"),
        ("exp2(3)", "f32"),
        ("ceil_div(Lk, 64)", "i32"),
    ],
)
def test_type(text: str, expected: str) -> None:
    assert str(infer(parse_expr(text), SCOPE)) == expected


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("y", "CU201", "`y` is not known here"),
        ("p.y", "CU201", "`p` has no field `y`"),
        ("q.y", "CU201", "`q` has no fields here"),
        ("s[i]", "CU201", "`s` is no captured tensor"),
        ("p.slope", "CU206", "`p.slope` is a tensor: index it"),
        ("p.slope[n, n]", "CU206", "`p.slope` has 1 axes, and 2 indices are given"),
        ("p.slope[x]", "CU202", "an index must be an integer, this is f32"),
        ("n + x", "CU202", "i32 and f32 do not mix"),
        ("c + n", "CU202", "`+` does not apply to bool and i32"),
        ("c < c", "CU202", "`<` does not apply to bool and bool"),
        ("c & n", "CU202", "`&` does not apply to bool and i32"),
        ("x & x", "CU202", "`&` does not apply to f32 and f32"),
        ("~n", "CU202", "`~` does not apply to i32"),
        ("-c", "CU202", "`-` does not apply to bool"),
        ("n / n", "CU202", "`/` takes floats; `//` divides integers"),
        ("x // x", "CU202", "`//` takes integers, not f32 and f32"),
        ("x ** 2", "CU202", "`**` has no device form"),
        ("exp2(n)", "CU202", "`exp2` takes floats, not i32"),
        ("ceil_div(x, n)", "CU202", "`ceil_div` takes integers, not f32"),
        ("where(n, x, x)", "CU202", "the condition of `where` must be bool, not i32"),
        ("where(c, c, x)", "CU202", "bool and f32 do not mix"),
        ("maximum(c, c)", "CU202", "`maximum` does not apply to bool"),
        ("abs(x, x)", "CU206", "`abs` takes 1 arguments, not 2"),
        ("present(p.scale)", "CU201", "`present` cannot be called here"),
        ("rowmax(m)", "CU203", "`rowmax` reduces the columns of a float tile, and this is f32[i]"),
        ("rowmax(j)", "CU203", "`rowmax` reduces the columns of a float tile, and this is i32[j]"),
        ("l + x", "CU204", "`+` is not linear in a partial sum"),
        ("l + 1.0", "CU204", "`+` is not linear in a partial sum"),
        ("l * l", "CU204", "`*` is not linear in a partial sum"),
        ("x / l", "CU204", "`/` is not linear in a partial sum"),
        ("l == 0.0", "CU204", "a partial sum is used before its lanes are added"),
        ("log2(l)", "CU204", "a partial sum is used before its lanes are added"),
        ("maximum(l, m)", "CU204", "a partial sum is used before its lanes are added"),
        ("where(c, l, 1.0)", "CU204", "`where` mixes a partial sum with a whole one"),
        ("add_lanes(m)", "CU204", "`add_lanes` takes a partial sum, and this is none"),
        ("any_lane(s < 0.0)", "CU202", "`any_lane` takes a condition per row, not bool[i, j]"),
        ("KeySequence(lo=n)", "CU202", "`KeySequence` is not a single value"),
    ],
)
def test_type_error(text: str, code: str, message: str) -> None:
    with pytest.raises(CuError) as caught:
        infer(parse_expr(text), SCOPE)
    assert (caught.value.diagnostics[0].code, caught.value.diagnostics[0].message) == (code, message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("D ** -0.5 * LOG2E", "f32"), ("Lk // 4 + 1", "i32"), ("1 / Lk", "f32"), ("n * 0.5", "f32"), ("Lq ** 2", "i32")],
)
def test_host_numbers_are_those_of_python(text: str, expected: str) -> None:
    assert str(infer(parse_expr(text), Scope({**BASE_NAMES, "n": INT}, host=True))) == expected


# ---- regions ---------------------------------------------------------------------------------------------------------


def with_region(name: str, body: str) -> Kernel:
    """The golden sm80 kernel with another body for one region."""
    text = golden_file("sm80").text
    head = text.index(f"def {name}(")
    start = text.index("\n", head) + 1
    end = text.index("\n\n", start)
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return parse(SourceFile.from_text("sm80.cuir", text[:start] + lines + text[end + 1 :]))


@pytest.mark.parametrize(
    ("region", "body"),
    [
        ("score", "s = s * 0.5 + f32(j - i)"),
        ("score", "bias = f32(j - i) * 0.25\nbias = bias * 2.0\ns = s + bias"),
        ("mask", "last = i + Lk - Lq\ns = where((j <= last) & (j < Lk), s, -inf)"),
        ("mask", "s = 0.0"),
        ("row_rescale", "if any_lane(row.o_scale != 1.0):\n    twice = row.o_scale * 2.0\n    o = o * twice"),
        ("row_finalize", "lse = -inf"),
        ("key_masked", "return True"),
    ],
)
def test_region_is_fine(region: str, body: str) -> None:
    kernel = with_region(region, body)
    assert check_region(kernel, kernel.region(region)) == ()


@pytest.mark.parametrize(
    ("region", "body", "code", "message"),
    [
        ("score", "s = s + kv_start", "CU201", "`kv_start` is not known here"),
        ("score", "s = s + f32(tile.q_start)", "CU201", "`tile` has no field `q_start`"),
        ("score", "s = s - rowmax(s)", "CU205", "`rowmax` has no place here: `score` works element by element"),
        ("score", "row.m = 0.0", "CU205", "`score` may not write `row.m`"),
        ("score", "i = i + 1", "CU205", "`score` may not write `i`"),
        ("score", "s = j <= i", "CU202", "bool[i, j] does not fit `s`, which is f32[i, j]"),
        ("score", "s = i", "CU202", "i32[i] does not fit `s`, which is f32[i, j]"),
        ("score", "x = 1.0\nx = s", "CU203", "f32[i, j] varies over more than `x`, which is f32"),
        ("score", "for q in range(0, 2):\n    s = s", "CU205", "a region has assignments and `if any_lane(..):` alone"),
        ("score", "if i < 3:\n    s = s", "CU205", "the condition of an `if` in a region is `any_lane(..)`"),
        ("row_init", "row.m = s", "CU201", "`s` is not known here"),
        ("row_init", "row.l = 1.0", "CU204", "`row.l` is a partial sum, and this is none"),
        ("row_update", "row.m = s", "CU203", "f32[i, j] varies over more than `row.m`, which is f32[i]"),
        ("row_update", "row.m = partial_rowsum(s)", "CU204", "`row.m` takes no partial sum"),
        ("row_update", "row.l = row.l + 1.0", "CU204", "`+` is not linear in a partial sum"),
        ("row_update", "s = s", "CU205", "`row_update` may not write `s`"),
        ("row_update", "row.z = 0.0", "CU201", "`row` has no field `z`"),
        ("row_finalize", "o = o", "CU208", "`lse` is never written"),
        ("row_finalize", "lse = row.m\no = o * f32(j)", "CU201", "`j` is not known here"),
        ("tile_setup", "tile.q_start = 0", "CU205", "`tile.q_start` is the schedule's to write"),
        ("key_count", "return 1.0", "CU205", "`key_count` returns i32, and this is f32"),
        ("key_count", "pass", "CU205", "`key_count` returns nothing"),
        ("key_tile", "return keys.none", "CU201", "`keys` has no field `none`"),
        ("key_sequence", "return 3", "CU205", "`key_sequence` returns `KeySequence(..)`"),
        (
            "key_sequence",
            "return KeySequence(lo=0.5)",
            "CU205",
            "`lo` is f32; a key sequence has integers and truths alone",
        ),
        ("mask", "s = s\nreturn s", "CU205", "`mask` returns nothing, and this is f32[i, j]"),
    ],
)
def test_region_fault(region: str, body: str, code: str, message: str) -> None:
    kernel = with_region(region, body)
    faults = check_region(kernel, kernel.region(region))
    assert [(f.code, f.message) for f in faults] == [(code, message)]
    assert faults[0].span.file.name == "sm80.cuir"


def test_all_faults_are_collected_and_none_twice() -> None:
    kernel = with_region("score", "a = y\nb = a + 1.0\nc = z\ns = s + b\ns = s & s")
    messages = [f.message for f in check_region(kernel, kernel.region("score"))]
    assert messages == [
        "`y` is not known here",
        "`z` is not known here",
        "`&` does not apply to f32[i, j] and f32[i, j]",
    ]
