"""The kernel that makes the lists of a text, on the emulator: of made-up data it must make the lists that the mask says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.backend.compile.compiler import listed_instantiations
from cubridge.backend.launch.tile_plan import ListPlan, load_makers, plan_lists
from cubridge.ir.contract import CapturedAddress, CType, HostValue, LaunchContract
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.walk import free_names
from cubridge.passes.list_check import MADE_UP_NUMBER, runs

if TYPE_CHECKING:
    from cubridge.backend.launch.device import Device, KernelText
    from cubridge.ir.contract import ParamField
    from cubridge.ir.types import DType

    Sizes = Mapping[str, int]

_LENGTHS: Final = (130, 300)
"""Of queries and keys alike, as in `list_check`."""
_DATA: Final = ((5, 1), (5, 50), (300, 50))
"""Numbers below the first, so many alike side by side."""


def check_makers(device: Device, text: KernelText, dtype: DType, head_dim: int) -> None:
    """Nothing for a text without lists. Errors: CU844 for lists that hold other tiles than the elements of the mask say; those of
    `device.load` and of launches."""
    contract = text.contract
    if not contract.tile_lists:
        return
    form = listed_instantiations(contract, dtype, head_dim)[0]
    makers = load_makers(device, text, form, head_dim)
    for length, (most, run) in product(_LENGTHS, _DATA):
        sizes = {"B": 2, "Hq": 2, "Hk": 1, "Lq": length, "Lk": length, "D": head_dim}
        names = _made_up_numbers(contract) | dict(device.constants) | dict(form.macros) | sizes
        arrays = list(_made_up_arrays(contract, names, most, run))
        for place in contract.tile_lists:
            plan = plan_lists(place, contract, device, names, makers[place.name])
            _compare(place, plan, arrays, sizes)


def _compare(place: ParamField, plan: ListPlan, arrays: list[Tensor], sizes: Sizes) -> None:
    try:
        expected = replace(plan, maker=None).make(arrays)
    except CuError:  # a division by Lq // 1000, say: the mask has no meaning at these lengths
        return
    made = plan.make(arrays)
    wrong = (made != expected).nonzero()
    if len(wrong):
        at, entry = (int(x) for x in wrong[0])
        message = (
            f"the kernel that makes the lists `{place.name}` puts {made[at, entry]} into list {at} at {entry}, where the mask "
            f"says {expected[at, entry]} ({sizes})"
        )
        raise CuError(Diagnostic("CU844", message, place.span), exit_code=3)


def _made_up_numbers(contract: LaunchContract) -> dict[str, int]:
    """A value for each name that formulas of the host read."""
    hosts = (f.value.expr for f in contract.params if isinstance(f.value, HostValue))
    return {name: MADE_UP_NUMBER for host in hosts for name in free_names(host)}


def _made_up_arrays(contract: LaunchContract, names: Mapping[str, int], most: int, run: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(len(contract.params))
    for field in contract.captured:
        assert isinstance(field.value, CapturedAddress)
        extents = tuple(int(evaluate_number(e, names)) for e in field.value.extents)
        data = _padded(runs(extents, run, generator, most), field.value.pad)
        yield data.float() if field.c_type is CType.FLOAT_POINTER else data


def _padded(data: Tensor, pad: int) -> Tensor:
    """The last element again up to a whole multiple."""
    if data.dim() == 0 or pad == 1:
        return data.contiguous()
    missing = -data.shape[-1] % pad
    return torch.cat((data, data[..., -1:].expand(*data.shape[:-1], missing)), dim=-1).contiguous()
