"""FlashAttention's packages as peers, with functions in their place that take what they take: each computes its variant or none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from bench import flash
from bench.candidates import differences, importable
from bench.peers import CAP, eager
from bench.variants import VARIANTS
from tests.bench.test_peers import setting

SAID = ("full", "causal_bottom_right", "causal_top_left")
WINDOWS = ("sliding_window_causal", "sliding_window_two_sided")


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, window: tuple[int | None, int | None], softcap: float
) -> Tensor:
    """[B, L, H, D], as the packages document it."""
    group, distance = q.shape[2] // k.shape[2], k.shape[1] - q.shape[1]
    k, v = (x.repeat_interleave(group, 2) for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    own = torch.arange(q.shape[1])[:, None] + distance
    j = torch.arange(k.shape[1])[None, :]
    left, right = window
    hidden = (j > own) if causal else torch.zeros_like(j > own)
    hidden |= False if left is None else (j < own - left)
    hidden |= False if right is None else (j > own + right)
    return torch.einsum("bhij,bjhd->bihd", torch.softmax(s.masked_fill(hidden, -torch.inf), -1), v)


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    third, fourth = ModuleType("fa3_fwd_interface"), ModuleType("flash_attn.cute")
    third.flash_attn_func = lambda q, k, v, causal, softcap: attention(q, k, v, causal, (None, None), softcap)  # type: ignore[attr-defined]
    fourth.flash_attn_func = lambda q, k, v, causal, window_size, softcap: (  # type: ignore[attr-defined]
        attention(q, k, v, causal, window_size, softcap), None,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "fa3_fwd_interface", third)
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    monkeypatch.setitem(sys.modules, "flash_attn.cute", fourth)


@pytest.mark.parametrize("name", [*SAID, *WINDOWS])
def test_they_compute_what_the_example_computes(name: str, tmp_path: Path) -> None:
    problem, module = setting(VARIANTS[name], tmp_path)
    works = {"ours": eager(problem, module.attention), "FA3": flash.fa3(problem), "FA4": flash.fa4(problem)}
    assert (works["FA3"] is None) == (name in WINDOWS)
    found = differences({n: work for n, work in works.items() if work is not None}, "ours")
    assert found and all(d < 1e-5 for d in found.values())


def test_other_variants_have_no_words_in_them(tmp_path: Path) -> None:
    for name in VARIANTS.keys() - {*SAID, *WINDOWS}:
        problem, _ = setting(VARIANTS[name], tmp_path)
        assert flash.fa3(problem) is None and flash.fa4(problem) is None, name


def test_top_left_is_another_mask_where_lengths_differ(tmp_path: Path) -> None:
    problem, module = setting(VARIANTS["softcap"], tmp_path)
    assert problem.lengths[0] < problem.lengths[1] and flash.fa3(problem) is None
    equal = replace(problem, k=problem.k[:, :, :128], v=problem.v[:, :, :128])
    works = {"ours": eager(equal, module.attention), "FA3": flash.fa3(equal), "FA4": flash.fa4(equal)}
    found = differences({n: work for n, work in works.items() if work is not None}, "ours")
    assert len(found) == 2 and all(d < 1e-5 for d in found.values())
    assert flash.Flags.of(equal) == flash.Flags(causal=True, softcap=CAP)


def test_a_peer_without_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert importable(["sdpa", "fa3", "fa4"], said.append) == ["sdpa", "fa3", "fa4"] and not said
    monkeypatch.setitem(sys.modules, "fa3_fwd_interface", None)
    assert importable(["sdpa", "fa3"], said.append) == ["sdpa"]
    assert said[0].startswith("without fa3 (pip install fa3-fwd): ModuleNotFoundError")


def test_results_that_differ_are_told() -> None:
    one = torch.ones(3, 4)

    def broken() -> Tensor:
        raise MemoryError

    works = {"ours": lambda: (one, one), "same": lambda: (one, one), "half": lambda: (one, 0 * one), "broken": broken}
    found = differences(works, "ours")
    assert found == {"same": 0.0, "half": pytest.approx(0.5**0.5)}
    assert differences(works, "broken") == {}
