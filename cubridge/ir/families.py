"""Families of kernels: what those of one job have in common. Which regions vary, what a work tile is, how fragments lie.

forward          a work tile is a query tile; it visits key tiles
backward         a work tile is a key tile; it visits the query tiles of all query heads of its group
backward_rows    before it, of each query tile: numbers of a row that the pairs need
backward_dq      after it, of each query tile: the sums of dq in the element type of q"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import REGIONS, Attr, Expr, Name
from cubridge.ir.source import Span
from cubridge.ir.source_map import SOURCE_REGIONS
from cubridge.ir.types import Axis

FORWARD: Final = "forward"
_TILE: Final = Name("tile")


@dataclass(frozen=True, slots=True)
class Family:
    """`regions`: with their arguments, in order. `sources`: the marked regions of a text, in order. `coordinates`: the fields of a
    work tile that the schedule fills; `origin` is the first row of its fragments, and `column_origin` what a call says of their
    first column. `rows`, `columns`: the axes of a score fragment. `walk`: the regions that return a sequence, a count, a tile and
    whether it is masked, which make up the source region `walk_source`."""

    name: str
    regions: Mapping[str, tuple[str, ...]]
    sources: tuple[str, ...]
    coordinates: tuple[str, ...]
    rows: Axis
    columns: Axis
    walk: tuple[str, ...] = ()
    walk_source: str = ""
    sequence: str = ""
    """The argument and scope that the walk's later regions take."""
    walks_heads: bool = False
    """Does a kernel go through the query heads of a work tile, setting each up?"""
    row_map: str = "frag_row"
    """What a text calls the lane map of rows."""

    @property
    def origin(self) -> Attr:
        return Attr(_TILE, _STARTS[self.rows])

    @property
    def column_origin(self) -> Name:
        return Name(_STARTS[self.columns])

    def source_of(self, region: str) -> str:
        """The marked region of a text that the function of a region lies in."""
        return self.walk_source if region in self.walk else region


_STARTS: Final = {Axis.ROW: "q_start", Axis.KEY: "kv_start", Axis.OUT: "column_start"}

BACKWARD_REGIONS: Final[dict[str, tuple[str, ...]]] = {
    "tile_setup": ("tile",),
    "query_sequence": ("tile",),
    "query_count": ("queries",),
    "query_tile": ("queries", "t"),
    "query_masked": ("queries", "t"),
    "score": ("s", "kept", "q_start", "tile"),
    "mask": ("s", "q_start", "tile"),
    "probs": ("s", "lse", "q_start", "tile"),
    "probs_grad": ("dp", "w", "delta", "q_start", "tile"),
    "score_grad": ("ds", "kept", "w", "lse", "q_start", "tile"),
}
ROWS_REGIONS: Final[dict[str, tuple[str, ...]]] = {
    "tile_setup": ("tile",),
    "row_terms": ("lse", "delta", "d_lse", "tile"),
}
LAST_REGIONS: Final[dict[str, tuple[str, ...]]] = {"tile_setup": ("tile",)}

FAMILIES: Final[Mapping[str, Family]] = {
    f.name: f
    for f in (
        Family(
            FORWARD, REGIONS, SOURCE_REGIONS, ("b", "h", "hk", "q_start"), Axis.ROW, Axis.KEY,
            ("key_sequence", "key_count", "key_tile", "key_masked"), "kv_range", "keys",
        ),
        Family(
            "backward", BACKWARD_REGIONS,
            ("params", "tile_state", "score_state", "tile_setup", "query_range", *(*BACKWARD_REGIONS,)[5:]),
            ("b", "h", "hk", "kv_start"), Axis.KEY, Axis.ROW,
            ("query_sequence", "query_count", "query_tile", "query_masked"), "query_range", "queries", True,
        ),
        Family(
            "backward_rows", ROWS_REGIONS, ("params", "tile_state", "tile_setup", "row_terms"), ("b", "h", "q_start"),
            Axis.ROW, Axis.OUT, row_map="warpgroup_row",
        ),
        Family("backward_dq", LAST_REGIONS, ("params", "tile_state", "tile_setup"), ("b", "h", "q_start"), Axis.ROW, Axis.OUT),
    )
}  # fmt: skip

ALL_REGIONS: Final = tuple(dict.fromkeys(name for f in FAMILIES.values() for name in f.regions))
COORDINATES: Final = tuple(dict.fromkeys(name for f in FAMILIES.values() for name in f.coordinates))
WALKS: Final = {f.walk[0]: f for f in FAMILIES.values() if f.walk}
"""Families by the region that returns their sequence."""


def take_forward(family: str, place: Span) -> None:
    """Errors: CU509 for a kernel of another family than `forward`."""
    if family != FORWARD:
        help = "backward kernels are lifted, verified and run as they are"
        raise CuError(
            Diagnostic(
                "CU509",
                f"a kernel of the family `{family}`: only forward kernels are taken here",
                place,
                help=help,
            )
        )


def signatures(region: str) -> tuple[tuple[str, ...], ...]:
    """The arguments of a region in each family that has it."""
    return tuple(dict.fromkeys(f.regions[region] for f in FAMILIES.values() if region in f.regions))


def named_arguments(region: str, args: tuple[Expr, ...]) -> dict[str, Expr]:
    """What a call gives, by the names of a family that takes as many; nothing where none does."""
    found = next((s for s in signatures(region) if len(s) == len(args)), ())
    return dict(zip(found, args, strict=False))
