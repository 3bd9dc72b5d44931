"""FlashAttention-2 by the contracts that the package has for it: built from its own header, launched as they say, and lifted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import cubridge
from cubridge.backend.ptx.machine import Schedule
from cubridge.driver.foreign.build import build
from cubridge.driver.foreign.launch import launch_of, outputs_of
from cubridge.driver.foreign.lift import lift_foreign
from cubridge.frontend.ptx.contract import read_foreign_contract
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from tests.foreign.sources import FLASH_ATTENTION_2, HEADERS, needs_flash_attention_2

pytestmark = [pytest.mark.slow, needs_flash_attention_2]

KERNEL = FLASH_ATTENTION_2 / "csrc/flash_attn/src/flash_fwd_launch_template.h"
CONTRACTS = Path(cubridge.__file__).parent / "adapters"
LIFTED = Path(__file__).parent / "lifted"


def contract(form: str, folder: Path) -> Path:
    """With the headers that were fetched."""
    fetched = HEADERS / "nvidia/cu13/include"
    include = ["../../cutlass/include", str(fetched), str(fetched / "cccl")]
    path = folder / f"{form}.toml"
    path.write_text(f'version = 1\nkind = "foreign"\nbase = "{CONTRACTS}/{form}.toml"\ninclude = {include}\n')
    return path


def test_numbers(tmp_path: Path) -> None:
    said = read_foreign_contract(contract("flash_attention_2", tmp_path))
    built = build(SourceFile.read(KERNEL), said, KERNEL.parent)
    for shape in said.shapes:
        launch = launch_of(built, said, shape)
        found = outputs_of(said, shape, built.machine.run(launch.ptx, Schedule.HOSTILE, 60.0))
        q, k, v = (launch.inputs[name].double() for name in "qkv")
        k, v = (t.repeat_interleave(shape.Hq // shape.Hk, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * shape.D**-0.5
        torch.testing.assert_close(found["o"].double(), scores.softmax(-1) @ v, atol=2e-3, rtol=2**-7)
        torch.testing.assert_close(found["lse"].double(), scores.logsumexp(-1), atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("form", [path.stem for path in sorted(CONTRACTS.glob("flash_attention_2*.toml"))])
def test_lift(form: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Events and values of the CuIR are those of all runs, or it would not be here."""
    found = to_text(lift_foreign(KERNEL, contract(form, tmp_path)).kernel)
    path = LIFTED / f"{form}.cuir"
    if request.config.getoption("--update-cases"):
        path.write_text(found)
    assert found == path.read_text()
