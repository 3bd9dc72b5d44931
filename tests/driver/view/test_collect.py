"""The view of an adaptation: mask and walk, schedule, timeline, changes beside each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor

import cubridge
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.driver.adapted import Adapted
from cubridge.driver.reference import read_reference
from cubridge.driver.view.collect import asked as asked_of
from cubridge.driver.view.collect import view_of
from cubridge.driver.view.graphs import mask_picture
from cubridge.driver.view.mask import mask_of, mask_view
from cubridge.driver.view.walked import walked
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Binary, IntLit
from cubridge.ir.printer import to_text
from cubridge.ir.spec import Shape
from cubridge.judge.findings import CaseResult, Findings, MutantResult, Verdict
from cubridge.show.terminal import mask_text
from cubridge.show.view import View, read_view, view_json

REFERENCE = """\
import torch


def extra_inputs(shape, device):
    return {"left": torch.arange(shape.Hq, device=device, dtype=torch.int32) * 40}


def attention(q, k, v, left):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = q @ k.mT * q.shape[-1] ** -0.5
    keep = (j <= i) & (i - j <= left[:, None, None])
    return s.masked_fill(~keep, -torch.inf).softmax(-1) @ v
"""
SHAPE = Shape(2, 2, 1, 300, 300, 64)
FINDINGS = Findings(
    (CaseResult("value engine", "1,1,1,700,1,64", "random", float("inf"), True, rows=(0.5, float("nan"), *[0.25] * 698)),),
    (MutantResult("mask dropped", "value engine"),), (), Verdict.INTERPRETED, (),
)  # fmt: skip


@cache
def adapted() -> Adapted:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "reference.py"
        path.write_text(REFERENCE, encoding="utf-8")
        return adapt_unchecked(path, "sm80", SHAPE)


def view(of: Adapted, findings: Findings = FINDINGS) -> View:
    return view_of(of, of.report(findings))


def test_the_mask_is_shown_for_each_kind_of_head() -> None:
    mask = view(adapted()).mask
    assert mask is not None
    assert (mask.tile_rows, mask.tile_keys, mask.more) == (128, 64, 0)
    assert [p.of for p in mask.planes] == ["every batch, head 0", "every batch, head 1"]
    assert mask.planes[0].tiles == ("++...", "..++.", "....+")
    assert mask.planes[1].tiles == ("++...", ".+++.", "...++")
    assert mask.planes[1].steps == ((1, 0), (3, 2, 1), (4, 3))


def test_the_schedule_has_every_work_tile_with_what_it_visits() -> None:
    work = view(adapted()).schedule
    assert sorted((w.b, w.h, w.q_start) for w in work) == [
        (b, h, q) for b in (0, 1) for h in (0, 1) for q in (0, 128, 256)
    ]
    assert {(w.h, w.q_start): w.key_tiles for w in work} == {
        (0, 0): 2, (0, 128): 2, (0, 256): 1, (1, 0): 2, (1, 128): 3, (1, 256): 2,
    }  # fmt: skip


def test_a_walk_that_is_wrong_looks_wrong() -> None:
    """One key tile less is visited."""
    region = adapted().target.region("key_count")
    assert region.result is not None
    fewer = replace(region, result=Binary("-", region.result, IntLit(1)))
    kernel = replace(adapted().target, regions=tuple(fewer if r is region else r for r in adapted().target.regions))
    mask = view(replace(adapted(), target=kernel)).mask
    assert mask is not None
    assert all("!" in row for plane in mask.planes for row in plane.tiles)


def test_cuir_and_cuda_of_a_region_stand_beside_each_other() -> None:
    changes = {c.name: c for c in view(adapted()).changes}
    assert list(changes) == list(adapted().patched.regions_changed)
    mask = changes["mask"]
    assert " def mask(s, kv_start, tile):" in mask.cuir
    assert any(line.startswith("-            s[r][c] = j < p.len_kv") for line in mask.cuda)
    added, removed = (sum(line[0] == m for c in changes.values() for line in c.cuda) for m in "+-")
    assert (added, removed) == (adapted().patched.lines_added, adapted().patched.lines_removed)
    assert any("left=Captured" in line for line in changes["params"].cuir)
    whole = view(adapted()).cuir
    kernels = ((" -", adapted().lifted.kernel), (" +", adapted().target))
    assert all("\n".join(x[1:] for x in whole if x[0] in marks) == to_text(k).rstrip() for marks, k in kernels)


def test_formulas_point_at_their_lines() -> None:
    asked = view(adapted()).asked
    lines = asked.source.splitlines()
    said = {f.label: lines[f.line - 1] for f in asked.formulas if f.line}
    assert said["mask"].strip().startswith("keep =")
    assert said["score"].strip().startswith("s = q @ k.mT")


def test_errors_are_few_numbers() -> None:
    (run,) = view(adapted()).runs
    assert (run.worst, run.per_row, len(run.rows)) == (None, 3, 234)
    assert run.rows[1] == 0.25


def test_of_a_rejected_kernel_there_is_no_text() -> None:
    rejected = view(adapted(), replace(FINDINGS, mutants=()))
    assert (rejected.accepted, rejected.changes, rejected.timeline) == (False, (), None)
    assert rejected.mask is not None


def test_the_view_is_small_and_read_back() -> None:
    found = view(adapted())
    data = view_json(found)
    assert len(data) < 60_000
    assert read_view("view.json", data) == found


def test_of_a_live_callable_its_own_lines_are_shown() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5

        return torch.softmax(s, -1) @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)

    asked = asked_of(read_reference(attention))
    assert asked.file is None
    assert asked.source.lstrip().startswith("def attention")
    assert asked.source.rstrip().endswith("k.shape[1], 1)")
    assert next(f for f in asked.formulas if f.label == "score").line == asked.first + 1


MASKS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], list[str]]] = {
    "causal": (lambda i, j: j <= i, [" 0  ▒·", "32  █▒"]),
    "every key": (lambda i, j: (i >= 0) & (j >= 0), [" 0  ██", "32  ██"]),
    "the first key": (lambda i, j: (j == 0) & (i >= 0), [" 0  ▒·", "32  ▒·"]),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_as_text(name: str) -> None:
    seen, expected = MASKS[name]
    visible = seen(torch.arange(50)[:, None], torch.arange(50))[None, None]
    text = mask_text(mask_of(visible, Shape(1, 1, 1, 50, 50, 64), (32, 32)))
    assert text.splitlines()[3:] == expected


def test_a_mask_that_is_too_large_is_not_drawn() -> None:
    """It reads the head, and has 8192 * 8192 elements for each."""
    with pytest.raises(CuError, match="134217728 elements") as error:
        mask_picture(adapted().reference, Shape(2, 2, 1, 8192, 8192, 64), None)
    assert error.value.exit_code == 2
    assert mask_view(replace(adapted(), shape=Shape(2, 2, 1, 8192, 8192, 64)), walked(adapted())) is None


def test_many_kinds_of_heads_are_counted() -> None:
    visible = torch.arange(60).view(1, 10, 1, 6).expand(1, 10, 6, 6) % 7 == 0
    mask = mask_of(visible, Shape(1, 10, 10, 6, 6, 64), (3, 3))
    assert (len(mask.planes), mask.more) == (6, 1)
    assert mask.planes[2].of == "every batch, heads 2, 9"


def test_an_adaptation_is_traced_with_what_it_reads() -> None:
    """Of a row of head 1, as far as its own captured number lets it see."""
    adaptation = Adaptation(adapted(), adapted().report(FINDINGS), {})
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, 130, 64, generator=random).bfloat16() for heads in (2, 1, 1))
    blocks = [list(cubridge.trace(adaptation, (q, k, v), block=block, watch=("p.o", "s"))) for block in range(4)]
    events = next(b for b in blocks if (b[-1]["tile.h"], b[-1]["tile.q_start"]) == (1, 128))
    s = (q[0, 1, 128:].float() @ k[0, 0].float().mT * 64**-0.5)[:, 88:]
    expected = [row[x : x + 41].softmax(-1) @ v[0, 0, 88 + x : 129 + x].float() for x, row in enumerate(s)]
    out = events[-1]["p.o"]
    assert isinstance(out, Tensor)
    assert torch.allclose(out[:2].float(), torch.stack(expected), atol=2e-2)
