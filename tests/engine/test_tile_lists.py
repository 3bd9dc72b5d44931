"""Lists of key tiles against the masks that they are made of, tile by tile and element by element, with plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
import torch
from torch import Tensor

from cubridge.engine import tile_lists as module
from cubridge.engine.tile_lists import ListsOfRows, Value, tile_lists
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import IntLit, Name, QueryTileList, TileList
from cubridge.ir.parser import parse_expr

CPU: Final = torch.device("cpu")
BATCH, B = (Name("B"),), 2

_Data = dict[str, Tensor]
_Mask = Callable[[Tensor, Tensor, _Data], Tensor]


def _documents(i: Tensor, j: Tensor, data: _Data) -> Tensor:
    doc = data["doc"]
    return doc[:, i] == doc[:, j]


def _share_question(i: Tensor, j: Tensor, data: _Data) -> Tensor:
    sample, answer = data["doc"], data["other"]
    same = (sample[:, i] == sample[:, j]) & (sample[:, i] >= 0)
    return (j <= i) & same & ((answer[:, j] == 0) | (answer[:, i] == answer[:, j]))


MASKS: Final[dict[str, tuple[str, _Mask]]] = {
    "documents": ("p.doc[tile.b, i] == p.doc[tile.b, j]", _documents),
    "causal documents": (
        "(j <= i) & (p.doc[tile.b, i] == p.doc[tile.b, j])",
        lambda i, j, data: (j <= i) & _documents(i, j, data),
    ),
    "causal documents in a window": (
        "(j <= i) & (j > i - 128) & (p.doc[tile.b, i] == p.doc[tile.b, j])",
        lambda i, j, data: (j <= i) & (j > i - 128) & _documents(i, j, data),
    ),
    "share question": (
        "(j <= i) & (p.doc[tile.b, i] >= 0) & (p.doc[tile.b, i] == p.doc[tile.b, j]) "
        "& ((p.other[tile.b, j] == 0) | (p.other[tile.b, i] == p.other[tile.b, j]))",
        _share_question,
    ),
    "causal blockwise": (
        "(j <= i) & ((p.doc[tile.b, i] == p.doc[tile.b, j]) | (p.doc[tile.b, i] == p.doc[tile.b, Lk - 1]))",
        lambda i, j, data: (j <= i) & (_documents(i, j, data) | (data["doc"][:, i] == data["doc"][:, -1:, None])),
    ),
    "keys": ("p.doc[tile.b, j] != 0", lambda i, j, data: (data["doc"][:, j] != 0).expand(B, len(i), -1)),
}

DATA: Final[dict[str, Callable[[int], Tensor]]] = {
    "runs": lambda n: torch.arange(n).expand(B, n) // 70,
    "one document": lambda n: torch.zeros(B, n),
    "no order": lambda n: torch.randint(0, 3, (B, n), generator=torch.Generator().manual_seed(n)),
    "documents that nobody is in": lambda n: torch.arange(n).expand(B, n) // 50 * 7 % 11,
    "padding at the end": lambda n: torch.where(torch.arange(n) < n - n // 3, torch.arange(n) // 90, -1).expand(B, n),
    "another batch": lambda n: torch.stack((torch.arange(n) // 40, torch.arange(n) // 200)),
    "nothing": lambda n: torch.full((B, n), -1),
}


def _brute_force(seen: Tensor, rows: int, keys: int) -> list[list[int]]:
    """The lists of a mask [B, Lq, Lk]."""
    found: list[list[int]] = []
    for batch in seen:
        for part in batch.split(rows):
            tiles = [t for t in range(-(-part.shape[1] // keys)) if bool(part[:, t * keys : (t + 1) * keys].any())]
            whole = [
                t for t in tiles if bool(part[:, t * keys : (t + 1) * keys].all()) and (t + 1) * keys <= part.shape[1]
            ]
            masked = sorted(set(tiles) - set(whole), reverse=True)
            found.append([len(tiles), len(masked), *masked, *sorted(whole, reverse=True)])
    return found


def _listed(lists: Tensor) -> list[list[int]]:
    """Lists without what stands after the last tile, which is no tile."""
    assert all((entries[2 + int(entries[0]) :] == -1).all() for entries in lists)
    return [entries[: 2 + int(entries[0])].tolist() for entries in lists]


def _names(length: int) -> dict[str, Value]:
    return {"B": B, "Hq": 4, "Hk": 2, "Lq": length, "Lk": length, "D": 64}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("mask", MASKS)
def test_lists_are_those_of_the_mask(mask: str, data: str) -> None:
    text, formula = MASKS[mask]
    for length, rows, keys in ((1, 128, 64), (128, 128, 64), (300, 128, 64), (300, 64, 128), (513, 256, 128)):
        given = {"doc": DATA[data](length).int(), "other": (torch.arange(length) % 150 // 50).expand(B, length).int()}
        kind = TileList(IntLit(rows), IntLit(keys), parse_expr(text), BATCH)
        lists = tile_lists(kind, _names(length), given, CPU)
        i, j = torch.arange(length)[:, None], torch.arange(length)[None]
        assert lists.dtype is torch.int16
        assert _listed(lists) == _brute_force(formula(i, j, given).expand(B, -1, -1), rows, keys), length


@pytest.mark.parametrize("mask", ["causal documents", "share question", "keys"])
def test_lists_of_query_tiles_are_those_of_the_mask(mask: str) -> None:
    text, formula = MASKS[mask]
    for data, length, rows, keys in (("runs", 300, 64, 128), ("no order", 200, 64, 32), ("runs", 513, 32, 256)):
        given = {"doc": DATA[data](length).int(), "other": (torch.arange(length) % 150 // 50).expand(B, length).int()}
        kind = QueryTileList(IntLit(rows), IntLit(keys), parse_expr(text), BATCH)
        lists = _listed(tile_lists(kind, _names(length), given, CPU))
        seen = formula(torch.arange(length)[:, None], torch.arange(length)[None], given).expand(B, -1, -1)
        tiles, per_batch = -(-length // rows), -(-length // keys)
        for number, (count, masked, *listed) in enumerate(lists):
            first = number % per_batch * keys
            of_keys = seen[number // per_batch, :, first : first + keys]
            parts = [of_keys[t * rows : (t + 1) * rows] for t in range(tiles)]
            filled = len(of_keys[0]) == keys
            whole = [t for t in range(tiles) if filled and len(parts[t]) == rows and bool(parts[t].all())]
            turn = [*range(first // rows, tiles), *range(min(first // rows, tiles))]
            wanted = [t for t in turn if bool(parts[t].any()) and t not in whole]
            assert (count, masked) == (len(listed), len(wanted))
            assert listed == [*wanted, *(t for t in turn if t in whole)]


def test_a_mask_that_depends_on_the_head_has_a_list_for_each() -> None:
    kind = TileList(IntLit(64), IntLit(64), parse_expr("p.reach[tile.h, i] > j"), (Name("B"), Name("Hq")))
    reach = torch.arange(4 * 130).view(4, 130).int()
    lists = tile_lists(kind, _names(130), {"reach": reach}, CPU)
    seen = reach[:, :, None] > torch.arange(130)
    assert _listed(lists) == _brute_force(seen.repeat(B, 1, 1), 64, 64)


def test_elements_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = TileList(IntLit(64), IntLit(32), parse_expr(MASKS["causal documents"][0]), BATCH)
    given = {"doc": DATA["no order"](500).int()}
    whole = tile_lists(kind, _names(500), given, CPU)
    for most in (1, 3 * 64 * 32, 64 * 32 * 40):
        monkeypatch.setattr(module, "MAX_ELEMENTS", most)
        assert torch.equal(tile_lists(kind, _names(500), given, CPU), whole)


def test_lists_of_some_rows_are_right_for_these() -> None:
    """As long problems are judged: what other rows see does not count."""
    kind = TileList(IntLit(64), IntLit(32), parse_expr(MASKS["causal documents"][0]), BATCH)
    given = {"doc": DATA["runs"](500).int()}
    rows = torch.tensor([0, 63, 70, 499])
    lists = ListsOfRows(kind, _names(500), given, rows)
    assert lists.shape == (16, 18)
    seen = MASKS["causal documents"][1](torch.arange(500)[:, None], torch.arange(500)[None], given)
    for number, of_list in ((0, [0, 63]), (1, [70]), (2, [128]), (15, [499])):
        count = int(lists[torch.tensor(number), torch.tensor(0)])
        made = lists[torch.tensor(number), torch.arange(count + 2)].tolist()
        batch = number // 8
        assert [made] == _brute_force(seen[batch : batch + 1, of_list], 64, 32)


def test_no_keys_are_no_tiles() -> None:
    kind = TileList(IntLit(64), IntLit(32), parse_expr(MASKS["documents"][0]), BATCH)
    names = _names(70) | {"Lk": 0}
    assert tile_lists(kind, names, {"doc": torch.zeros(B, 70).int()}, CPU).tolist() == [[0, 0]] * 4


@pytest.mark.parametrize(
    ("rows", "keys", "names", "message"),
    [
        (64, 32, {"Lk": 32768 * 32}, "32768 tiles, and a list of them has entries of 16 bits"),
        (1, 32, {"Lq": 3000, "Lk": 32000 * 32}, "3000 lists of 32000 tiles take more than 128 MiB"),
        (0, 32, {}, "for 0 rows or keys, and its tiles have 32"),
        (64, 0, {}, "for 64 rows or keys, and its tiles have 0"),
    ],
)
def test_lists_that_nothing_holds_are_refused(rows: int, keys: int, names: dict[str, Value], message: str) -> None:
    kind = TileList(IntLit(rows), IntLit(keys), parse_expr("j >= 0"), ())
    with pytest.raises(CuError, match=f"CU826.*{message}"):
        tile_lists(kind, _names(1) | names, {}, CPU)


def test_a_name_without_value_is_named() -> None:
    kind = TileList(IntLit(64), IntLit(32), parse_expr("p.doc[i] == 0"), ())
    with pytest.raises(CuError, match="CU301"):
        tile_lists(kind, _names(3), {}, CPU)
    assert tile_lists(replace(kind, keep=parse_expr("True")), _names(3), {}, CPU)[0].tolist() == [1, 1, 0]
