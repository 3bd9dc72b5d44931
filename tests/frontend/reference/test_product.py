"""Products of matrices are recorded as one call each, of the shape that torch gives them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.record import record
from cubridge.frontend.reference.trace import trace
from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Shape


def attend(scores: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores, -1) @ v


def test_one_call() -> None:
    def plain(q, k, v):
        return attend(q @ k[:, :1].mT, v[:, :1])

    names = [c.name for c in record(Reference.of(plain), Shape(2, 6, 3, 29, 37, 64), torch.bfloat16).calls]
    assert names.count("product") == 2
    assert not {"expand", "view", "bmm"} & {*names}


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (7, 4, 1)), ((1, 1), (6, 1, 2))],
)
def test_as_torch_shapes_it(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    given = [torch.empty(a, device="meta"), torch.empty(b, device="meta")]
    assert torch.ops.cubridge_reference.product(*given).shape == torch.matmul(*given).shape


@pytest.mark.parametrize(("a", "b", "dims"), [((5, 2, 3), (4, 3, 6), (0, None)), ((2, 5, 3), (5, 3, 4), (1, 0)),
                                              ((3, 4), (5, 2, 4, 6), (None, 0)), ((2, 3, 4, 5), (4, 6, 5), (3, 2))])  # fmt: skip
def test_under_vmap(a: tuple[int, ...], b: tuple[int, ...], dims: tuple[int | None, int | None]) -> None:
    given = [torch.empty(a, device="meta"), torch.empty(b, device="meta")]
    ours = torch.vmap(torch.ops.cubridge_reference.product, dims)(*given)
    assert ours.shape == torch.vmap(torch.matmul, dims)(*given).shape


def test_axes_under_vmap_stay_apart() -> None:
    def mapped(q, k, v):
        k, v = k[:, :1].expand_as(k), v[:, :1]
        scores = torch.vmap(torch.vmap(lambda a, b: a @ b.mT, (0, None)), (0, 0))(q, k[:, 0])
        return attend(scores, v)

    assert print_expr(trace(Reference.of(mapped)).spec.kv_head) == "0"


def test_of_mixed_types_under_autocast_alone() -> None:
    def mixed(q, k, v):
        return attend(q @ k[:, :1].mT.float(), v[:, :1])

    def cast(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return mixed(q, k, v)

    assert trace(Reference.of(cast)).spec.specialised == ()
    assert trace(Reference.of(mixed)).spec.specialised[0].message.startswith("read in float32")


def test_of_matrices_that_do_not_fit() -> None:
    with pytest.raises(CuError) as caught:
        trace(Reference.of(lambda q, k, v: attend(q @ k, v)))
    assert "(B, G*Hk, Lq, D) and (B, Hk, Lk, D) cannot be multiplied" in str(caught.value)
