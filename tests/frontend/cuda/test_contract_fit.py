"""A launch contract that does not fit its kernel text is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cubridge.frontend.contract import read_contract
from cubridge.frontend.cuda.lift import lift
from cubridge.frontend.cuda.text import folder_headers
from cubridge.ir.contract import HostValue, LaunchContract, instantiations
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse_expr
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from tests.frontend.cuda.kernels import KERNELS, kernel_text


def _faults(change: dict[str, object], arch: str = "sm90a") -> list[str]:
    source = SourceFile.from_text("kernel.cu", kernel_text(arch))
    contract = read_contract(KERNELS / arch / "attention_forward.toml", source)
    changed: LaunchContract = replace(contract, **change)  # pyright: ignore[reportArgumentType]
    instance = instantiations(contract, DType.BF16, 128)[0]
    with pytest.raises(CuError) as caught:
        lift(source, changed, instance, folder_headers(KERNELS))
    return [f"{d.code}: {d.message}" for d in caught.value.diagnostics]


def test_block_size() -> None:
    assert _faults({"block": parse_expr("256")}) == [
        "CU428: the launch contract has another block size than the launch bounds"
    ]


def test_boxes_of_tensor_maps() -> None:
    contract = read_contract(KERNELS / "sm90a" / "attention_forward.toml")
    q, k, v = contract.tensor_maps
    tall = replace(q, box=(q.box[0], parse_expr("128"), *q.box[2:]))
    plain = replace(v, swizzle_bytes=64)
    assert _faults({"tensor_maps": (tall, k, plain)}) == [
        "CU428: the box of tensor map `q` is not a panel of 64 columns of this tile",
        "CU428: tensor map `v` swizzles otherwise than this tile",
    ]


def test_entry() -> None:
    assert _faults({"entry": "attention_backward"}) == [
        "CU429: there is no kernel `attention_backward`, the entry of the launch contract"
    ]


def test_parameters_of_another_text() -> None:
    contract = read_contract(KERNELS / "sm90a" / "attention_forward.toml")
    faults = _faults({"params": contract.params[:-1]})
    assert "CU428: the launch contract was read for other parameters: `exponent_scale`" in faults


@pytest.mark.parametrize(
    "grid,says",
    [
        (
            "B * Hq * (Lq // BLOCK_Q + 1)",
            "the grid has 2 blocks, one for each query tile would be 1 at B=1, Hq=1, Hk=1, Lq=128",
        ),
        ("B * Hq * (Lq // BLOCK_Q)", "the grid is 0 blocks at B=1, Hq=1, Hk=1, Lq=1, Lk=1"),
        ("B * Hq / 2 * ceil_div(Lq, BLOCK_Q)", "the grid is 0.5 blocks"),
    ],
)
def test_grids(grid: str, says: str) -> None:
    (fault,) = _faults({"grid": parse_expr(grid)}, "sm80")
    assert fault.startswith("CU428: ") and says in fault


def test_a_parameter_without_a_value() -> None:
    contract = read_contract(KERNELS / "sm80" / "attention_forward.toml")
    scale = replace(contract.params[-1], value=HostValue(parse_expr("1.0 / (Lq - Lq)")))
    (fault,) = _faults({"params": (*contract.params[:-1], scale)}, "sm80")
    assert fault.startswith("CU428: `p.exponent_scale` has no value at")


@pytest.mark.parametrize("arch", ["sm80", "sm90a"])
def test_alignment_that_copies_and_stores_need(arch: str) -> None:
    contract = read_contract(KERNELS / arch / "attention_forward.toml")
    loose = tuple(replace(t, align_bytes=4) for t in contract.tensors)
    faults = _faults({"tensors": loose}, arch)
    assert {f.partition("aligns ")[2] for f in faults} == {f"`{name}` to 4" for name in "qkvo"}
