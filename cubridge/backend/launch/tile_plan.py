"""The plan of a launch whose mask reads data: lists of key tiles, made by a kernel of their own or by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.launch.device import Device, KernelText, Launch, LoadedKernel
from cubridge.backend.launch.packing import Packing, captured_place, list_place, packing
from cubridge.backend.text.list_mask import mask_text
from cubridge.engine.tile_lists import ListShape, list_shape, tile_lists
from cubridge.ir.contract import (
    CapturedAddress,
    HostValue,
    Instantiation,
    LaunchContract,
    MacroChoice,
    ParamField,
    TileListAddress,
    Unread,
)
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Attr, Expr, IntLit, Name, QueryTileList, TileList
from cubridge.ir.source import SourceFile
from cubridge.ir.walk import rewrite, walk

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.arguments import Scalar
    from cubridge.engine.tile_lists import Value

ENTRY: Final = "list_tiles"
HEADER: Final = "common/list_tiles.cuh"
_SIZE_MACROS: Final = {"B": "BATCH", "Hq": "HEADS_Q", "Hk": "HEADS_KV"}
THREADS: Final = 1024
"""Of a block, which makes a list."""


@dataclass(frozen=True, slots=True)
class ListPlan:
    """How calls of one form make the lists of `kind`. `params`: the numbers that it reads; `captured`: the fields of the contract's
    captured tensors, in order. `maker`: the kernel that makes them, None for torch."""

    kind: TileList
    shape: ListShape
    names: Mapping[str, Scalar]
    params: Mapping[str, Value]
    captured: tuple[str, ...]
    device: torch.device
    maker: Maker | None

    def make(self, arrays: Sequence[Tensor]) -> Tensor:
        """The lists, on the device in its current stream, without waiting for it. `arrays`: of all captured tensors."""
        if self.maker is not None:
            return self.maker.make(self.kind, self.shape, self.device, arrays)
        params = {**self.params, **dict(zip(self.captured, arrays, strict=True))}
        return tile_lists(self.kind, self.names, params, self.device)


@dataclass(frozen=True, slots=True)
class Maker:
    """The kernel that makes lists, of one call form: a block for each. It works on the captured arrays and the lists."""

    kernel: LoadedKernel
    packing: Packing

    def make(self, kind: TileList, shape: ListShape, device: torch.device, arrays: Sequence[Tensor]) -> Tensor:
        lists = torch.empty(shape.lists, kind.HEAD + shape.tiles, dtype=torch.int16, device=device)
        tensors = [*arrays, lists]
        params = self.packing([t.data_ptr() for t in tensors], ())
        self.kernel.launch(Launch(shape.lists, THREADS, self.kernel.shared_bytes, params), tensors)
        return lists


def plan_lists(
    place: ParamField,
    contract: LaunchContract,
    device: Device,
    names: Mapping[str, Scalar],
    kernel: LoadedKernel | None,
) -> ListPlan:
    """How calls of one form make the lists that field `place` points to; `names`: values of names in host formulas. `kernel`: what
    makes them, None for torch. Errors: CU301, CU826, as `list_shape`."""
    kind = _kind(place)
    wanted = {n.name for n in walk(kind) if isinstance(n, Attr) and n.base == Name("p")}
    hosts = {f.name: f.value.expr for f in contract.params if f.name in wanted and isinstance(f.value, HostValue)}
    params = {name: evaluate_number(host, names) for name, host in hosts.items()}
    shape = list_shape(kind, names, params)
    maker = None
    if kernel is not None:
        order = (*map(captured_place, contract.captured), list_place(place))
        places = {name: at for at, name in enumerate(order)}
        packed = packing(_of_maker(contract, place), {}, names, places)
        maker = Maker(kernel, packed)
    captured = tuple(f.name for f in contract.captured)
    return ListPlan(kind, shape, names, params, captured, device.torch_device, maker)


def _kind(place: ParamField) -> TileList:
    assert isinstance(place.value, TileListAddress)
    return place.value.kind


# ---- the text of the kernel that makes lists -------------------------------------------------------------------------


def load_makers(device: Device, text: KernelText, form: Instantiation, head_dim: int) -> dict[str, LoadedKernel]:
    """What makes the lists of a kernel of this form, by the fields that point to them. Errors: those of `device.load`."""
    return {name: device.load(made, form.dtype, head_dim) for name, made in list_texts(text, form).items()}


def list_texts(text: KernelText, form: Instantiation) -> dict[str, KernelText]:
    """The texts of what makes the lists of a kernel of this form, by the fields that point to them."""
    return {f.name: list_text(text, f, form) for f in text.contract.tile_lists}


def list_text(text: KernelText, place: ParamField, form: Instantiation) -> KernelText:
    """The kernel text with the maker of its lists behind it, in the form that the kernel itself has."""
    contract, kind = text.contract, _kind(place)
    macros = dict(form.macros)
    sizes = {f.size: f"p.{f.name}" for f in contract.params if f.size is not None}
    rows, keys = kind.LENGTHS
    macro_of = {**_SIZE_MACROS, rows: "LEN_ROWS", keys: "LEN_KEYS"}
    defined = {f"LIST_{macro}": sizes.get(size, size) for size, macro in macro_of.items()}
    defined |= {"LIST_ENTRIES": f"p.{place.name}", "LIST_ROWS": _said(kind.per_list, macros)}
    defined |= {"LIST_AXES": str(len(kind.axes)), "LIST_KEYS": _said(kind.per_tile, macros)}
    defined |= {"LIST_OF_QUERIES": "true" if isinstance(kind, QueryTileList) else "false"}
    defined |= mask_text(_by_sides(kind), contract)
    lines = "".join(f"#define {name} {value}\n" for name, value in defined.items())
    source = SourceFile(text.source.name, text.source.data + f'\n{lines}#include "{HEADER}"\n'.encode())
    made = replace(
        _of_maker(contract, place),
        macros=tuple(MacroChoice(m.name, (IntLit(macros[m.name]),)) for m in contract.macros),
        shared_bytes=IntLit(0),
    )
    return KernelText(source, made, tuple(dict.fromkeys((*text.include_dirs, KERNELS_DIR))))


def _by_sides(kind: TileList) -> Expr:
    """The mask with `i` for what a list is for and `j` for what its tiles hold."""
    sides = dict(zip(kind.INDICES, TileList.INDICES, strict=True))
    return rewrite(kind.keep, lambda n: Name(sides[n.id]) if isinstance(n, Name) and n.id in sides else n)


def _said(size: Expr, macros: Mapping[str, int]) -> str:
    """A size as the text says it: a field of Params, or a number."""
    match size:
        case Attr(Name("p"), name):
            return f"p.{name}"
        case _:
            return str(evaluate_number(size, macros))


def _of_maker(contract: LaunchContract, place: ParamField) -> LaunchContract:
    """Of the kernel that makes the lists of `place`: it reads the same `Params`, but no input and no output."""

    def seen(known: ParamField) -> ParamField:
        match known.value:
            case TileListAddress(kind) if known.name == place.name:
                return replace(known, value=TileListAddress(kind, made=True))
            case CapturedAddress() | HostValue():
                return known
            case _:
                return replace(known, value=Unread())

    return replace(contract, entry=ENTRY, params=tuple(seen(f) for f in contract.params))
