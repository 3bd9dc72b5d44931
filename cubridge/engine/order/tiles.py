"""Register tiles of a warp in the order engine: what is written, in flight or frozen, and what a tile has gone through.

Each score tile goes through `score`, `mask` if its key tile is masked, `row_update`, every
`row_probs` and one cast, once each; each probability tile through one gemm; the output is rescaled once for every `row_update`
after its first accumulation, before the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cubridge.engine.core.operands import Value, fault
from cubridge.engine.order.memory import Content
from cubridge.engine.order.work import Work
from cubridge.ir.diagnostics import Note
from cubridge.ir.nodes import Stmt


@dataclass(slots=True, eq=False)
class Scores:
    """A score tile from its gemm on: the operands, and the steps that it has gone through."""

    queries: Content
    keys: Content
    stmt: Stmt
    steps: dict[str, Stmt] = field(default_factory=dict)
    rows: int = 0  # bit r: `row_probs` has run on fragment row r

    def step(self, name: str, needs: tuple[str, ...], stmt: Stmt) -> None:
        if name in self.steps:
            note = Note("first here", self.steps[name].span)
            raise fault("CU263", f"`{name}` runs twice on one score tile", stmt, note)
        for need in needs:
            if need not in self.steps:
                message = f"`{name}` runs on a score tile that has not gone through `{need}`"
                raise fault("CU263", message, stmt, Note("the tile", self.stmt.span))
        self.steps[name] = stmt


@dataclass(slots=True, eq=False)
class WarpTile:
    """`write_group`, `read_group`: the gemm group of the warpgroup that writes or reads it, 0 if none.

    `touched`: how many fences the warp had passed at the last access by an instruction that is no wgmma, -1 if none."""

    name: str
    stmt: Stmt
    written: bool = False
    write_group: int = 0
    write_stmt: Stmt | None = None
    read_group: int = 0
    read_stmt: Stmt | None = None
    touched: int = -1
    touched_by: Stmt | None = None
    scores: Scores | None = None  # what a score tile, or the probabilities cast from it, came from
    used: Stmt | None = None  # the gemm that took the probabilities
    added: list[Content] = field(default_factory=list)  # what an output tile has accumulated
    rescale_for: Stmt | None = None  # the `row_update` that it is not rescaled for
    zeroed: bool = False
    finished: Work | None = None
    history: list[tuple[object, ...]] = field(default_factory=list)  # of an output tile: what happened to it, in order

    def access(self, waited: int, stmt: Stmt, *, read: bool, write: bool) -> None:
        """An access by anything but an asynchronous gemm, by a warp that has waited for gemm groups up to `waited`."""
        if self.write_group > waited and self.write_stmt is not None:
            note = Note("this gemm writes it until it is waited for", self.write_stmt.span)
            raise fault("CU254", f"`{self.name}` is used while an asynchronous gemm writes it", stmt, note)
        if write and self.read_group > waited and self.read_stmt is not None:
            note = Note("this gemm reads it until it is waited for", self.read_stmt.span)
            raise fault("CU254", f"`{self.name}` is written while an asynchronous gemm reads it", stmt, note)
        if read and not self.written:
            raise fault(
                "CU255", f"`{self.name}` is read before it is written", stmt, Note("declared here", self.stmt.span)
            )
        self.written = self.written or write

    def begin(self) -> None:
        """An output tile is set to zero, for the first time or for another work tile."""
        self.zeroed, self.finished, self.rescale_for = True, None, None
        self.added = []
        self.history = [("zero",)]

    def touch(self, fences: int, stmt: Stmt) -> None:
        self.touched, self.touched_by = fences, stmt

    def check_fence(self, fences: int, stmt: Stmt) -> None:
        """A wgmma is about to use this tile."""
        if self.touched == fences and self.touched_by is not None:
            note = Note("the access that it must be ordered after", self.touched_by.span)
            raise fault("CU262", f"no wgmma_fence between an access of `{self.name}` and this gemm", stmt, note)


@dataclass(slots=True, eq=False)
class RowTile:
    """The running state of the rows of one query tile."""

    stmt: Stmt | None
    started: Work | None = None
    scores: Scores | None = None  # the last tile that `row_update` took in
    seen: list[Content] = field(default_factory=list)
    update: Stmt | None = None

    def begin(self, work: Work) -> None:
        self.started, self.scores, self.update = work, None, None
        self.seen = []

    def needs_start(self, stmt: Stmt) -> None:
        if self.started is None:
            notes = (Note("declared here", self.stmt.span),) if self.stmt is not None else ()
            raise fault("CU255", "the row state is read before `row_init`", stmt, *notes)


def as_tile(value: Value, stmt: Stmt) -> WarpTile:
    if not isinstance(value, WarpTile):
        raise fault("CU301", "this operand is not a register tile", stmt)
    return value


def as_rows(value: Value, stmt: Stmt) -> RowTile:
    if not isinstance(value, RowTile):
        raise fault("CU301", "this operand is not a row state", stmt)
    return value
