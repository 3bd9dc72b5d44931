"""A kernel a statement at a time: the same results as the value engine's, and what is watched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import cubridge
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.engine.values.steps import COPIES, TraceEvent
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import Shape
from cubridge.judge.runners import LAUNCH_CONSTANTS
from tests.support.edit_text import edited
from tests.support.golden_texts import GOLDEN_NAMES

SHAPE = Shape(1, 2, 1, 70, 200, 64)


def inputs() -> list[Tensor]:
    random = torch.Generator().manual_seed(3)
    sizes = ((2, 70), (1, 200), (1, 200))
    return [torch.randn(1, heads, n, 64, generator=random).bfloat16() for heads, n in sizes]


def kernel(name: str, *changes: tuple[str, str]) -> Kernel:
    grouped = (("host=GROUP_HEADS", "host=2"),) if name == "sm90a" else ()
    return edited(name, ("HEAD_DIM=128", "HEAD_DIM=64"), *grouped, *changes)


def tensor(event: TraceEvent, name: str) -> Tensor:
    value = event[name]
    assert isinstance(value, Tensor)
    return value


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_what_is_stored_is_what_the_engine_gives(name: str) -> None:
    q, k, v = inputs()
    out, lse = run_values(kernel(name), (q, k, v), Launch(SHAPE, values=LAUNCH_CONSTANTS))
    assert lse is not None
    stores = [e for e in cubridge.trace(kernel(name), (q, k, v)) if e.changed[-1:] in (("p.o",), ("p.lse",))]
    first_of = {(e.changed[-1], e.worker): e for e in reversed(stores)}
    rows = {n: torch.cat([tensor(first_of[n, w], n) for w in _workers(stores)]) for n in ("p.o", "p.lse")}
    heads = [(int(tensor_or_number(e, "tile.b")), int(tensor_or_number(e, "tile.h"))) for e in stores]
    first = rows["p.o"][:70].to(out.dtype)
    assert torch.equal(first, out[heads[0]])
    assert torch.equal(rows["p.lse"][:70], lse[heads[0]])


def _workers(events: list[TraceEvent]) -> list[str]:
    return sorted({e.worker for e in events})


def tensor_or_number(event: TraceEvent, name: str) -> float:
    value = event[name]
    assert isinstance(value, int | float)
    return value


def test_a_slot_is_nan_until_its_copy_arrives() -> None:
    filled: dict[str, list[bool]] = {}
    for event in cubridge.trace(kernel("sm90a"), inputs(), watch="smem.k"):
        (name,) = event.changed
        filled.setdefault(name, []).append(event.worker == COPIES)
        assert bool(tensor(event, name).isnan().all()) is (event.worker != COPIES)
        assert event.text.startswith("copy_async(smem.k")
    assert set(filled) == {"smem.k[0]", "smem.k[1]"}
    assert all(arrived == [False, True] * (len(arrived) // 2) for arrived in filled.values())


def test_a_watch_follows_the_running_maximum() -> None:
    q, k, _ = inputs()
    seen = list(cubridge.trace(kernel("sm80"), inputs(), watch="row.m"))
    assert [e.text.partition("(")[0] for e in seen[:2]] == ["row = row_state", "row_init"]
    assert tensor(seen[0], "row.m").isnan().all()
    assert (tensor(seen[1], "row.m") == -torch.inf).all()
    scores = q[0, int(tensor_or_number(seen[2], "tile.h"))].float() @ k[0, 0].float().mT
    last = scores[:, -8:].amax(1)  # 200 keys: the last tile has 8
    assert torch.allclose(tensor(seen[2], "row.m")[:70], last, atol=1e-3)


def test_events_keep_their_values() -> None:
    """Those of an earlier event are not those of a later one."""
    events = [e for e in cubridge.trace(kernel("sm80"), inputs(), watch="s") if "gemm" in e.text]
    assert len(events) > 1
    assert not torch.equal(tensor(events[0], "s"), tensor(events[1], "s"))


def _first(trace: Iterator[TraceEvent]) -> TraceEvent:
    return next(trace)


@pytest.mark.parametrize(
    ("given", "block", "said"),
    [
        (inputs()[:2], 0, "are not q, k and v"),
        ([x[0] for x in inputs()], 0, r"\(2, 70, 64\)"),
        (inputs(), 5, "there is no block 5 of"),
    ],
)
def test_what_is_no_launch_is_refused(given: list[Tensor], block: int, said: str) -> None:
    with pytest.raises(CuError, match=said):
        _first(cubridge.trace(kernel("sm80"), given, block=block))


def test_a_backward_kernel_is_refused() -> None:
    with pytest.raises(CuError, match="only forward kernels"):
        _first(cubridge.trace("sm90a-backward", inputs()))


def test_a_deadlock_ends_the_trace_where_it_happens() -> None:
    stuck = kernel("sm90a", ("if leader:\n    barrier_arrive(smem.v_empty[v_slot])", ""))
    seen: list[TraceEvent] = []
    with pytest.raises(CuError) as error:
        seen.extend(cubridge.trace(stuck, [x.repeat(1, 1, 4, 1) for x in inputs()]))
    assert error.value.diagnostics[0].code == "CU250"
