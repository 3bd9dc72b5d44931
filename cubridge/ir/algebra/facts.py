"""What is known of the integers of a kernel before any is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cubridge.ir.algebra.hosts import host_interval
from cubridge.ir.nodes import SIZES, Attr, Expr, IntLit, Kernel, Name, Scalar
from cubridge.ir.region_types import ACCESSORS, TILE_FIELDS

NATURAL: Final[Mapping[Expr, int]] = {
    **{Name(n): 1 for n in SIZES},
    **{Name(n): 0 for n in ACCESSORS},
    **{Attr(Name("tile"), n): 0 for n in TILE_FIELDS},
}
"""Least values: there is no launch for an empty tensor, and places are counted from 0."""
ARGUMENTS: Final[Mapping[Expr, int]] = {Name(n): 0 for n in ("kv_start", "q_start", "t")}
"""The same of names that stand for places in regions that take them."""


def _nothing(_: Expr) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Facts:
    """Of a name, field or call: `least`, a number that it is never below; `most`, what it is never above; `definition`, what it
    is."""

    least: Callable[[Expr], int | None] = _nothing
    most: Callable[[Expr], Expr | None] = _nothing
    definition: Callable[[Expr], Expr | None] = _nothing

    @staticmethod
    def of(kernel: Kernel) -> Facts:
        """What holds for every instantiation of a kernel: of its constants, the signs."""
        return Facts({**dict(_least_constants(kernel)), **NATURAL, **ARGUMENTS, **dict(_least_params(kernel))}.get)

    @staticmethod
    def of_instantiation(kernel: Kernel) -> Facts:
        """What holds for one instantiation, with its values of all constants. Not for what must stay right in others."""
        constants: dict[Expr, Expr] = {
            Name(c.name): IntLit(c.value) for c in kernel.constants if isinstance(c.value, int)
        }
        return replace(Facts.of(kernel), definition=constants.get)


def _least_constants(kernel: Kernel) -> Iterator[tuple[Expr, int]]:
    for constant in kernel.constants:
        if isinstance(constant.value, int) and constant.value >= 0:
            yield Name(constant.name), min(constant.value, 1)


def _least_params(kernel: Kernel) -> Iterator[tuple[Expr, int]]:
    for param in kernel.params:
        if isinstance(param.type, Scalar) and param.type.host is not None:
            least = least_of_host(param.type.host)
            if least is not None:
                yield Attr(Name("p"), param.name), least


def least_of_host(host: Expr) -> int | None:
    """What the form of a host expression shows it never to be below: 1, 0 or nothing."""
    low = host_interval(host).low
    return None if low < 0 else int(low >= 1)
