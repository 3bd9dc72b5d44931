"""FlashAttention-2 by the contract that the package has for it: built from its own header, launched as the contract says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import cubridge
from cubridge.backend.ptx.machine import Schedule
from cubridge.driver.foreign.build import build
from cubridge.driver.foreign.launch import launch_of, outputs_of
from cubridge.frontend.ptx.contract import read_foreign_contract
from cubridge.ir.foreign import ForeignContract
from cubridge.ir.source import SourceFile
from tests.foreign.sources import FLASH_ATTENTION_2, HEADERS, needs_flash_attention_2

pytestmark = [pytest.mark.slow, needs_flash_attention_2]

KERNEL = FLASH_ATTENTION_2 / "csrc/flash_attn/src/flash_fwd_launch_template.h"
CONTRACT = Path(cubridge.__file__).parent / "adapters/flash_attention_2.toml"


def contract() -> ForeignContract:
    """With the headers that were fetched."""
    said = read_foreign_contract(CONTRACT)
    folder = HEADERS / "nvidia/cu13/include"
    return replace(said, include=(*said.include, str(folder), str(folder / "cccl")))


def test_numbers() -> None:
    said = contract()
    built = build(SourceFile.read(KERNEL), said, KERNEL.parent)
    for shape in said.shapes:
        launch = launch_of(built, said, shape)
        found = outputs_of(said, shape, built.machine.run(launch.ptx, Schedule.HOSTILE, 60.0))
        q, k, v = (launch.inputs[name].double() for name in "qkv")
        k, v = (t.repeat_interleave(shape.Hq // shape.Hk, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * shape.D**-0.5
        torch.testing.assert_close(found["o"].double(), scores.softmax(-1) @ v, atol=2e-3, rtol=2**-7)
        torch.testing.assert_close(found["lse"].double(), scores.logsumexp(-1), atol=2e-6, rtol=1e-6)
