from __future__ import annotations

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Captured, Kernel
from cubridge.ir.printer import print_field_type, print_stmts
from cubridge.passes.pipeline import parse_text
from cubridge.passes.runner import run_pipeline
from tests.support.golden_texts import golden_kernel


def bind(name: str, extents: str, dtype: str = "f32") -> str:
    return f'bind-captured{{capture="{name}",dtype="{dtype}",extents="{extents}"}},'


def run(text: str, arch: str = "sm80") -> Kernel:
    return run_pipeline(golden_kernel(arch), parse_text(text))


def region(kernel: Kernel, name: str) -> list[str]:
    return print_stmts(kernel.region(name).body).split("\n")


def fields(kernel: Kernel) -> dict[str, str]:
    return {
        f.name: print_field_type(f.type) for f in (*kernel.params, *kernel.tile_state) if not f.fixed or f.name != "q"
    }


def score(extents: str, read: str, arch: str = "sm80") -> Kernel:
    return run(
        bind("t", extents) + f'rewrite-score{{score="(s + {read}) * 0.25"}},fold-scale,place-captured,hoist', arch
    )


def test_a_value_per_head_is_loaded_once_per_query_tile() -> None:
    kernel = run(bind("t", "Hq") + 'rewrite-score{score="s * 0.25 + t[h] * (i - j)"},fold-scale,place-captured')
    assert region(kernel, "tile_setup") == ["tile.t = p.t[tile.h] * 4.0"]
    assert region(kernel, "score") == ["s = s + tile.t * f32(i - j)"]
    assert fields(kernel)["t"] == "Scalar(f32)"


def test_a_value_per_row_is_loaded_once_per_row_and_never_past_the_last() -> None:
    kernel = score("B, Lq", "t[b, i] * (i - j)")
    assert region(kernel, "tile_setup") == ["tile.t_i = p.t[tile.b, maximum(minimum(i, Lq - 1), 0)]"]
    assert region(kernel, "score") == ["s = s + tile.t_i * f32(i - j)"]


def test_a_value_per_key_is_padded_to_whole_tiles() -> None:
    kernel = score("B, Lk", "t[b, j]")
    assert region(kernel, "score") == ["t_j = p.t[tile.b, j]", "s = s + t_j"]
    assert next(f.type for f in kernel.params if f.name == "t") == Captured(*_t(kernel), pad=128)


def _t(kernel: Kernel) -> tuple[object, object]:
    kind = next(f.type for f in kernel.params if f.name == "t")
    assert isinstance(kind, Captured)
    return kind.dtype, kind.extents


@pytest.mark.parametrize(
    ("extents", "read", "expected"),
    [
        ("Lk", "t[j]", "t_j = p.t[j]"),
        ("maximum(Lq, Lk)", "t[j]", "t_j = p.t[j]"),
        ("Lq", "t[j]", "t_j = p.t[minimum(j, Lq - 1)]"),
        ("Lk // 4", "t[j]", "t_j = p.t[minimum(j, Lk // 4 - 1)]"),
        ("Lk - 1", "t[j - 1]", "t_j = p.t[minimum(maximum(j - 1, 0), Lk - 1 - 1)]"),
        ("Lk", "t[Lk - 1 - j]", "t_j = p.t[Lk - 1 - minimum(j, Lk - 1)]"),
        (
            "Hq, 21",
            "t[h, maximum(minimum(j - i, 10), -10) + 10]",
            "s = s + p.t[tile.h, maximum(minimum(j - i, 10), -10) + 10]",
        ),
        ("Lq, Lk", "t[i, j]", "s = s + p.t[row_value, j]"),
        ("7", "t[j % 7]", "t_j = p.t[j % 7]"),
        ("7", "t[(i + j) % 7]", "s = s + p.t[(i + j) % 7]"),
        ("Lk + 1", "t[j + 1]", "t_j = p.t[minimum(j, Lk - 1) + 1]"),
    ],
)
def test_no_load_leaves_its_table(extents: str, read: str, expected: str) -> None:
    assert expected in region(score(extents, read), "score")


def test_a_difference_is_clamped_on_both_sides() -> None:
    kernel = score("Lq + Lk - 1", "t[i - j + Lk - 1]")
    (line,) = [x for x in region(kernel, "score") if x.startswith("s =")]
    assert "minimum(j, Lk - 1)" in line and "minimum(i, Lq - 1)" in "".join(region(kernel, "score"))


def test_an_index_that_is_data_is_read_at_existing_keys() -> None:
    kernel = run(
        bind("bucket", "Lk", "i32")
        + bind("t", "Hq, 9")
        + 'rewrite-score{score="s + t[h, bucket[j]]"},fold-scale,place-captured'
    )
    assert "p.t[tile.h, minimum(maximum(p.bucket[minimum(j, Lk - 1)], 0), 8)]" in "".join(region(kernel, "score"))
    assert fields(kernel)["bucket"] == "Captured(i32, Lk)"


