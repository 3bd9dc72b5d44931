"""Lists of key tiles that a launch makes: the kernel that makes them on a GPU, run by the emulator, against torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from cubridge.backend.compile.compiler import FEW_SPILLS, compile_best, listed_instantiations
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.launch.tile_plan import ListPlan, list_text
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.ir.contract import HostValue, ParamField, TileListAddress
from cubridge.ir.parser import parse_expr
from cubridge.ir.types import DType
from tests.support.variants import VARIANTS

KERNELS = ("sm80", "sm90a")
LENGTHS = (300, 64)


@cache
def text(kernel: str) -> KernelText:
    return adapt_unchecked(VARIANTS["documents_causal"].path, kernel).text


def sharing(of: KernelText) -> KernelText:
    """Two query tiles share a list, as beyond 64 MiB."""

    def changed(field: ParamField) -> ParamField:
        twice = HostValue(parse_expr("2 * BLOCK_Q"))
        return replace(field, value=twice) if field.name == "list_rows" else field

    return replace(of, contract=replace(of.contract, params=tuple(changed(f) for f in of.contract.params)))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """What the kernel makes in each launch, and what torch makes of the same."""
    found: list[tuple[Tensor, Tensor]] = []
    make = ListPlan.make

    def both(plan: ListPlan, arrays: Sequence[Tensor]) -> Tensor:
        lists, expected = make(plan, arrays), make(replace(plan, maker=None), arrays)
        found.append((lists, expected))
        return lists

    monkeypatch.setattr(ListPlan, "make", both)
    yield found


def _documents(length: int) -> list[Tensor]:
    """In runs; shuffled, another in each batch; of nobody and of all."""
    runs = torch.arange(length) // 70
    mixed = torch.randint(0, 2, (2, length), generator=torch.Generator().manual_seed(length))
    return [runs.expand(2, -1), mixed.sort().values, mixed, torch.full((2, length), -1)]


def _launch(launcher: Launcher, length: int, doc: Tensor) -> Tensor:
    half = torch.randn(2, 2, length, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    out = launcher(half, half, half, {"doc": doc.int()})
    assert isinstance(out, Tensor)
    return out


@pytest.mark.parametrize(
    ("kernel", "shared"),
    [
        ("sm80", False),
        ("sm90a", True),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in (("sm80", True), ("sm90a", False))),
    ],
)
def test_the_kernel_makes_the_lists_that_torch_makes(
    kernel: str, shared: bool, made: list[tuple[Tensor, Tensor]]
) -> None:
    of = sharing(text(kernel)) if shared else text(kernel)
    launcher = Launcher(PtxDevice(makes_lists=True, blocks=5), of)
    by_torch = Launcher(PtxDevice(ONE_SCHEDULE), of)
    for length in LENGTHS:
        for doc in _documents(length):
            out = _launch(launcher, length, doc)
            found, expected = made.pop()
            assert torch.equal(found, expected), length
            assert length == 300 or torch.equal(out, _launch(by_torch, length, doc))
            made.clear()


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_maker_compiles_without_spills(kernel: str) -> None:
    of = text(kernel)
    place = next(f for f in of.contract.params if isinstance(f.value, TileListAddress))
    maker = list_text(of, place, listed_instantiations(of.contract, DType.BF16, 64)[0])
    compiled = compile_best(maker.source, maker.contract, DType.BF16, 64, include_dirs=maker.include_dirs)
    assert compiled.resources.spills <= FEW_SPILLS and compiled.warnings == ()
