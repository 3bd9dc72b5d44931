"""What a page shows, as plain data: small, the same for the same adaptation, and written as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.show.record import from_json


@dataclass(frozen=True, slots=True)
class Formula:
    """A part of the attention that was found. `line`: of the reference that says it, 0 if none does."""

    label: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Asked:
    """`first`: number of the first line of `source`."""

    name: str
    file: str | None
    source: str
    first: int
    formulas: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Plane:
    """The mask of some batches and heads, `of`. `elements`: a PNG in base64, one pixel a query row and key, or, where that is
    many, `scale` of them. `tiles`: a text a query tile, with a letter of `CELLS` a key tile; `steps`: the key tiles that each
    query tile visits, in turn."""

    of: str
    elements: str
    scale: int
    tiles: tuple[str, ...]
    steps: tuple[tuple[int, ...], ...]


CELLS = {
    ".": "hidden, not visited",
    "#": "visible, walked without the mask",
    "+": "partly visible, walked with the mask",
    "f": "visible, walked with the mask all the same",
    "o": "hidden, and visited all the same",
    "!": "walked wrongly",
}
"""What a key tile is to a query tile."""


@dataclass(frozen=True, slots=True)
class Mask:
    """`rows`, `keys`: query rows and keys of the picture; `tile_rows`, `tile_keys`: of a tile. `more`: planes not shown."""

    rows: int
    keys: int
    tile_rows: int
    tile_keys: int
    planes: tuple[Plane, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Work:
    """A work tile, and the key tiles that it visits."""

    b: int
    h: int
    q_start: int
    key_tiles: int


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that a lane of the timeline does; `critical`: the end waits for it."""

    lane: int
    start: int
    end: int
    kind: str
    text: str
    critical: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """Who does what when, at nominal durations, for work tiles of `counts` key tiles."""

    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One region: its lines in CuIR and in CUDA, each with " ", "-" or "+" before it."""

    name: str
    cuir: tuple[str, ...]
    cuda: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A run against the oracle: `rows` has the largest error of each query row over its bound, or of `per_row` rows together.
    An error that is no number is None."""

    stage: str
    shape: str
    inputs: str
    worst: float | None
    lse: float | None
    reference: float | None
    accepted: bool
    detail: str
    rows: tuple[float | None, ...]
    per_row: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A wrong kernel, and who refuses it; None: nobody."""

    name: str
    by: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What is said of a part, for all sizes."""

    part: str
    proved: bool
    text: str


@dataclass(frozen=True, slots=True)
class Form:
    """What the compiler says of one form."""

    arch: str
    macros: str
    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class View:
    """`verdict`: as the summary says it; `basis`: what that rests on; `by`: who wrote what, where it was not the rules; `cuir`: the
    whole kernel, with " ", "-" or "+" before each line."""

    kernel: str
    arch: str
    dtype: str
    shape: str
    accepted: bool
    verdict: str
    basis: str
    by: tuple[str, ...]
    pipeline: str
    asked: Asked
    mask: Mask | None
    schedule: tuple[Work, ...]
    more_work: int
    timeline: Timeline | None
    changes: tuple[Change, ...]
    cuir: tuple[str, ...]
    runs: tuple[Run, ...]
    refusals: tuple[Refusal, ...]
    proofs: tuple[Proof, ...]
    forms: tuple[Form, ...]
    not_checked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """One candidate that was timed on a GPU; `fault` where it could not run."""

    name: str
    median_ms: float
    least_ms: float
    most_ms: float
    tflops: float
    fault: str | None


@dataclass(frozen=True, slots=True)
class Speed:
    """Times on one device, at one shape."""

    device: str
    shape: str
    timed: tuple[Timed, ...]


def view_json(view: View | Speed) -> bytes:
    return (json.dumps(asdict(view), separators=(",", ":"), allow_nan=False) + "\n").encode()


def read_view(name: str, data: bytes) -> View:
    """Errors: CU842 for what `view_json` did not write."""
    try:
        return from_json(View, json.loads(data))
    except (ValueError, RecursionError) as error:
        raise CuError(Diagnostic("CU842", f"{name} does not hold a view of an adaptation: {error}")) from error


def read_speed(name: str, data: bytes) -> Speed:
    """Errors: CU842 for what `view_json` did not write."""
    try:
        return from_json(Speed, json.loads(data))
    except (ValueError, RecursionError) as error:
        raise CuError(Diagnostic("CU842", f"{name} does not hold times: {error}")) from error
