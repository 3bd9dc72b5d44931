"""Contracts that cannot be read end with a located message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.frontend.contract import read_contract
from cubridge.ir.contract import CapturedAddress, CType, HostValue, TileListAddress, instantiations
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Name
from cubridge.ir.printer import print_expr
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from tests.kernels.emulated import kernel_source

TOML = (KERNELS_DIR / "sm90a" / "attention_forward.toml").read_text()
PATCHED = "    // @region params\n    float exponent_scale;  // @host D ** -0.5 * LOG2E\n"


def read(folder: Path, toml: str = TOML, source: SourceFile | None = None):
    path = folder / "attention_forward.toml"
    path.write_text(toml)
    return read_contract(path, kernel_source("sm90a") if source is None else source)


def with_field(line: str) -> SourceFile:
    text = kernel_source("sm90a").text
    assert PATCHED in text
    return SourceFile.from_text("kernel.cu", text.replace(PATCHED, PATCHED + line + "\n"))


def test_fields_of_a_patch(tmp_path: Path) -> None:
    contract = read(tmp_path, source=with_field("    const int* doc;  // @captured doc[B, ceil_div(Lk, 2)] pad 128\r"))
    field = contract.params[-1]
    assert (field.name, field.c_type, field.patched) == ("doc", CType.INT_POINTER, True)
    assert isinstance(field.value, CapturedAddress)
    assert (field.value.name, field.value.pad, len(field.value.extents)) == ("doc", 128, 2)
    extent = field.value.extents[1]
    assert str(extent.span).startswith("kernel.cu:") and extent.span.text == "ceil_div(Lk, 2)"
    host = contract.field("len_kv").value
    assert isinstance(host, HostValue) and host.expr == Name("Lk")


def test_lists_of_key_tiles(tmp_path: Path) -> None:
    line = "    const short* tiles;  // @tiles [B, Hq] 2 * BLOCK_Q x BLOCK_KV where p.doc[tile.b, i] == j"
    field = read(tmp_path, source=with_field(line)).params[-1]
    assert (field.name, field.c_type) == ("tiles", CType.SHORT_POINTER)
    assert isinstance(field.value, TileListAddress)
    kind = field.value.kind
    shown = [print_expr(e) for e in (kind.rows, kind.keys, kind.keep, *kind.axes, *kind.extents)]
    assert shown == [
        "2 * BLOCK_Q", "BLOCK_KV", "p.doc[tile.b, i] == j", "B", "Hq",
        "B * (Hq * ceil_div(Lq, 2 * BLOCK_Q))", "ceil_div(Lk, BLOCK_KV) + 2",
    ]  # fmt: skip
    assert kind.keep.span.text == "p.doc[tile.b, i] == j"


def test_reading_the_tile_in_kv_range_makes_work_unequal(tmp_path: Path) -> None:
    text = kernel_source("sm90a").text
    old = "const int lo = 0;"
    for new, equal in (
        ("const int lo = 0;  // not the tile", True),
        ("const int lo = tile.q_start / BLOCK_KV;", False),
    ):
        edited = text.replace(old, new)
        renamed = edited.replace("WorkTile", "Place").replace("& tile", "& at").replace("tile.q_start", "at.q_start")
        for form in (edited, renamed):
            assert read(tmp_path, source=SourceFile.from_text("kernel.cu", form)).equal_work is equal


def test_forms_in_the_order_of_the_contract(tmp_path: Path) -> None:
    contract = read(tmp_path)
    forms = instantiations(contract, DType.F16, 128)
    assert [f.value("BLOCK_KV") for f in forms] == [128, 64]
    assert "-DHALF_FP16=1" in forms[0].definitions and "-DHEAD_DIM=128" in forms[0].definitions
    assert instantiations(contract, DType.BF16, 80) == () and instantiations(contract, DType.F32, 64) == ()
    assert [f.value("BLOCK_KV") for f in instantiations(contract, DType.BF16, 64, {"BLOCK_KV": 32})] == [32]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("    int a, b;  // @host Lk", "CU452", "`int a, b;` is not a field of Params"),
        ("    double a;  // @host Lk", "CU452", "is not a field"),
        ("    int a;", "CU453", "`a` does not say what the host puts there"),
        ("    int a;  // @guest Lk", "CU453", "does not say"),
        ("    int a;  // @host", "CU453", "an expression is missing"),
        ("    int a;  // @host Lk +", "CU101", ""),
        ("    float a;  // @stride q 0", "CU454", "`@stride` fills a `i64`"),
        ("    i64 a;  // @stride q", "CU453", "`@stride` takes a tensor and an axis"),
        ("    i64 a;  // @stride q 4", "CU454", "has 4 axes, no axis 4"),
        ("    i64 a;  // @stride w 0", "CU454", "no tensor `w`"),
        ("    float* a;  // @tensor q", "CU454", "should be a `half_t*`"),
        ("    TensorMap a;  // @tensor_map w", "CU454", "no tensor map `w`"),
        ("    half_t* a;  // @tensor o", "CU454", "is called `o`, not `a`"),
        ("    const float* a;  // @captured slope", "CU453", "`@captured` takes"),
        ("    const float* a;  // @captured slope[Hq] pad 0", "CU453", "`@captured` takes"),
        (
            "    const short* a;  // @tiles [B] 128 x 64",
            "CU453",
            "`@query_tiles` take [AXES] ROWS x KEYS where PREDICATE",
        ),
        ("    const short* a;  // @tiles [B] 128 x 64 where i <", "CU101", ""),
        ("    const int* a;  // @tiles [B] 128 x 64 where i < j", "CU454", "`@tiles` fills a `short*`"),
        ("    int* a;  // @counters", "CU453", "how many"),
        ("    int len_kv;  // @host Lk", "CU452", "two fields `len_kv`"),
    ],
)
def test_bad_fields(tmp_path: Path, line: str, code: str, message: str) -> None:
    with pytest.raises(CuError) as caught:
        read(tmp_path, source=with_field(line))
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == code and message in diagnostic.message
    assert diagnostic.span.file.name == "kernel.cu"
    assert diagnostic.span.file.line(diagnostic.span.location[0]) == line


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("version = 1", "version = 2", "contract version 2", "version = 2"),
        ('entry = "attention_forward"', "", "the key `entry` is missing", None),
        ("head_dims =", "heads =", "unknown key `heads`", "heads = [64, 128]"),
        ("newer_archs = false", "newer_archs = 0", "`newer_archs` is not true or false", None),
        ("newer_archs = false", "newer_archs = true", "instructions that no later architecture has", None),
        ('arch = "sm_90a"', 'arch = "sm_90"', "`arch` is sm_80, sm_90a, not `sm_90`", 'arch = "sm_90"'),
        ("optional = true", "optional = true\nalign_bytes = 48", "`align_bytes` is a power of 2", "align_bytes = 48"),
        ("optional = true", "optional = true\nalign_bytes = 0", "`align_bytes` is a power of 2", "align_bytes = 0"),
        ("[tensors.q]", "[tensors.q]\noptional = true", "only `lse` is optional in [tensors.q]", "optional = true"),
        ('tensor = "v"', 'tensor = "k"', "the tensor map `v` is of `k`", 'tensor = "k"'),
        ("HALF_FP16 = 1", "STAGES = 1", "the macro `STAGES` has a value in [macros] already", None),
        ("[128, 64]", "[128, 48]", "48 does not divide 128", None),
        ("BLOCK_Q = 128", "BLOCK_Q = [192, 128]", "`query_tile` is one of several, and 192 does not divide 128", None),
        ('"Hq", "Lq"]', '"Lq", "Hq"]', "`lse` is [B, Hq, Lq] in [tensors.lse]", 'shape = ["B", "Lq", "Hq"]'),
        ('role = "output"\nshape', 'role = "outbut"\nshape', "not `outbut` in [tensors.o]", 'role = "outbut"'),
        (
            '"q"\nbox = ["64", "64", "1", "1"]',
            '"q"\nbox = ["64", "64"]',
            "the box has 2 axes, `q` has 4",
            'box = ["64", "64"]',
        ),
        ('"row_rescale", ', '"row_scale", ', "no region `row_scale`", None),
        ('entry = "attention_forward"', 'entry = "a(int"', "the entry `a(int` is no identifier", 'entry = "a(int"'),
        ("STAGES = 2", "'ST AGES' = 2", "the macro `ST AGES` is no identifier", None),
        ("BLOCK_KV = [128, 64]", "BLOCK_KV = []", "`BLOCK_KV` is empty in [macros]", None),
        ("head_dims = [64, 128]", "head_dims = []", "`head_dims` lists no positive integers", "head_dims = []"),
        ("bf16 = {}", "fp8 = {}", "no element type `fp8`", None),
        ("[macros]", "[macros", "not TOML", None),
        ("[tensors.q]", "[tensors.queries]", "`queries` is not one of a kernel's tensors", "[tensors.queries]"),
        ('[tensors.v]\nrole = "input"\nshape = ["B", "Hk", "Lk", "D"]', "", "there is no tensor `v`", None),
    ],
)
def test_bad_contracts(tmp_path: Path, old: str, new: str, message: str, line: str | None) -> None:
    assert TOML.count(old) == 1
    with pytest.raises(CuError) as caught:
        read(tmp_path, TOML.replace(old, new))
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "CU451" and message in diagnostic.message
    assert line is None or diagnostic.span.text == line


@pytest.mark.parametrize(
    ("key", "expr", "message", "at"),
    [
        ("shared_bytes", "BLOCK_Q * FOO", "`shared_bytes` may not read `FOO`", "FOO"),
        ("shared_bytes", "Lq * 2", "`shared_bytes` may not read `Lq`", "Lq"),
        ("shared_bytes", "BLOCK_Q // 0", "`0` is 0", "BLOCK_Q // 0"),
        ("shared_bytes", "BLOCK_Q * 0.5", "`shared_bytes` is 64.0 where HEAD_DIM=64", "BLOCK_Q * 0.5"),
        ("shared_bytes", "q[0]", "`shared_bytes` is one number", "q[0]"),
        ("block", "0", "`block` is 0 where", "0"),
        ("key_tile", "True", "`key_tile` is True where", "True"),
        ("grid", "B * Hx", "`grid` may not read `Hx`", "Hx"),
        ("HEAD_DIM", "Lq", "a macro may not read `Lq`", "Lq"),
    ],
)
def test_expressions_that_have_no_value(tmp_path: Path, key: str, expr: str, message: str, at: str) -> None:
    toml = re.sub(rf'^{key} = "[^"]*"', f'{key} = "{expr}"', TOML, flags=re.MULTILINE)
    with pytest.raises(CuError) as caught:
        read(tmp_path, toml)
    diagnostic = caught.value.diagnostics[0]
    line = diagnostic.span.file.line(diagnostic.span.location[0])
    assert (diagnostic.code, diagnostic.span.text) == ("CU451", at) and line.startswith(f"{key} = ")
    assert message in diagnostic.message


def test_expressions_of_a_contract_have_places(tmp_path: Path) -> None:
    with pytest.raises(CuError) as caught:
        read(tmp_path, TOML.replace('query_tile = "BLOCK_Q"', 'query_tile = "BLOCK_Q +"'))
    span = caught.value.diagnostics[0].span
    assert (
        caught.value.diagnostics[0].code == "CU101" and span.file.line(span.location[0]) == 'query_tile = "BLOCK_Q +"'
    )


def test_texts_without_kernel_or_params(tmp_path: Path) -> None:
    text = kernel_source("sm90a").text
    for old, new in (("attention_forward(", "other("), ("struct Params {", "struct Arguments {")):
        with pytest.raises(CuError) as caught:
            read(tmp_path, source=SourceFile.from_text("kernel.cu", text.replace(old, new)))
        assert caught.value.diagnostics[0].code == "CU455"
    with pytest.raises(CuError) as caught:
        read_contract(tmp_path / "absent.toml")
    assert caught.value.diagnostics[0].code == "CU451" and "beside it" in (caught.value.diagnostics[0].help or "")
