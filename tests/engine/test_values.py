"""The value engine on both kernels and on variants of their regions, against fp64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cubridge.engine.core.sync import Policy
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.engine.values.machine import Split
from cubridge.engine.values.run import ValueRun
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import DEFAULT_SHAPE, Shape
from tests.support.edit_text import edited
from tests.support.golden_texts import GOLDEN_NAMES

CAUSAL = (
    ("s = where(j < Lk, s, -inf)", "s = where((j < Lk) & (j <= i), s, -inf)"),
    (
        "hi = ceil_div(Lk, BLOCK_KV)",
        "hi = minimum(ceil_div(Lk, BLOCK_KV), (tile.q_start + BLOCK_Q - 1) // BLOCK_KV + 1)",
    ),
    ("full_hi = Lk // BLOCK_KV", "full_hi = minimum(Lk // BLOCK_KV, (tile.q_start + 1) // BLOCK_KV)"),
)
SCALE = "exponent_scale=Scalar(f32, host=D ** -0.5 * LOG2E)"
ALIBI = (
    ("tile_state()", "tile_state(\n    slope=Scalar(f32),\n)"),
    ("exponent_scale=Scalar(f32, host=D ** -0.5 * LOG2E),", f"{SCALE},\nslope=Captured(f32, Hq),"),
    ("def tile_setup(tile):\n    pass", "def tile_setup(tile):\n    tile.slope = p.slope[tile.h]"),
    ("def score(s, kv_start, tile):\n    pass", "def score(s, kv_start, tile):\n    s = s + tile.slope * f32(j - i)"),
)

PROBE_SHAPE = Shape(1, 6, 3, 193, 130, 64)
"""No size but D is that of DEFAULT_SHAPE."""


def variant(name: str, *changes: tuple[str, str], head_dim: int = 64) -> Kernel:
    return edited(name, ("HEAD_DIM=128", f"HEAD_DIM={head_dim}"), *changes)


def inputs(shape: Shape, steep: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """q [B, Hq, Lq, D] and k, v [B, Hk, Lk, D] in bf16."""
    random = torch.Generator().manual_seed(1)
    q = torch.randn(shape.B, shape.Hq, shape.Lq, shape.D, generator=random) * steep
    k = torch.randn(shape.B, shape.Hk, shape.Lk, shape.D, generator=random)
    v = torch.randn(shape.B, shape.Hk, shape.Lk, shape.D, generator=random)
    return q.bfloat16(), k.bfloat16(), v.bfloat16()


def expected(
    qkv: tuple[Tensor, Tensor, Tensor], keep: Tensor | None = None, bias: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """Attention in fp64; rows that see nothing are 0 and -inf."""
    q, k, v = (x.double() for x in qkv)
    groups = q.shape[1] // k.shape[1]
    s = q @ k.repeat_interleave(groups, 1).mT * q.shape[-1] ** -0.5 + bias
    if keep is not None:
        s = s.masked_fill(~keep, -torch.inf)
    return s.softmax(-1).nan_to_num() @ v.repeat_interleave(groups, 1), s.logsumexp(-1)


def check(
    kernel: Kernel, shape: Shape, keep: Tensor | None = None, bias: Tensor | float = 0.0, **launch: object
) -> None:
    qkv = inputs(shape, steep=4.0)
    out, lse = run_values(kernel, qkv, Launch(shape, values={"GROUP_HEADS": 4}, **launch))  # pyright: ignore[reportArgumentType]
    want, want_lse = expected(qkv, keep, bias)
    assert lse is not None
    torch.testing.assert_close(out.double(), want, atol=3e-2, rtol=2e-2)
    torch.testing.assert_close(lse.double(), want_lse, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
@pytest.mark.parametrize(
    "shape", [DEFAULT_SHAPE, PROBE_SHAPE, Shape(1, 2, 1, 1, 1, 64), Shape(1, 1, 1, 128, 63, 64)], ids=str
)
def test_full(name: str, shape: Shape) -> None:
    check(variant(name), shape)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
@pytest.mark.parametrize("shape", [DEFAULT_SHAPE, Shape(1, 2, 1, 500, 100, 64), Shape(1, 2, 1, 100, 500, 64)], ids=str)
def test_causal(name: str, shape: Shape) -> None:
    keep = torch.arange(shape.Lk)[None, :] <= torch.arange(shape.Lq)[:, None]
    check(variant(name, *CAUSAL), shape, keep)


def test_work_by_counters() -> None:
    keep = torch.arange(321)[None, :] <= torch.arange(257)[:, None]
    check(variant("sm90a", *CAUSAL), Shape(1, 5, 5, 257, 321, 64), keep, counters=True, grid=(4, 1, 1))


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_rows_without_keys(name: str) -> None:
    changes = (
        (CAUSAL[0][0], "s = where((j < Lk) & (j + 200 <= i), s, -inf)"),
        (
            CAUSAL[1][0],
            "hi = minimum(ceil_div(Lk, BLOCK_KV), maximum(tile.q_start + BLOCK_Q - 201, -1) // BLOCK_KV + 1)",
        ),
        (CAUSAL[2][0], "full_hi = 0"),
    )
    shape = Shape(1, 2, 1, 500, 300, 64)
    keep = torch.arange(300)[None, :] + 200 <= torch.arange(500)[:, None]
    check(variant(name, *changes), shape, keep)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_captured_slopes(name: str) -> None:
    shape = Shape(2, 6, 3, 193, 130, 64)
    slope = torch.linspace(0.1, 0.9, 6)
    distance = torch.arange(130)[None, :] - torch.arange(193)[:, None]
    kernel = variant(name, *ALIBI, ("p.slope[tile.h]", "p.slope[tile.h] * 0.5 + 0.5 * p.slope[tile.h]"))
    check(kernel, shape, bias=slope[:, None, None] * distance * 64**-0.5, captures={"slope": slope})
    one = Shape(1, 1, 1, 193, 130, 64)
    check(kernel, one, bias=slope[:1, None, None] * distance * 64**-0.5, captures={"slope": slope[:1]})


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_key_tiles_that_depend_on_the_head(name: str) -> None:
    """Blocks of one launch that go different ways."""
    changes = (
        (CAUSAL[0][0], "s = where((j < Lk) & (j < 70 * tile.h), s, -inf)"),
        (CAUSAL[1][0], "hi = ceil_div(minimum(Lk, 70 * tile.h), BLOCK_KV)"),
        (CAUSAL[2][0], "full_hi = minimum(Lk, 70 * tile.h) // BLOCK_KV"),
    )
    shape = Shape(1, 4, 2, 140, 200, 64)
    keep = (torch.arange(200)[None, :] < 70 * torch.arange(4)[:, None])[:, None, :].expand(4, 140, 200)
    check(variant(name, *changes), shape, keep)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_no_queries(name: str) -> None:
    shape = Shape(1, 2, 1, 0, 10, 64)
    out, lse = run_values(variant(name), inputs(shape), Launch(shape, values={"GROUP_HEADS": 1}))
    assert out.shape == (1, 2, 0, 64) and lse is not None and lse.shape == (1, 2, 0)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_partial_sum_used_as_a_row_is_wrong(name: str) -> None:
    kernel = variant(name, ("l = add_lanes(row.l)", "l = row.l"))
    qkv = inputs(PROBE_SHAPE)
    with pytest.raises(CuError, match="shape"):
        run_values(kernel, qkv, Launch(PROBE_SHAPE, values={"GROUP_HEADS": 1}))


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_skipping_must_be_a_no_op(name: str) -> None:
    kernel = variant(name, ("if any_lane(row.o_scale != 1.0):", "if any_lane(row.o_scale < 0.0):"))
    qkv = inputs(PROBE_SHAPE, steep=4.0)
    with pytest.raises(CuError) as error:
        run_values(kernel, qkv, Launch(PROBE_SHAPE, values={"GROUP_HEADS": 1}))
    assert error.value.diagnostics[0].code == "CU311"


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_wrong_inputs_are_refused(name: str) -> None:
    q, k, v = inputs(PROBE_SHAPE)
    launch = Launch(PROBE_SHAPE, values={"GROUP_HEADS": 1})
    for bad in ((q.float(), k, v), (q, k[:, :1], v)):
        with pytest.raises(CuError) as error:
            run_values(variant(name), bad, launch)
        assert error.value.diagnostics[0].code == "CU312"
    with pytest.raises(CuError) as error:
        run_values(variant(name, *ALIBI), (q, k, v), replace(launch, captures={"slope": torch.ones(3)}))
    assert error.value.diagnostics[0].code == "CU312"


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ("f16, BLOCK_KV, HEAD_DIM", "a bf16 tile of .* cannot go to an f16 one"),
        ("bf16, BLOCK_KV, 32", "tile of .* cannot go to one of"),
    ],
)
def test_a_copy_changes_neither_elements_nor_shape(of: str, said: str) -> None:
    kernel = variant("sm80", ("k=Tile(bf16, BLOCK_KV, HEAD_DIM", f"k=Tile({of}"))
    with pytest.raises(CuError, match=said) as error:
        run_values(kernel, inputs(PROBE_SHAPE), Launch(PROBE_SHAPE, values={"GROUP_HEADS": 1}))
    assert error.value.diagnostics[0].code == "CU301" and "copy_async" in error.value.diagnostics[0].span.text


def test_what_decides_is_one_number_for_all_blocks() -> None:
    machine = ValueRun.__new__(ValueRun)
    assert machine.one(3) == 3
    assert machine.one(np.array([3, 3])) == 3
    with pytest.raises(Split) as split:
        machine.one(np.array([3, 3, 4]))
    assert split.value.values.tolist() == [3, 3, 4]


def test_an_index_past_a_captured_tensor_is_found() -> None:
    kernel = variant("sm80", *ALIBI, ("p.slope[tile.h]", "p.slope[tile.h + 1]"))
    q = inputs(PROBE_SHAPE)
    with pytest.raises(CuError) as error:
        run_values(kernel, q, Launch(PROBE_SHAPE, captures={"slope": torch.ones(6)}))
    assert error.value.diagnostics[0].code == "CU313"


DOCUMENTS = (
    ("tile_state()", "tile_state(\n    doc_i=Row(i32),\n)"),
    ("exponent_scale=Scalar(f32, host=D ** -0.5 * LOG2E),", f"{SCALE},\ndoc=Captured(i32, B, Lk, pad=128),"),
    (
        "def tile_setup(tile):\n    pass",
        "def tile_setup(tile):\n    q = maximum(minimum(i, Lq - 1), 0)\n    tile.doc_i = p.doc[tile.b, q]",
    ),
    ("s = where(j < Lk, s, -inf)", "s = where((j < Lk) & (tile.doc_i == p.doc[tile.b, j]), s, -inf)"),
    ("full_hi = Lk // BLOCK_KV", "full_hi = 0"),
)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_value_for_each_row_that_tile_setup_captures(name: str) -> None:
    shape = Shape(2, 2, 1, 270, 270, 64)
    doc = torch.stack([torch.arange(270) // 100, torch.arange(270) // 37])
    keep = (doc[:, :, None] == doc[:, None, :])[:, None]
    check(variant(name, *DOCUMENTS), shape, keep, captures={"doc": doc})


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_rows_that_tile_setup_reads_lie_inside(name: str) -> None:
    kernel = variant(name, *DOCUMENTS, ("maximum(minimum(i, Lq - 1), 0)", "maximum(i, 0)"))
    shape = Shape(1, 2, 1, 270, 130, 64)
    with pytest.raises(CuError) as error:
        run_values(kernel, inputs(shape), Launch(shape, {"doc": torch.zeros(1, 130)}, {"GROUP_HEADS": 4}))
    assert error.value.diagnostics[0].code == "CU313"


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_any_legal_order_gives_the_same_bits(name: str) -> None:
    """Which team goes first, for how long, and whether copies land early or late."""
    kernel, qkv = variant(name, *CAUSAL), inputs(PROBE_SHAPE, steep=4.0)
    launch = Launch(PROBE_SHAPE, values={"GROUP_HEADS": 2})
    results = [
        run_values(kernel, qkv, launch, policy=Policy(descending, quantum, at_once))
        for descending in (False, True)
        for quantum, at_once in ((1, True), (7, False), (1 << 30, False))
    ]
    for out, lse in results[1:]:
        assert torch.equal(out, results[0][0])
        assert lse is not None and results[0][1] is not None and torch.equal(lse, results[0][1])
