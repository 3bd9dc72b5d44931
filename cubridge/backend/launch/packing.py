"""`Params` of one form of a call, packed by one call of `struct`: what the form fixes stands between what each call puts there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal, assert_never

from cubridge.backend.launch.params import layout, pack
from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    HostValue,
    LaunchContract,
    MapOfTensor,
    ParamField,
    TensorAddress,
    TensorStride,
    TileListAddress,
    Unread,
)
from cubridge.ir.evaluate import evaluate_number

if TYPE_CHECKING:
    from cubridge.backend.launch.arguments import Scalar

COUNTERS: Final = "@counters"
"""The place of the work counters among the tensors of a launch."""


def captured_place(field: ParamField) -> str:
    """The place of a captured tensor among the tensors of a launch."""
    return f"@captured {field.name}"


def list_place(field: ParamField) -> str:
    """The place of lists of key tiles among the tensors of a launch."""
    return f"@tiles {field.name}"


@dataclass(frozen=True, slots=True)
class Packing:
    """`fixed`: the bytes that the form decides, in runs. `order`: from (*fixed, *addresses, *maps) to the struct's own order."""

    struct: Struct
    fixed: tuple[bytes, ...] = field(repr=False)
    order: Callable[[Sequence[object]], Sequence[object]] = field(repr=False)

    def __call__(self, addresses: Sequence[int], maps: Sequence[bytes]) -> bytes:
        """The bytes of `Params`, with the addresses of all tensors of a launch and its descriptors."""
        return self.struct.pack(*self.order((*self.fixed, *addresses, *maps)))


Kind = Literal["fixed", "address", "map"]


def packing(
    contract: LaunchContract,
    strides: Mapping[str, tuple[int, ...]],
    names: Mapping[str, Scalar],
    places: Mapping[str, int],
) -> Packing:
    """`strides` of each half tensor, `names` in host formulas, `places` of tensors in a launch. Errors: CU826."""
    maps = {m.name: at for at, m in enumerate(contract.tensor_maps)}
    contents = {f.name: _content(f, strides, names, places, maps) for f in contract.params}
    numbers = {f.name: bytes(f.c_type.bytes) for f in contract.params} | {
        name: content for name, content in contents.items() if not isinstance(content, tuple)
    }
    template = pack(contract, numbers)
    runs = _Runs(template)
    for place in layout(contract)[0]:
        content = contents[place.field.name]
        if isinstance(content, tuple):
            runs.put(place.offset, place.field.c_type.bytes, *content)
    runs.fix(len(template))
    starts = {"fixed": 0, "address": len(runs.fixed), "map": len(runs.fixed) + len(places)}
    picks = [starts[kind] + at for kind, at in runs.order]
    return Packing(Struct("<" + "".join(runs.formats)), tuple(runs.fixed), _picker(picks))


class _Runs:
    """Bytes of a template, cut where a call puts something."""

    def __init__(self, template: bytes) -> None:
        self.template = template
        self.formats: list[str] = []
        self.fixed: list[bytes] = []
        self.order: list[tuple[Kind, int]] = []
        self.end = 0

    def fix(self, until: int) -> None:
        """Up to there the form decides."""
        if until > self.end:
            self.formats.append(f"{until - self.end}s")
            self.order.append(("fixed", len(self.fixed)))
            self.fixed.append(self.template[self.end : until])

    def put(self, offset: int, size: int, kind: Kind, at: int) -> None:
        """A call puts an address or a descriptor there, the `at`-th of its kind."""
        self.fix(offset)
        self.formats.append("Q" if kind == "address" else f"{size}s")
        self.order.append((kind, at))
        self.end = offset + size


def _picker(picks: list[int]) -> Callable[[Sequence[object]], Sequence[object]]:
    return itemgetter(*picks) if len(picks) > 1 else lambda values: (values[picks[0]],)


def _content(
    field: ParamField,
    strides: Mapping[str, tuple[int, ...]],
    names: Mapping[str, Scalar],
    places: Mapping[str, int],
    maps: Mapping[str, int],
) -> int | float | bytes | tuple[Kind, int]:
    """A number, or bytes, that the form decides, or what each call puts there."""
    match field.value:
        case TensorStride(name, axis):
            return strides[name][axis] if name in strides else 0
        case HostValue(expr):
            value = evaluate_number(expr, names)
            assert isinstance(value, (bool, int, float))
            return value
        case TensorAddress(name):
            return ("address", places[name]) if name in places else 0
        case CapturedAddress():
            return "address", places[captured_place(field)]
        case TileListAddress():
            return "address", places[list_place(field)]
        case CounterAddress():
            return ("address", places[COUNTERS]) if COUNTERS in places else 0
        case Unread():
            return bytes(field.c_type.bytes)
        case MapOfTensor(name):
            return "map", maps[name]
        case _:
            assert_never(field.value)
