"""AttentionSpec: what attention a reference computes, as expressions.

    out[b, h, i, :] = finalize(sum_j w(i, j) V[b, kv_head(h), j, :])
    x = score(s, b, h, i, j)  with  s = sum_d Q[b, h, i, d] K[b, kv_head(h), j, d]   (raw: the softmax scale is part of `score`)
    w(i, j) = weight(x, m, rows, b, h, i, j) where mask(b, h, i, j), else 0
    rows: name = reduction over {j : over(b, h, i, j)} of body(x, m, b, h, i, j)

`m` is any per-row number when `shift` holds (weight has degree 1 and finalize degree 0 under exp-shifts of m), so that a kernel
may choose the running maximum. Free names: `s` or `x`, `b h i j`, sizes B Hq Hk Lq Lk D, `acc`, `m`, row names, captures.
A capture is read as `name[index, ..]`, a scalar capture as `name`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cubridge.ir.nodes import Expr
from cubridge.ir.source import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class Shape:
    """Problem sizes: batch, query and key heads, query and key length, head dim."""

    B: int
    Hq: int
    Hk: int
    Lq: int
    Lk: int
    D: int

    def sizes(self) -> dict[str, int]:
        return {"B": self.B, "Hq": self.Hq, "Hk": self.Hk, "Lq": self.Lq, "Lk": self.Lk, "D": self.D}

    def __str__(self) -> str:
        return ",".join(str(x) for x in self.sizes().values())


DEFAULT_SHAPE = Shape(2, 15, 5, 257, 321, 64)


CaptureKind = Literal["argument", "state", "constant", "computed"]


@dataclass(frozen=True, slots=True)
class Capture:
    """A value that the reference reads besides q, k, v. `extents` are formulas of sizes; () is a Python number.

    kind: "argument" is given at each call; "state" is what lies at `path` (a parameter, a buffer, a tensor of the closure or the
    globals, as the reference writes it) at each call; "constant" is written out in the reference; "computed" is recomputed before
    a launch."""

    name: str
    kind: CaptureKind
    extents: tuple[Expr, ...]
    dtype: Literal["f32", "i32", "bool"]
    span: Span = NOWHERE
    path: str = ""


@dataclass(frozen=True, slots=True)
class RowReduction:
    """One number per row: the `kind` over visible keys of `body`; `over` may differ from the spec's mask."""

    name: str
    kind: Literal["sum", "max", "min"]
    over: Expr
    body: Expr


@dataclass(frozen=True, slots=True)
class Precondition:
    """A boolean formula of sizes that every launch must meet; found where `span` points. `help`: what to do where it is not."""

    condition: Expr
    span: Span = NOWHERE
    help: str = "adapt the reference again at these sizes"


@dataclass(frozen=True, slots=True)
class Remark:
    """A warning, an assumption or a specialisation, with the place that caused it."""

    message: str
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """See the module docstring. `lse` (natural log) reads m and rows, None if the reference gives none or has none.

    `gives_lse`: the reference returns (out, lse). `tie`: the gradient that a maximum or minimum of the score passes on where both
    its arguments are equal, by the operations of the reference: 0 of ReLUs, 0.5 of maxima, 1 of clamps; None where it has
    several."""

    score: Expr
    mask: Expr
    weight: Expr
    rows: tuple[RowReduction, ...]
    finalize: Expr
    shift: bool
    lse: Expr | None
    kv_head: Expr
    gives_lse: bool = False
    tie: float | None = 0.5
    captures: tuple[Capture, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    specialised: tuple[Remark, ...] = ()
    assumptions: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()

    def capture(self, name: str) -> Capture:
        return next(c for c in self.captures if c.name == name)
