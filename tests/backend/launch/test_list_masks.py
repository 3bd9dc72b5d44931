"""The lists of many masks: by the kernel whose text is made from the mask, against torch, which looks at every element."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import torch
from torch import Tensor

from cubridge.backend.launch.tile_plan import HEADER
from cubridge.ir.diagnostics import CuError
from tests.backend.launch.list_makers import ROWS, Maker, same, wrong_header

DOC: Final = {"doc": "B, Lk"}
SAME: Final = "p.doc[tile.b, i] == p.doc[tile.b, j]"
EXTENTS: Final = {
    "doc": "B, Lk",
    "place": "Lk",
    "reach": "Hq, Lq",
    "pairs": "Lq, Lk",
    "few": "5",
    "ends": "Lq",
    "odd": "spare + 4",
}
MASKS: Final = {
    "documents": SAME,
    "causal documents": f"(j <= i) & ({SAME})",
    "a window": f"(j <= i) & (j > i - p.window) & ({SAME})",
    "either": f"(j < 70) | ({SAME})",
    "not": f"~((j > i) | ~({SAME}))",
    "unlike": "p.doc[tile.b, i] != p.doc[tile.b, j]",
    "sums": "p.doc[tile.b, i] + 2 * p.doc[tile.b, j] - 1 >= -p.doc[tile.b, i] // 2",
    "products": "p.doc[tile.b, i] * p.doc[tile.b, j] > -2",
    "overflow": "p.doc[tile.b, i] * 1000000000 + p.doc[tile.b, j] > 0",
    "groups": "(p.doc[tile.b, i] // 2 == p.doc[tile.b, j] // 2) & ((i + j) % 160 < 150)",
    "chosen": f"where(j <= i, {SAME}, p.doc[tile.b, j] == 0)",
    "a number chosen": "where(p.doc[tile.b, j] == 1, i, 100) <= maximum(j, minimum(p.doc[tile.b, i], 300))",
    "floats": "p.place[i] <= p.place[j]",
    "floats and numbers": "(p.place[j] > f32(i)) | (maximum(p.place[i], 0.0) == p.bound)",
    "rows behind": "p.doc[tile.b, maximum(i - 64, 0)] == p.doc[tile.b, j]",
    "outside, dropped": "(j >= 100) & (p.doc[tile.b, j - 100] == p.doc[tile.b, i])",
    "looked up": "p.few[p.doc[tile.b, i] % 5] == p.few[p.doc[tile.b, j] % 5]",
    "an extent of the host": f"where(j < 5, p.odd[j] > p.odd[4 - j % 5], {SAME})",
    "the last": "p.doc[tile.b, i] == p.doc[tile.b, Lk - 1]",
    "pairs": f"(p.pairs[i, j] > 0) & ({SAME})",
    "longer": "i64(p.doc[tile.b, i]) * 3 == i64(p.doc[tile.b, j]) + 2",
    "differences": "p.doc[tile.b, i] - p.doc[tile.b, j] > 1",
    "undecided": "i64(p.doc[tile.b, i]) + i64(p.doc[tile.b, j]) > -3",
    "last rows": "p.ends[i] > 0",
    "absent": "abs(p.doc[tile.b, i]) - abs(p.doc[tile.b, j]) > 40",
}  # fmt: skip
CASES: Final = ((200, 100), (300, 37), (128, 1))
HEADS: Final = "(p.reach[tile.h, i] > j) & (tile.hk <= p.doc[tile.b, j])"


def _maker(keep: str, axes: str = "B") -> Maker:
    return Maker(keep, {n: e for n, e in EXTENTS.items() if f"p.{n}[" in keep}, axes)


def _data(length: int, run: int) -> dict[str, Tensor]:
    """Small numbers, `run` alike side by side; a float may be NaN."""
    generator = torch.Generator().manual_seed(length + run)

    def runs(*shape: int) -> Tensor:
        made = torch.randint(-1, 5, (*shape[:-1], -(-shape[-1] // run)), generator=generator).int()
        return made.repeat_interleave(run, dim=-1)[..., : shape[-1]].contiguous()

    place = (runs(length) * 60).float()
    place[place == 0] = torch.nan
    ends = (torch.arange(length) % ROWS == ROWS - 1).int()
    reach, pairs = runs(4, length) * 50, runs(length, length)
    return {
        "doc": runs(2, length),
        "place": place,
        "reach": reach,
        "pairs": pairs,
        "few": runs(5),
        "ends": ends,
        "odd": runs(5),
    }


def _is_same(maker: Maker, length: int, run: int) -> bool:
    data = _data(length, run)
    return same(maker.lists({name: data[name] for name in maker.captured}, length, length))


@pytest.mark.parametrize("keep", MASKS.values(), ids=MASKS)
def test_lists_are_those_of_the_mask(keep: str) -> None:
    maker = _maker(keep)
    for length, run in CASES:
        assert _is_same(maker, length, run), (length, run)


QUERY_LISTS: Final = ("causal documents", "chosen", "rows behind", "pairs", "either", "groups", "a window")


@pytest.mark.parametrize("keep", QUERY_LISTS)
def test_lists_of_query_tiles(keep: str) -> None:
    maker = replace(_maker(MASKS[keep]), word="query_tiles")
    for length, run in CASES:
        assert _is_same(maker, length, run), (length, run)


def test_lists_of_each_head() -> None:
    assert _is_same(_maker(HEADS, "B, Hq"), 200, 64)


# ---- wrong makers ----------------------------------------------------------------------------------------------------

NO_DATA: Final = "return Seen::NONE;\n    ListKey"
OF_QUERIES: Final = " of queries"
SPANS: Final = "common/spans.cuh"
SYNC: Final = "    __syncthreads();\n"
WRONG: Final = {
    "hidden taken for part": (HEADER, "return some ? Seen::WHOLE : Seen::NONE", "return some ? Seen::WHOLE : Seen::PART", "pairs"),
    "keys beyond the last, by bounds": (HEADER, "filled ? Seen::WHOLE : Seen::PART", "Seen::WHOLE", "either"),
    "keys beyond the last, by elements": (HEADER, "every = filled", "every = true", "undecided"),
    "rows beyond the list": (HEADER, "imin(first + LIST_ROWS, LIST_LEN_ROWS)", "imin(first + 64, LIST_LEN_ROWS)", "documents"),
    "one row left out": (HEADER, "x <= i.hi; x += 32", "x < i.hi; x += 32", "last rows"),
    "some rows left out": (HEADER, "i.hi - x / 2", "i.hi", "pairs"),
    "whole among parts": (HEADER, "what == Seen::PART ? part : whole]", "part + whole - parts]", "either"),
    "decided without data": (HEADER, f").some) {NO_DATA}", f").every) {NO_DATA}", "documents"),
    "tiles not awaited": (HEADER, f"{SYNC}    put_in_order", "    put_in_order", "documents"),
    "counts not awaited": (HEADER, f"{SYNC}    const int parts", "    const int parts", "documents"),
    "bounds of a lane": (SPANS, "__reduce_max_sync(0xffffffffu, x.hi)", "x.hi", "documents"),
    "floats of a few lanes": (SPANS, "lane < 32", "lane < 16", "floats"),
    "equal at one end": (SPANS, "(b.hi < a.lo)", "(b.hi <= a.lo)", "documents"),
    "equal to one of some": (SPANS, "(a.lo == a.hi) & (b.lo == b.hi) &", "(a.lo == a.hi) &", "documents"),
    "NaN is no float": (SPANS, "(b < a) | (b != b)", "(b < a)", "floats"),
    "not less, for one": (SPANS, "!(a.lo >= b.hi)", "a.lo < b.lo", "a window"),
    "less or equal, for some": (SPANS, "a.hi <= b.lo", "a.lo <= b.lo", "causal documents"),
    "not for some": (SPANS, "Truth(!a.every, !a.some)", "Truth(!a.some, !a.every)", "not"),
    "or of both": (SPANS, "a.some | b.some, a.every | b.every", "a.some & b.some, a.every | b.every", "either"),
    "one of two": (SPANS, "which.some ? hull(a, b)", "which.some ? a", "chosen"),
    "too large": (SPANS, "lo < INT_LEAST || hi > INT_MOST", "false", "overflow"),
    "a difference": (SPANS, "(i64)a.lo - b.hi, (i64)a.hi - b.lo", "(i64)a.lo - b.lo, (i64)a.hi - b.hi", "differences"),
    "a product of ends": (SPANS, "lo < lo2 ? lo : lo2", "lo", "products"),
    "rows beyond the last, of queries": (HEADER, "(!LIST_OF_QUERIES | rows", "(true | rows", "either of queries"),
    "in another turn": (HEADER, "start + x : start", "start : start", "either of queries"),
    "a rest over the border": (SPANS, "floor_div(a.lo, by) == floor_div(a.hi, by)", "true", "groups"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_maker_is_found(name: str, tmp_path: Path) -> None:
    header, old, new, mask = WRONG[name]
    of_queries, mask = mask.endswith(OF_QUERIES), mask.removesuffix(OF_QUERIES)
    maker = replace(_maker(MASKS[mask]), include=wrong_header(tmp_path, header, old, new))
    maker = replace(maker, word="query_tiles" if of_queries else "tiles")
    try:
        assert not all(_is_same(maker, length, run) for length, run in CASES)
    except CuError as error:
        assert error.diagnostics[0].code == ("CU833" if "awaited" in name else "CU832")