def test_an_index_of_an_index_is_read_inside_of_a_table_that_ends_before_the_keys_do() -> None:
    kernel = run(
        bind("bucket", "36, 36", "i32")
        + bind("t", "9")
        + 'rewrite-score{score="s + t[bucket[i, j]]"},fold-scale,place-captured'
    )
    (line,) = region(kernel, "score")
    assert "p.bucket[minimum(i, 35), minimum(j, 35)]" in line


@pytest.mark.parametrize(
    ("extents", "read", "loaded"),
    [
        ("4", "t[h]", "p.t[minimum(tile.h, 3)]"),
        ("Hq", "t[h]", "p.t[tile.h]"),
        ("4, Lq", "t[h, i]", "p.t[minimum(tile.h, 3), maximum(minimum(i, Lq - 1), 0)]"),
    ],
)
def test_what_is_loaded_once_per_tile_is_inside_without_its_condition(extents: str, read: str, loaded: str) -> None:
    assert loaded in "".join(region(score(extents, f"where(h < 4, {read} * (j - i), 0)"), "tile_setup"))


def test_scalars_are_host_values() -> None:
    kernel = run('bind-captured{capture="cap",dtype="f32"},rewrite-score{score="cap * tanh(s / cap)"},fold-scale')
    assert region(kernel, "score") == ["s = tanh(s * p.score_scale) * p.cap"]
    assert fields(kernel)["score_scale"] == "Scalar(f32, host=1.0 / cap)"


def test_a_table_that_ends_before_the_rows_is_read_inside() -> None:
    kernel = run(bind("text", "B, Lk // 4", "i32") + 'rewrite-mask{keep="text[b, i] > 0"},place-captured')
    (setup,) = region(kernel, "tile_setup")
    assert setup == "tile.text_i = p.text[tile.b, minimum(maximum(minimum(i, Lq - 1), 0), Lk // 4 - 1)]"


def test_masks_share_one_load_per_row() -> None:
    text = (
        bind("doc", "B, maximum(Lq, Lk)", "i32")
        + 'rewrite-mask{keep="(doc[b, i] == doc[b, j]) & (doc[b, i] > 0)"},place-captured'
    )
    kernel = run(text)
    assert region(kernel, "tile_setup") == ["tile.doc_i = p.doc[tile.b, maximum(minimum(i, Lq - 1), 0)]"]
    assert region(kernel, "mask") == [
        "doc_j = p.doc[tile.b, j]",
        "s = where((j < Lk) & ((tile.doc_i == doc_j) & (tile.doc_i > 0)), s, -inf)",
    ]


def test_the_key_range_reads_the_tile() -> None:
    text = (
        bind("prefix", "B", "i32")
        + 'rewrite-mask{keep="(j <= i) | (j < prefix[b])"},infer-kv-range,row-bounds,place-captured'
    )
    kernel = run(text)
    assert region(kernel, "tile_setup") == ["tile.prefix = p.prefix[tile.b]"]
    assert "hi = ceil_div(minimum(Lk, maximum(tile.q_start + BLOCK_Q, tile.prefix)), BLOCK_KV)" in region(
        kernel, "key_sequence"
    )
    assert region(kernel, "mask")[0] == "last = minimum(maximum(i, tile.prefix - 1), Lk - 1)"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (bind("t", "Hq") + bind("t", "Hq"), "CU508"),
        (bind("STAGES", "").replace(',extents=""', ""), "CU508"),
        (bind("SM_COUNT", "").replace(',extents=""', ""), "CU508"),
        (bind("lambda", "Hq"), "CU508"),
        (bind("a b", "Hq"), "CU508"),
        (bind("j", "Hq"), "CU508"),
        (bind("Lk", "Hq"), "CU508"),
        (bind("t", "Hq", "bf16"), "CU508"),
        (bind("t", "Hq") + 'rewrite-score{score="s + t[h, 0]"},', "CU506"),
        (bind("t", "Hq") + 'rewrite-score{score="s + t"},', "CU506"),
        (bind("t", "Hq") + 'rewrite-score{score="s + t[s]"},', "CU507"),
    ],
)
def test_what_cannot_be_bound_or_read(text: str, code: str) -> None:
    with pytest.raises(CuError) as raised:
        run(text.removesuffix(","))
    assert raised.value.diagnostics[0].code == code


def test_a_vector_that_reaches_a_tile_past_both_ends_is_read_as_it_is() -> None:
    read = "t[i - j + Lk + 127]"
    assert region(score("Lk + Lq + 254", read), "score")[-1] == "s = s + p.t[row_value - j]"
    for extents, clamped in (("Lk + Lq + 253", read), ("Lk + Lq + 254", "t[i - j + Lk + 125]")):
        assert "minimum" in "".join(region(score(extents, clamped), "score"))
