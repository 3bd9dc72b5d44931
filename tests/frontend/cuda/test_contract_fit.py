"""A launch contract that does not fit its kernel text is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cubridge.frontend.contract import read_contract
from cubridge.frontend.contract_params import parse_expr_at
from cubridge.frontend.cuda.lift import lift
from cubridge.frontend.cuda.text import folder_headers
from cubridge.ir.contract import HostValue, LaunchContract, instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Expr
from cubridge.ir.parser import parse_expr
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from tests.frontend.cuda.kernels import KERNELS, kernel_text


def _caught(change: dict[str, object], arch: str, dtype: DType = DType.BF16) -> tuple[Diagnostic, ...]:
    source = SourceFile.from_text("kernel.cu", kernel_text(arch))
    contract = read_contract(KERNELS / arch / "attention_forward.toml", source)
    changed: LaunchContract = replace(contract, **change)  # pyright: ignore[reportArgumentType]
    instance = instantiations(changed, dtype, 128)[0]
    with pytest.raises(CuError) as caught:
        lift(source, changed, instance, folder_headers(KERNELS))
    return caught.value.diagnostics


def _faults(change: dict[str, object], arch: str = "sm90a") -> list[str]:
    return [f"{d.code}: {d.message}" for d in _caught(change, arch)]


def _at(text: str) -> Expr:
    """An expression that stands in a contract."""
    return parse_expr_at(text, SourceFile.from_text("kernel.toml", text), 0)


MISFITS = {
    "block": ("64", "`block` is 64 where HEAD_DIM=128, .*: the kernel has 128 threads by its launch bounds"),
    "query_tile": ("64", "`query_tile` is 64, and the kernel has 128 rows in a query tile"),
    "key_tile": ("32", "`key_tile` is 32 where .*: the kernel has 64 keys in a key tile"),
    "shared_bytes": (
        "BLOCK_Q * HEAD_DIM * 2",
        "`shared_bytes` is 32768 where .*: the kernel takes 98304, and sm_80 has 166912",
    ),
}


@pytest.mark.parametrize("key", MISFITS)
def test_what_the_text_needs_is_said_at_the_contract(key: str) -> None:
    expr, says = MISFITS[key]
    (fault,) = _caught({key: _at(expr)}, "sm80")
    assert (fault.code, fault.span.file.name, fault.span.text) == ("CU428", "kernel.toml", expr)
    assert re.fullmatch(says, fault.message), fault.message
    assert fault.notes[0].span.file.name == "kernel.cu"


def test_shared_memory_beyond_the_machine() -> None:
    (fault,) = _caught({"shared_bytes": _at("1048576")}, "sm90a")
    assert fault.message.startswith("`shared_bytes` is 1048576") and fault.message.endswith("sm_90a has 232448")


@pytest.mark.parametrize(("dtype", "macros"), [(DType.F16, ()), (DType.BF16, (("HALF_FP16", 1),))])
def test_elements_that_the_macros_of_a_type_do_not_select(dtype: DType, macros: tuple[tuple[str, int], ...]) -> None:
    (fault,) = _caught({"dtypes": ((dtype, macros),)}, "sm80", dtype)
    name, other = {DType.F16: ("fp16", "bf16"), DType.BF16: ("bf16", "f16")}[dtype]
    assert fault.message == f"the macros of `{name}` select instructions on {other}"
    assert fault.span.text.startswith(f"{name} = ")


def test_boxes_of_tensor_maps() -> None:
    contract = read_contract(KERNELS / "sm90a" / "attention_forward.toml")
    q, k, v, o = contract.tensor_maps
    tall = replace(q, box=(q.box[0], _at("128"), *q.box[2:]))
    two_heads = replace(k, box=(*k.box[:2], _at("2"), k.box[3]))
    short = replace(o, box=(o.box[0], _at("16"), *o.box[2:]))
    faults = _caught({"tensor_maps": (tall, two_heads, replace(v, swizzle_bytes=64), short)}, "sm90a")
    assert {(f.message, f.span.text.partition(" ")[0]) for f in faults} == {
        ("tensor map `v` swizzles otherwise than its tile, by 128 bytes", "swizzle_bytes"),
        ("the box of tensor map `q` is not a panel of 64 columns of its tile, of one head", "128"),
        ("the box of tensor map `k` is not a panel of 64 columns of its tile, of one head", "2"),
        ("the box of tensor map `o` is not a panel of 64 columns of its tile, of one head", "16"),
    }


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
        (
            "minimum(B, 256) * Hq * ceil_div(Lq, BLOCK_Q)",
            "the grid has 256 blocks, one for each query tile would be 512",
        ),
        ("B * Hq * ceil_div(Lq, BLOCK_Q) + (Hq == 77)", "the grid has 78 blocks, one for each query tile would be 77"),
        ("B * Hq * ceil_div(minimum(Lq, 70000), BLOCK_Q)", "one for each query tile would be 1024 at B=1, Hq=1"),
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
    said = ", and 16 bytes move at a time"
    assert {f.partition("aligns ")[2] for f in faults} == {f"`{name}` to 4{said}" for name in "qkvo"}
