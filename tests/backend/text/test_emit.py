"""The text of whole functions: what the shipped kernels say themselves comes out as their authors wrote it."""

from __future__ import annotations

import pytest

from cubridge.backend.text.anchor import spelling_of
from cubridge.backend.text.emit import emit_function
from cubridge.backend.text.names import Names, Spelling
from cubridge.ir.nodes import REGIONS
from cubridge.ir.vocabulary import VALUE_REGIONS
from tests.backend.text.lowering import NAMES, target_ir
from tests.frontend.cuda.kernels import ARCHITECTURES, shipped


def emitted(changes: str, name: str) -> str:
    kernel = target_ir(changes)
    return emit_function(kernel.region(name), kernel, Spelling(Names(NAMES.size_fields), {}))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", REGIONS)
def test_a_regions_own_text_comes_back(arch: str, name: str) -> None:
    lifted = shipped(arch)
    region = lifted.source_map.region("kv_range" if name in VALUE_REGIONS else name)
    text = region.function(name)
    spelling = spelling_of(text, NAMES, region, REGIONS[name])
    again = emit_function(lifted.kernel.region(name), lifted.kernel, spelling, text.body.location[1])
    assert again == text.body.text.replace("RESCALE_LAG", "8.f")


def test_a_scalar_between_rows_goes_in_front_of_them() -> None:
    body = "    a = row.m\n    b = p.exponent_scale * 2.0\n    row.m = a * b\n"
    text = emitted(f"@region\ndef row_update(s, row, kv_start, tile):\n{body}", "row_update")
    assert text.count("for (") == 1
    assert text.index("const float b") < text.index("for (") < text.index("const float a")


def test_a_scalar_that_the_rows_still_need_waits() -> None:
    body = "    b = p.exponent_scale\n    row.m = b\n    b = b * 2.0\n    row.l = 0.0\n    row.o_scale = b\n"
    text = emitted(f"@region\ndef row_update(s, row, kv_start, tile):\n{body}", "row_update")
    assert text.count("for (") == 2
    assert text.index("float b = p.exponent_scale;") < text.index("row.m[r]") < text.index("b = b * 2.f;")


def test_an_empty_body_is_braces() -> None:
    assert emitted("@region\ndef mask(s, kv_start, tile):\n    pass\n", "mask") == "{}"


def test_loop_variables_avoid_the_names_of_the_region() -> None:
    body = "    c = f32(i)\n    r = 2.0\n    s = s * c * r\n"
    text = emitted(f"@region\ndef mask(s, kv_start, tile):\n{body}", "mask")
    assert "s[r_][c_] = s[r_][c_] * c * r;" in text


def test_a_line_that_is_too_long_is_a_block() -> None:
    value = " + ".join(["keys.hi"] * 12)
    text = emitted(f"@region\ndef key_count(keys):\n    return {value}\n", "key_count")
    assert text == f"{{ return {value}; }}"
    kernel = target_ir(f"@region\ndef key_count(keys):\n    return {value}\n")
    block = emit_function(kernel.region("key_count"), kernel, Spelling(NAMES, {}), column=60)
    assert block == f"{{\n    return {value};\n}}"
