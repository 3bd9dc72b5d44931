"""Documents in one row, on the emulator: what the reference gives for each document alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cubridge.backend.launch.varlen import VarlenOperator
from cubridge.driver.compiled import in_layout
from cubridge.ir.diagnostics import CuError
from tests.driver.test_calls import operator, scores, times


def bottom_right(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths are those of a document: Lk - Lq shifts its mask."""
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = scores(q, k).float() + slopes[:, None, None] * (j - i)
    s = s.masked_fill(j > i + k.shape[2] - q.shape[2], -torch.inf)
    return times(s.softmax(-1), v), s.logsumexp(-1)


@pytest.fixture(scope="module")
def run() -> VarlenOperator:
    found = in_layout(operator(bottom_right, slopes=lambda s: torch.linspace(0.1, 0.4, s.Hq)), "varlen")
    assert isinstance(found, VarlenOperator)
    return found


SLOPES = torch.tensor([0.5, 0.1, -0.1, 0.2])


def packed(rows: int, keys: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, h, 64, generator=generator).bfloat16() for n, h in ((rows, 4), (keys, 2), (keys, 2))]


@pytest.mark.parametrize(
    ("rows", "keys"),
    [
        ((0, 9, 9, 70, 71), None),
        ((0, 9, 40, 41), (0, 12, 90, 155)),
        ((0, 33), (0, 65)),
        ((0, 5, 5, 9), (0, 5, 8, 8)),
        ((0,), None),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_each_document_is_alone(run: VarlenOperator, rows, keys, dtype: torch.dtype) -> None:
    keys = rows if keys is None else keys
    q, k, v = packed(rows[-1], keys[-1])
    bounds = {"cu_seqlens_q": torch.tensor(rows, dtype=dtype)}
    bounds |= {} if keys == rows else {"cu_seqlens_k": torch.tensor(keys, dtype=dtype)}
    out, lse = run(q, k, v, SLOPES, **bounds)
    assert out.shape == q.shape and out.dtype == q.dtype and lse.shape == (4, len(q))
    for n in range(len(rows) - 1):
        (a, b), (c, d) = rows[n : n + 2], keys[n : n + 2]
        alone = (t.transpose(0, 1)[None].double() for t in (q[a:b], k[c:d], v[c:d]))
        right_out, right_lse = bottom_right(*alone, SLOPES.double())
        torch.testing.assert_close(out[a:b].double(), right_out[0].transpose(0, 1), rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(lse[:, a:b].double(), right_lse[0].double(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ([0, 9, 41], "goes from 0 to 41; there are rows 0 to 40"),
        ([0, 9], "goes from 0 to 9"),
        ([1, 40], "goes from 1 to 40"),
        ([0, 30, 20, 40], "falls from 30 to 20 at element 2"),
        ([], r"float32 \[0\]"),
        ([[0, 40]], r"int64 \[1, 2\]"),
        ([0.0, 40.0], r"float32 \[2\]; int32 or int64 bounds"),
    ],
)
def test_bounds_are_checked(run: VarlenOperator, bounds: list[int], said: str) -> None:
    with pytest.raises(CuError, match=said) as caught:
        run(*packed(40, 40), SLOPES, cu_seqlens_q=torch.tensor(bounds))
    assert caught.value.diagnostics[0].code == "CU821"


def test_what_does_not_go_together_is_refused(run: VarlenOperator) -> None:
    q, k, v = packed(40, 50)
    whole, parts = torch.tensor([0, 40]), torch.tensor([0, 30, 50])
    for args, bounds in (
        ((q, k, v), {"cu_seqlens_q": whole}),
        ((q, k, v), {"cu_seqlens_q": whole, "cu_seqlens_k": parts}),
        ((q, k, v[:40]), {"cu_seqlens_q": whole, "cu_seqlens_k": torch.tensor([0, 50])}),
        ((q[None], k, v), {"cu_seqlens_q": whole, "cu_seqlens_k": torch.tensor([0, 50])}),
    ):
        with pytest.raises(CuError) as caught:
            run(*args, SLOPES, **bounds)
        assert caught.value.diagnostics[0].code == "CU821"
    with pytest.raises(CuError, match="no layout"):
        in_layout(run.operator, "packed")
