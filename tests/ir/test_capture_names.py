from __future__ import annotations

from dataclasses import replace

import pytest

from cubridge.ir.capture_names import capture_of, field_name, is_cuda_name
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Captured, Field, Kernel, Name, Scalar
from cubridge.ir.parser import parse, parse_expr
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from cubridge.verify.verifier import verify
from tests.support.golden_texts import golden_file, golden_kernel


@pytest.mark.parametrize(
    ("capture", "field"),
    [
        ("slope", "slope"),
        ("p", "p"),
        ("_bias", "_bias"),
        ("q", "captured_q"),
        ("lse", "captured_lse"),
        ("exponent_scale", "captured_exponent_scale"),
        ("HEAD_DIM", "captured_HEAD_DIM"),
        ("WARP_COUNT", "captured_WARP_COUNT"),
        ("T", "T"),
        ("int", "captured_int"),
        ("default", "captured_default"),
        ("xor", "captured_xor"),
        ("half_t", "captured_half_t"),
        ("DEVICE", "captured_DEVICE"),
        ("__a__b_", "captured_a_b"),
    ],
)
def test_fields(capture: str, field: str) -> None:
    assert field_name(capture, golden_kernel("sm80")) == field
    assert is_cuda_name(field)


def test_two_captures_never_share_a_field() -> None:
    kernel = golden_kernel("sm80")
    field = Field("captured_int", Captured(DType.F32, ()), fixed=False)
    assert field_name("int", replace(kernel, params=(*kernel.params, field))) == "captured_int_2"


@pytest.mark.parametrize(
    ("field", "capture"),
    [
        (Field("slope", Captured(DType.F32, ()), fixed=False), "slope"),
        (Field("captured_int", Captured(DType.F32, (), of="int"), fixed=False), "int"),
        (Field("captured_int", Scalar(DType.F32, Name("int")), fixed=False), "int"),
        (Field("scale", Scalar(DType.F32, parse_expr("int * 2.0")), fixed=False), None),
        (Field("head_dim", Scalar(DType.F32, Name("D")), fixed=False), None),
        (Field("blocks", Scalar(DType.I32, Name("SM_COUNT")), fixed=False), None),
        (Field("work", Scalar(DType.I32, Name("work"))), None),
    ],
)
def test_what_a_field_holds(field: Field, capture: str | None) -> None:
    assert capture_of(field) == capture


def test_the_text_of_a_field_that_is_called_another_name() -> None:
    kernel = with_field("captured_int=Captured(f32, Hq, of=int)")
    assert "    captured_int=Captured(f32, Hq, of=int),\n" in to_text(kernel)
    assert not verify(kernel)
    assert [d.code for d in verify(with_field("slope=Captured(f32, Hq, of=slope)"))] == ["CU205"]
    with pytest.raises(CuError, match="this must be a name"):
        with_field("slope=Captured(f32, Hq, of=2)")


def with_field(line: str) -> Kernel:
    text = golden_file("sm80").text.replace("variant_params(\n", f"variant_params(\n    {line},\n")
    return parse(SourceFile.from_text("x.cuir", text))
