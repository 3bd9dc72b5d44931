"""Where the elements of a foreign kernel's tensors lie, in numbers of one launch and as polynomials of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cubridge.ir.algebra.normal import floor_div, floor_mod, poly
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.contract import ElementType
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.foreign import ForeignContract, ForeignTensor
from cubridge.ir.nodes import Binary, Expr, IntLit, Name
from cubridge.ir.spec import Shape
from cubridge.ir.trace import Window
from cubridge.ir.walk import rewrite

_AXES: Final = 3
"""Of a view and its rows: batch, head, row."""
_GROUP: Final = Binary("//", Name("Hq"), Name("Hk"))


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """An element of tensor[b, h]; `column` is 0 of a row vector."""

    tensor: str
    b: int
    h: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Batch, head and row of an element, over block coordinates and sizes."""

    b: Poly
    h: Poly
    row: Poly


@dataclass(frozen=True, slots=True)
class Layout:
    """Of one launch."""

    contract: ForeignContract
    shape: Shape
    windows: Mapping[str, Window]
    bytes: Mapping[str, int]
    numbers: Mapping[str, tuple[int, ...]]
    """Extents; a row vector has one column."""

    @staticmethod
    def of(contract: ForeignContract, shape: Shape, windows: Sequence[Window]) -> Layout:
        sizes = {t.name: 4 if t.element is ElementType.F32 else contract.dtype.bytes for t in contract.tensors}
        numbers = {t.name: _extents(t, shape) for t in contract.tensors}
        return Layout(contract, shape, {w.name: w for w in windows}, sizes, numbers)

    def window(self, address: int) -> str | None:
        return next((n for n, w in self.windows.items() if w.base <= address < w.base + w.bytes), None)

    def extents(self, tensor: str) -> tuple[int, ...]:
        return self.numbers[tensor]

    def width(self, tensor: str) -> int:
        return self.extents(tensor)[3]

    def length(self, tensor: str) -> int:
        return self.extents(tensor)[2]

    def place(self, tensor: str, address: int) -> Place:
        return self.place_of(tensor, address - self.windows[tensor].base)

    def place_of(self, tensor: str, offset: int) -> Place:
        """Of the element `offset` bytes from the start."""
        at, (_, heads, rows, columns) = offset // self.bytes[tensor], self.extents(tensor)
        return Place(
            tensor, at // (columns * rows * heads), at // (columns * rows) % heads, at // columns % rows, at % columns
        )

    def coordinates(self, tensor: str, offset: Poly) -> Coordinates:
        """Of an address, `offset` bytes from the start of a tensor: batch and head by division where they are one number."""
        strides = _strides(self.contract.tensor(tensor), self.contract.head_dim, self.bytes[tensor])
        batch, rest = offset.divided(strides[0])
        head, rest = rest.divided(strides[1])
        row, _ = rest.divided(strides[2])
        heads = poly(self.contract.tensor(tensor).shape[1])
        if not self._below(head, heads):
            batch, head = batch + floor_div(head, heads), floor_mod(head, heads)
        return Coordinates(batch, head, row)

    def _below(self, head: Poly, heads: Poly) -> bool:
        """Is a head known to be one of its batch: a block coordinate of a grid with as many, or that divided by the group."""
        text = [str(n) for n, e in zip("xyz", self.contract.grid, strict=True) if poly(e).equals(poly(Name("Hq")))]
        atoms = {Poly.atom(Name(f"block_{n}")) for n in text}
        group = poly(_GROUP)
        queries = heads.equals(poly(Name("Hq")))
        return any(head.equals(a if queries else floor_div(a, group)) for a in atoms) or head.as_int() == 0


def _extents(tensor: ForeignTensor, shape: Shape) -> tuple[int, ...]:
    found = [int(evaluate_number(e, shape.sizes())) for e in tensor.shape]  # pyright: ignore[reportArgumentType]
    return tuple(found) if len(found) > _AXES else (*found, 1)


def _strides(tensor: ForeignTensor, head_dim: int, size: int) -> list[Poly]:
    """Bytes from one batch, head and row to the next."""
    extents = [poly(with_head_dim(e, head_dim)) for e in tensor.shape]
    found: list[Poly] = []
    for axis in range(_AXES):
        product = Poly.constant(size)
        for extent in extents[axis + 1 :]:
            product = product * extent
        found.append(product)
    return found


def with_head_dim(expr: Expr, head_dim: int) -> Expr:
    return rewrite(expr, lambda n: IntLit(head_dim) if n == Name("D") else n)  # pyright: ignore[reportReturnType]
