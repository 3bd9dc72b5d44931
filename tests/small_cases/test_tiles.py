"""Small cases from public trouble, 21 to 28: lengths around the borders of tiles, shapes, layouts."""
# pyright: basic

from __future__ import annotations

import pytest
import torch

from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.device import PtxDevice
from cubridge.driver.compiled import compile_adapted
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Expr, Name
from cubridge.ir.spec import Shape
from cubridge.ir.walk import walk
from cubridge.passes.tile_check import visits
from tests.passes.tile_counts import names_of
from tests.small_cases.tools import (
    adapted,
    attend,
    each_on,
    positions,
    random_inputs,
    refused,
    repeated,
    run,
    scores,
    spec,
    values,
)  # fmt: skip

EACH = each_on("sm90a")
LENGTHS = (1, 63, 64, 65, 127, 128, 129, 192, 257, 1000)
LONG = 4097


def full(q, k, v):
    return attend(scores(q, k).softmax(-1), q, v)


def bottom_right(q, k, v):
    i, j = positions(q, k)
    return attend(scores(q, k).masked_fill(j > i + k.shape[2] - q.shape[2], -torch.inf).softmax(-1), q, v)


# ---- 21, 22: lengths ---------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("reference", [full, bottom_right])
def test_21_lengths(kernel: str, reference) -> None:
    for lk in LENGTHS:
        for lq in {1, min(lk, 257)}:
            assert run(reference, random_inputs(1, 1, 1, lq, lk), kernel=kernel).right, (lq, lk)
    assert run(reference, random_inputs(1, 1, 1, 1, LONG), kernel=kernel).right


@EACH
@pytest.mark.parametrize("lengths", [(1, 1), (1, 129), (63, 64), (65, 65), (129, 127), (192, 257)], ids=str)
def test_21_lengths_of_the_text(kernel: str, lengths: tuple[int, int]) -> None:
    assert run(bottom_right, random_inputs(1, 2, 1, *lengths), kernel=kernel, emulated=True).right


