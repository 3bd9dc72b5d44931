"""CuIR that is not what the runs do is refused, whoever made it."""

from __future__ import annotations

import pytest
import torch

from cubridge.driver.foreign.build import build
from cubridge.driver.foreign.judge import check_events, check_values
from cubridge.driver.foreign.launch import ForeignLaunch, launch_of, outputs_of
from cubridge.driver.foreign.lift import follow
from cubridge.frontend.ptx.contract import read_foreign_contract
from cubridge.frontend.ptx.run import Followed
from cubridge.ir.diagnostics import CuError
from cubridge.ir.foreign import ForeignContract
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile
from cubridge.judge.well_formed import find_faults
from tests.driver.foreign.kernels import FOLDER

Ran = tuple[ForeignContract, ForeignLaunch, Followed, dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def ran() -> Ran:
    contract = read_foreign_contract(FOLDER / "pipelined.toml")
    built = build(SourceFile.read(FOLDER / "pipelined.cu"), contract, FOLDER)
    launch = launch_of(built, contract, contract.shapes[0])
    followed = follow(built, contract, launch)
    return contract, launch, followed.followed[0], outputs_of(contract, launch.shape, followed.outputs)


def kernel(old: str = "", new: str = "") -> Kernel:
    text = (FOLDER / "pipelined.cuir").read_text()
    assert not old or text.count(old) == 1, text.count(old)
    return parse(text.replace(old, new) if old else text)


def test_the_lift_itself(ran: Ran) -> None:
    contract, launch, run, outputs = ran
    check_events(kernel(), run, launch.inputs)
    check_values(kernel(), launch.shape, launch.ptx.grid.blocks, contract.dtype, launch.inputs, outputs)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "        block_sync()\n        copy_async(smem.v",
            "        copy_async(smem.v",
            "v[0, 0] rows 0 to 15 before block_sync()",
        ),
        ("key_tile(keys, t + 1) *", "key_tile(keys, t) *", "copy_async of k[0, 0] rows 16 to 31"),
        ("src=lse)\n    wait_group(0)\n", "src=lse)\n", "wait_group(0)"),
        ("row=tile.q_start, src=o", "row=tile.q_start + 1, src=o", "store of o[0, 0] rows 0 to 63"),
    ],
)
def test_other_events(ran: Ran, old: str, new: str, says: str) -> None:
    _, launch, run, _ = ran
    with pytest.raises(CuError) as caught:
        check_events(kernel(old, new), run, launch.inputs)
    assert caught.value.diagnostics[0].code == "CU855" and says in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(j < Lk) & (j <= i)", "(j < Lk) & (j < i + 2)"),
        ("row.l = row.l * row.o_scale + partial_rowsum(s)", "row.l = row.l + partial_rowsum(s)"),
        ("lse = where(l == 0.0, -inf, (row.m", "lse = where(l == 0.0, -inf, (1.001 * row.m"),
    ],
)
def test_other_values(ran: Ran, old: str, new: str) -> None:
    contract, launch, _, outputs = ran
    with pytest.raises(CuError) as caught:
        check_values(kernel(old, new), launch.shape, launch.ptx.grid.blocks, contract.dtype, launch.inputs, outputs)
    assert caught.value.diagnostics[0].code == "CU855"


def test_a_copy_by_threads_is_seen_by_others_after_a_barrier() -> None:
    """The order engine on the other kernel, whose tiles are copied so."""
    text = (FOLDER / "plain.cuir").read_text()
    assert find_faults(parse(text)) == ()
    before, after = "        block_sync()\n        copy(smem.k", "        block_sync()\n        s = gemm"
    for barrier in (before, after):
        assert text.count(barrier) == 1
        found = find_faults(parse(text.replace(barrier, barrier.replace("        block_sync()\n", ""))))
        assert [f.code for f in found][:1] == ["CU251"]
