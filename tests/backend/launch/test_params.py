"""The layout of `Params` is the one that a C++ compiler gives the kernel's own struct."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from cubridge.backend.compile.compiler import compile_ptx, listed_instantiations
from cubridge.backend.launch.params import layout, pack
from cubridge.ir.contract import CType
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from tests.kernels.emulated import ARCHS, kernel_text, region_edit

ODD = """\
    float exponent_scale;  // @host 1.0
    int odd;  // @host 3
    i64 wide;  // @host Lk
    float last;  // @host 0.5
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_layout_is_the_compilers(arch: str) -> None:
    text = kernel_text(arch, region_edit(arch, "params", ODD))
    places, size = layout(text.contract)
    checks = [f"static_assert(sizeof(Params) == {size});"]
    checks += [f"static_assert(__INTADDR__(&((Params*)0)->{p.field.name}) == {p.offset});" for p in places]
    form = listed_instantiations(text.contract, DType.BF16, 64)[0]
    right = text.source.data + "\n".join(checks).encode()
    compile_ptx(SourceFile("kernel.cu", right), text.contract, form)
    wrong = right.replace(f"== {places[-1].offset});".encode(), b"== 1);")
    with pytest.raises(CuError, match="static assertion failed"):
        compile_ptx(SourceFile("kernel.cu", wrong), text.contract, form)


def test_bytes_of_the_values() -> None:
    contract = kernel_text("sm90a").contract
    values: dict[str, int | float | bytes] = {f.name: 0 for f in contract.params}
    values |= {name: bytes([x]) * 128 for x, name in ((1, "q"), (2, "k"), (3, "v"), (4, "o"))}
    values |= {"lse": 2**63, "len_q": 7, "exponent_scale": 0.25}
    data = pack(contract, values)
    at = {p.field.name: p.offset for p in layout(contract)[0]}
    assert data[:512] == b"\1" * 128 + b"\2" * 128 + b"\3" * 128 + b"\4" * 128
    assert struct.unpack_from("<Q", data, at["lse"]) == (2**63,)
    assert struct.unpack_from("<i", data, at["len_q"]) == (7,) and struct.unpack_from(
        "<f", data, at["exponent_scale"]
    ) == (0.25,)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 0.5])
def test_numbers_that_do_not_fit(value: float) -> None:
    contract = kernel_text("sm80").contract
    field = contract.field("len_q")
    assert field.c_type is CType.INT
    with pytest.raises(CuError) as caught:
        pack(replace(contract, params=(field,)), {"len_q": value})
    assert caught.value.diagnostics[0].code == "CU826" and "`len_q`" in caught.value.diagnostics[0].message
