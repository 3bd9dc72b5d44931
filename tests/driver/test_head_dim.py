"""References whose mask reads the head dim, which a kernel text knows as a macro."""
# pyright: basic

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.judge_draw import judge_draw

TEXT = """
import torch


def attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    return s.masked_fill((i - j).abs() > q.shape[-1], -torch.inf).softmax(-1) @ v
"""


@pytest.mark.parametrize("kernel", ["sm80", "sm90a"])
def test_a_window_as_wide_as_the_head(kernel: str, tmp_path: Path) -> None:
    path = tmp_path / "window.py"
    path.write_text(TEXT)
    outcome = judge_draw(path, kernel, emulated=True)
    assert outcome.refused is None
    assert outcome.worst <= 1
