"""The kernel that makes lists of key tiles, on the PTX machine, against lists that are made by looking at every pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cubridge.backend.compile.compiler import listed_instantiations
from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.launch.tile_plan import HEADER, ListPlan
from cubridge.backend.ptx.device import PtxDevice
from cubridge.ir.diagnostics import CuError
from cubridge.ir.types import DType
from tests.backend.launch.test_tile_plan import text


def list_of(seen: Tensor, keys: int) -> list[int]:
    """Of one query tile, from which pairs of it are seen: tiles seen in part from the right, then those seen whole."""
    tiles = -(-seen.shape[1] // keys)
    blocks = [seen[:, n * keys : (n + 1) * keys] for n in reversed(range(tiles))]
    numbers = list(reversed(range(tiles)))
    parts = [
        n
        for n, block in zip(numbers, blocks, strict=True)
        if block.any() and not (block.all() and block.shape[1] == keys)
    ]
    wholes = [n for n, block in zip(numbers, blocks, strict=True) if block.all() and block.shape[1] == keys]
    found = [*parts, *wholes]
    return [len(found), len(parts), *found, *[-1] * (tiles - len(found))]


class MadeError(Exception):
    """What the lists are for is not run."""


def lists_of(of: KernelText, doc: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    made: list[Tensor] = []
    make = ListPlan.make

    def keep(plan: ListPlan, arrays: Sequence[Tensor]) -> Tensor:
        made.append(make(plan, arrays))
        raise MadeError

    monkeypatch.setattr(ListPlan, "make", keep)
    half = torch.zeros(2, 2, doc.shape[1], 64).bfloat16()
    with pytest.raises(MadeError):
        Launcher(PtxDevice(makes_lists=True, blocks=5), of, say=lambda _: None)(half, half, half, {"doc": doc})
    return made[0]


def documents(length: int) -> Tensor:
    """In runs, and at random."""
    doc = torch.randint(0, 2, (2, length), generator=torch.Generator().manual_seed(length)).int()
    doc[0] = torch.arange(length) // 130
    return doc


@pytest.mark.parametrize("kernel", ["sm80", "sm90a"])
def test_lists(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = text(kernel)
    sizes = dict(listed_instantiations(of.contract, DType.BF16, 64)[0].macros)
    for length in (300, 64):
        doc = documents(length)
        pairs = (doc[:, :, None] == doc[:, None, :]) & torch.ones(length, length).tril().bool()
        rows = sizes["BLOCK_Q"]
        right = [list_of(seen[q : q + rows], sizes["BLOCK_KV"]) for seen in pairs for q in range(0, length, rows)]
        assert lists_of(of, doc, monkeypatch).tolist() == right
        monkeypatch.undo()


def test_tiles_that_no_one_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header, wait = (KERNELS_DIR / HEADER).read_text(), "    __syncthreads();\n    put_in_order"
    assert wait in header
    (tmp_path / "common").mkdir()
    (tmp_path / HEADER).write_text(header.replace(wait, "    put_in_order"))
    of = replace(text("sm80"), include_dirs=(tmp_path, *text("sm80").include_dirs))
    with pytest.raises(CuError) as caught:
        lists_of(of, documents(300), monkeypatch)
    found = caught.value.diagnostics[0]
    assert (
        found.code == "CU833" and "shared.seen[n]" in found.span.text and "shared.seen[n] =" in found.notes[0].span.text
    )