@EACH
def test_22_tiles_that_see_nothing_run_no_iteration(kernel: str) -> None:
    target = adapted(bottom_right, kernel=kernel).target
    shape = Shape(1, 1, 1, 2048, 512, 64)
    block = int(target.constant("BLOCK_Q"))
    seen = [len(visits(target, names_of(target, shape, start, {}))) for start in range(0, 2048, block)]
    assert not any(seen[: 1536 // block]) and all(seen[1536 // block :])
    result = run(bottom_right, random_inputs(1, 1, 1, 2048, 512), kernel=kernel)
    assert result.right
    assert not result.out[:, :, :1536].any() and (result.lse[:, :, :1536] == -torch.inf).all()


# ---- 23, 24: shapes and layouts ----------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize(("b", "lq", "lk"), [(0, 5, 7), (2, 0, 7), (2, 5, 0)])
def test_23_empty_problems(kernel: str, b: int, lq: int, lk: int) -> None:
    launcher = Launcher(PtxDevice(), adapted(bottom_right, kernel=kernel).text)
    out, lse = launcher(*random_inputs(b, 4, 2, lq, lk), lse=True)
    assert out.shape == (b, 4, lq, 64) and not out.any()
    assert lse.shape == (b, 4, lq) and (lse == -torch.inf).all()


def _expanded(q, k, v):
    return q, k[:, :1].expand_as(k), v


def _transposed(q, k, v):
    return q, k, v.transpose(1, 2).contiguous().transpose(1, 2)


def _columns_first(q, k, v):
    return q, k, v.mT.contiguous().mT


def _one_buffer(q, k, v):
    return torch.cat([q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)], 3).split(64, 3)


@EACH
@pytest.mark.parametrize("layout", [_expanded, _transposed, _columns_first, _one_buffer])
def test_24_layouts(kernel: str, layout) -> None:
    inputs = layout(*random_inputs(1, 4, 2, 65, 65))
    assert not all(x.is_contiguous() for x in inputs)
    launcher = Launcher(PtxDevice(), adapted(bottom_right, kernel=kernel).text, say=lambda _: None)
    assert torch.equal(launcher(*inputs), launcher(*(x.contiguous() for x in inputs)))


# ---- 25: grouped heads -------------------------------------------------------------------------------------------------


def _tiled(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


@EACH
def test_25_query_heads_read_the_key_head_of_their_group(kernel: str) -> None:
    q, k, _ = random_inputs(1, 4, 2, 70, 130)
    v = torch.arange(2.0).view(1, 2, 1, 1).expand(1, 2, 130, 64).bfloat16().contiguous()
    for emulated in (False, True):
        out = run(full, (q, k, v), kernel=kernel, emulated=emulated).out
        assert [out[0, h].unique().tolist() for h in range(4)] == [[0.0], [0.0], [1.0], [1.0]]


def test_25_tiled_heads_are_refused() -> None:
    q, k, _ = random_inputs(1, 4, 2, 3, 5)
    v = torch.arange(2.0).view(1, 2, 1, 1).expand(1, 2, 5, 64)
    assert values(_tiled, q, k, v).out[0, :, 0, 0].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert refused(_tiled).code == "CU520"


# ---- 26, 27: captured tables -------------------------------------------------------------------------------------------


def _with_mask(q, k, v, mask):
    return attend(scores(q, k).masked_fill(~mask, -torch.inf).softmax(-1), q, v)


def _mask_of_the_call(shape, device):
    return {"mask": torch.ones(shape.Lq, shape.Lk, dtype=torch.bool).tril()}


FIXED = torch.ones(400, 400, dtype=torch.bool).tril()


def _with_fixed_mask(q, k, v):
    return attend(scores(q, k).masked_fill(~FIXED[: q.shape[2], : k.shape[2]], -torch.inf).softmax(-1), q, v)


def test_26_a_mask_of_another_length() -> None:
    q, k, v = random_inputs(1, 2, 1, 33, 40)
    operator = compile_adapted(adapted(_with_mask, _mask_of_the_call), lambda _: PtxDevice(), check=False)
    assert operator(q, k, v, torch.ones(33, 40, dtype=torch.bool)).shape == q.shape
    with pytest.raises(CuError, match=r"shape \[33, 50\].*40"):
        operator(q, k, v, torch.ones(33, 50, dtype=torch.bool))


def test_26_a_mask_of_one_length_bounds_the_lengths() -> None:
    operator = compile_adapted(adapted(_with_fixed_mask), lambda _: PtxDevice(), check=False)
    assert operator(*random_inputs(1, 2, 1, 33, 400)).shape == (1, 2, 33, 64)
    with pytest.raises(CuError, match="Lk <= 400; the call has Lk = 401"):
        operator(*random_inputs(1, 2, 1, 33, 401))


def _tables(q, k, v, rows, keys, dense, doc):
    s = scores(q, k) + rows[:, None] + keys[:, None, None, :] + dense
    keep = doc[: q.shape[2], None] == doc[None, : k.shape[2]]
    return attend(s.masked_fill(~keep, -torch.inf).softmax(-1), q, v)


def _exact_tables(shape, device):
    return {
        "rows": torch.sin(torch.arange(shape.Lq)),
        "keys": torch.cos(torch.arange(shape.B * shape.Lk)).view(shape.B, shape.Lk),
        "dense": torch.sin(torch.arange(shape.Lq * shape.Lk)).view(shape.Lq, shape.Lk),
        "doc": torch.arange(max(shape.Lq, shape.Lk)) // 40,
    }


@EACH
@pytest.mark.parametrize("lengths", [(65, 65), (129, 193), (200, 70)], ids=str)
def test_27_tables_are_never_read_past_their_end(kernel: str, lengths: tuple[int, int]) -> None:
    """The emulator stops at any access outside a buffer, and what the value engine pads is NaN."""
    inputs = random_inputs(2, 2, 1, *lengths)
    assert run(_tables, inputs, _exact_tables, kernel).right
    assert run(_tables, inputs, _exact_tables, kernel, emulated=True).right


# ---- 28: a head that sees nothing --------------------------------------------------------------------------------------


def _per_head(q, k, v, reach):
    i, j = positions(q, k)
    keep = i - j < reach[:, None, None]
    keep = keep & (j <= i)
    return attend(scores(q, k).masked_fill(~keep, -torch.inf).softmax(-1), q, v)


@EACH
@pytest.mark.parametrize("emulated", [False, True])
def test_28_a_head_that_sees_nothing(kernel: str, emulated: bool) -> None:
    def extra(shape, device):
        return {"reach": torch.arange(shape.Hq) * 30}

    result = run(_per_head, random_inputs(1, 4, 2, 150, 200), extra, kernel, emulated=emulated)
    assert result.right
    assert not result.out[:, 0].any() and (result.lse[:, 0] == -torch.inf).all()
    assert result.out[:, 1:].any(-1).all()


def test_28_the_key_sequence_depends_on_the_head() -> None:
    def extra(shape, device):
        return {"reach": torch.arange(shape.Hq) * 30}

    def head_only(q, k, v):
        keep = torch.arange(q.shape[1])[:, None, None] > 0
        return attend(scores(q, k).masked_fill(~keep, -torch.inf).softmax(-1), q, repeated(v, q))

    assert _reads(spec(head_only).mask, "h") and _reads(spec(_per_head, extra).mask, "reach")
    result = run(head_only, random_inputs(1, 2, 2, 70, 130))
    assert result.right and not result.out[:, 0].any() and result.out[:, 1].any(-1).all()


def _reads(expr: Expr, name: str) -> bool:
    return any(node == Name(name) for node in walk(expr))
