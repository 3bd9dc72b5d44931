"""The words of CuIR text, for parser and printer alike: operators with their precedence, and the layout of each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cubridge.ir.nodes import (
    OPS,
    Barrier,
    Captured,
    Counters,
    Element,
    FieldType,
    Global,
    Op,
    Partial,
    QueryTileList,
    Row,
    Scalar,
    SharedValue,
    TensorMap,
    Tile,
    TileList,
)
from cubridge.ir.walk import field_names

PRECEDENCE: Final[dict[str, int]] = {
    "<": 1, "<=": 1, ">": 1, ">=": 1, "==": 1, "!=": 1,
    "|": 2, "^": 3, "&": 4, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7, "**": 9,
}  # fmt: skip
"""Python's: a higher number binds tighter. Comparisons do not chain; `**` groups to the right, all others to the left."""

COMPARISON: Final = 1
UNARY: Final = 8
POWER: Final = 9
ATOM: Final = 10

ORCHESTRATION_CALLS: Final[dict[str, int]] = {
    "present": 1,  # is this optional parameter given
    "atomic_add": 3,  # (counters, index, amount): the value before
    "bytes": 1,  # of one slot of a shared tile
    "Ring": 1,
    "tile_at": 4,  # (b, h, hk, q_start): the work tile of these coordinates, its state set up
    "row_state": 0,
    "score_state": 0,
    "rows": 3,  # of a shared tile, from the first on so many
    "columns": 3,
}
"""Calls in expressions of the kernel body, with their arity; `work_tile` and the regions that return a value come on top."""

VALUE_REGIONS: Final = ("key_sequence", "key_count", "key_tile", "key_masked")
QUERY_REGIONS: Final = ("query_sequence", "query_count", "query_tile", "query_masked")
SCHEDULE: Final = "work_tile"
GEMMS: Final[dict[str, bool]] = {"gemm": False, "gemm_async": True}

SECTIONS: Final = ("params", "variant_params", "shared", "tile_state", "row_state")
"""Sections of fields, in the order of the text, after `cuir(version=..)` and `const(..)`."""

SCORE_STATE: Final = "score_state"
"""The section after those, of a text that keeps something of its scores."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a node that is written as one call lays out its fields; `rest` takes any number of positional arguments."""

    cls: type[FieldType] | type[Op]
    positional: tuple[str, ...] = ()
    rest: str | None = None
    keywords: tuple[str, ...] = ()


FIELD_FORMS: Final[dict[str, Form]] = {
    form.cls.__name__: form
    for form in (
        Form(Global, ("dtype",), "shape", ("optional",)),
        Form(TensorMap, ("dtype",), "shape"),
        Form(Scalar, ("dtype",), None, ("host",)),
        Form(Captured, ("dtype",), "extents", ("pad", "of")),
        Form(TileList, ("rows", "keys", "keep"), "axes"),
        Form(QueryTileList, ("rows", "keys", "keep"), "axes"),
        Form(Counters, ("count",), None, ("optional",)),
        Form(Tile, ("dtype", "rows", "cols"), None, ("slots", "swizzle")),
        Form(SharedValue, ("dtype",)),
        Form(Barrier, (), None, ("slots",)),
        Form(Row, ("dtype",)),
        Form(Partial, ("dtype",)),
        Form(Element, ("dtype",)),
    )
}

OP_FORMS: Final[dict[str, Form]] = {
    name: Form(cls, tuple(f for f in field_names(cls) if f not in cls.keywords), None, cls.keywords)
    for name, cls in OPS.items()
}
