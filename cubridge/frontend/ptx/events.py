"""From the steps of a block to what it does: copies into shared memory, reads of them, stores, and what orders them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from cubridge.frontend.ptx.copied import Copied, give_past, is_stale
from cubridge.frontend.ptx.floats import is_float
from cubridge.frontend.ptx.layout import Layout, Place
from cubridge.frontend.ptx.reach import GRANULE, is_shared, lanes_of, moves_of, offset_of
from cubridge.frontend.ptx.slices import Key, Slices
from cubridge.frontend.ptx.values import element_of, is_zero
from cubridge.ir.block_events import Act, Interval, TileOf, Turn
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import Span
from cubridge.ir.trace import Number, Operation, Register, Step

_UNKNOWN: Final = (
    "atom", "red.", "mbarrier", "wgmma", "cp.async.bulk", "cp.async.wait_all", "fence", "barrier.cluster", "setmaxnreg", "stmatrix",
    "bar.arrive", "bar.red", "barrier.arrive", "st.async", "mapa",
)  # fmt: skip
"""Instructions that order or move and that no statement is made of yet."""


@dataclass(frozen=True, slots=True)
class At:
    """Where something happens in warp 0, or in the first warp that does it: the step, for the order of statements."""

    step: int
    act: Act | Turn


@dataclass(frozen=True, slots=True)
class Events:
    """`order`: acts and turns as the first warp has them. `turns`: by warp, the steps of its turns."""

    intervals: tuple[Interval, ...]
    order: tuple[At, ...]
    turns: tuple[tuple[int, ...], ...]


def read_events(slices: Slices, layout: Layout) -> Events:
    """Errors: CU851 for what has no statement; CU853 where warps differ, or what is moved is no tile."""
    return _Reader(slices, layout).read()


class _Reader:
    def __init__(self, slices: Slices, layout: Layout) -> None:
        self.slices = slices
        self.layout = layout
        self.trace = slices.reach.trace
        self.turns: dict[int, list[Turn]] = defaultdict(list)
        self.turn_steps: list[list[int]] = [[] for _ in range(self.trace.warps)]
        self.copies: dict[tuple[int, str], Copied] = {}
        self.by_step: dict[int, Copied] = {}
        self.stores: dict[tuple[int, str], tuple[Span, set[Place]]] = {}
        self.first: dict[tuple[str, int, str], tuple[int, int]] = {}
        self.zeros: list[tuple[int, int, Span, list[int]]] = []
        self.lines: dict[Span, str] = {}
        self.counted: list[int] = []
        self.staged: set[int] = set()
        """Stores into shared memory of what the kernel computes."""
        self.last_read: dict[int, int] = {}
        """By warp, the last step that reads a copied tile."""
        self.loose: dict[int, dict[int, Operation]] = defaultdict(dict)
        """By interval, what is read that no copy of its tile has filled."""

    def read(self) -> Events:
        for index, step in enumerate(self.trace.steps):
            self._step(index, step, self.trace.code[step.at])
        self._check_turns()
        self._give_zeros()
        for index, step in enumerate(self.trace.steps):
            name = self.trace.code[step.at].name
            if name.startswith(("ld.", "ldmatrix")):
                self._reads(index, step, name)
        self._check_staged()
        for interval, granules in self.loose.items():
            give_past(self.copies.values(), self.layout, interval, granules)
        return self._events()

    # ---- steps ----

    def _step(self, index: int, step: Step, operation: Operation) -> None:
        name = operation.name
        if name.startswith(_UNKNOWN):
            self._refuse(operation, f"`{name}` has no statement in CuIR that a run is read as")
        if name.startswith(("bar.sync", "barrier.sync")):
            if operation.sources[0] != Number(0, 4):
                self._refuse(operation, "a barrier of some threads of the block has no statement that a run is read as")
            self._turn(index, step, Turn("block_sync", 0, operation.span))
        elif name == "cp.async.commit_group":
            self._turn(index, step, Turn("commit", 0, operation.span))
        elif name == "cp.async.wait_group":
            count = operation.sources[0]
            self._turn(index, step, Turn("wait_group", count.bits if isinstance(count, Number) else 0, operation.span))
        elif name.startswith("cp.async."):
            self._copy_async(index, step, operation)
        elif name.startswith("st."):
            self._store(index, step, operation)

    def _turn(self, index: int, step: Step, turn: Turn) -> None:
        self.turns[step.warp].append(turn)
        self.turn_steps[step.warp].append(index)

    def _interval(self, step: Step) -> int:
        return len(self.turns[step.warp])

    def _copy_async(self, index: int, step: Step, operation: Operation) -> None:
        for lane in lanes_of(step.mask):
            target = offset_of(int(step.addresses[0][lane]))
            window = self.layout.window(int(step.addresses[1][lane]))
            found = [self.slices.reach.shared(target + at, index + 1) for at in range(0, 16, GRANULE)]
            values = [self.slices.granule(x, operation.span) for x in found]
            places = [None if is_zero(v) else self._place(v, operation) for v in values]
            copied = self._copied(index, step, window or "", True, operation.span)
            copied.granules.update(zip(range(target, target + 16, GRANULE), places, strict=True))

    def _store(self, index: int, step: Step, operation: Operation) -> None:
        moves = moves_of(operation.name)
        for lane in lanes_of(step.mask):
            address = int(step.addresses[0][lane])
            if is_shared(operation.name, address):
                self._store_shared(index, step, operation, lane, offset_of(address), moves.total)
            elif (window := self.layout.window(address)) is not None:
                key = (self._interval(step), window)
                _, places = self.stores.setdefault(key, (operation.span, set()))
                size = self.layout.bytes[window]
                places |= {self.layout.place(window, address + at) for at in range(0, moves.total, size)}
                self._seen("store", key[0], window, index, step)

    def _store_shared(self, index: int, step: Step, operation: Operation, lane: int, offset: int, total: int) -> None:
        if self._is_computed(index, step, operation, lane):
            self.staged.add(index)
            return
        granules = range(offset, offset + total, GRANULE)
        values = [self.slices.granule(self.slices.reach.shared(at, index + 1), operation.span) for at in granules]
        if all(map(is_zero, values)):
            self.zeros.append((index, self._interval(step), operation.span, list(granules)))
            return
        for at, value in zip(granules, values, strict=True):
            place = self._place(value, operation)
            copied = self._copied(index, step, place.tensor, False, operation.span)
            copied.granules[at] = place

    def _is_computed(self, index: int, step: Step, operation: Operation, lane: int) -> bool:
        """Does a store put down what instructions of floats made."""
        roots = [
            self.slices.root(index, source, lane, step.warp)
            for source in operation.sources[1:]
            if isinstance(source, Register)
        ]
        return any(root is not None and self._is_made_of_floats(root) for root in roots)

    def _is_made_of_floats(self, root: Key) -> bool:
        name = self.trace.code[self.trace.steps[root[0]].at].name
        return is_float(name) and not self.slices.is_of_launch(root)

    def _place(self, value: object, operation: Operation) -> Place:
        element = element_of(value)  # pyright: ignore[reportArgumentType]
        if element is None:
            self._refuse(
                operation, "shared memory takes values that the kernel computes, for which CuIR has no statement"
            )
        return self.layout.place_of(element.tensor, element.offset)

    def _copied(self, index: int, step: Step, tensor: str, asynchronous: bool, span: Span) -> Copied:
        key = (self._interval(step), tensor)
        if key not in self.copies:
            self.copies[key] = Copied(tensor, key[0], asynchronous, span)
        self.by_step[index] = self.copies[key]
        self.lines[span] = tensor
        self._seen("copy", key[0], tensor, index, step)
        return self.copies[key]

    def _seen(self, kind: str, interval: int, tensor: str, index: int, step: Step) -> None:
        key = (kind, interval, tensor)
        self.first[key] = min(self.first.get(key, (step.warp, index)), (step.warp, index))

    def _give_zeros(self) -> None:
        """Rows past the end that are filled with zeros: of the one tensor that is copied then, or that the same line copies."""
        for index, interval, span, granules in self.zeros:
            now = [copied for (at, _), copied in self.copies.items() if at == interval]
            copied = self.copies.get((interval, self.lines.get(span, ""))) or (now[0] if len(now) == 1 else None)
            if copied is None:
                raise CuError(Diagnostic("CU851", "shared memory is filled with zeros that belong to no copy", span))
            self.by_step[index] = copied
            copied.granules.update(dict.fromkeys(granules))

    def _reads(self, index: int, step: Step, name: str) -> None:
        operation = self.trace.code[step.at]
        size = 16 if name.startswith("ldmatrix") else moves_of(name).total
        rows = 8 * len(operation.results) if name.startswith("ldmatrix") else 32
        lanes = [lane for lane in lanes_of(step.mask) if lane < rows]
        offsets = {offset_of(a) for a in map(int, step.addresses[0][lanes]) if is_shared(name, a)}
        interval = self.counted[index]
        for at in {o + part for o in offsets for part in range(0, size, GRANULE)}:
            written = self.slices.reach.shared(at, index)
            if written is not None and written.step in self.staged:
                self._read_staged(index, written.step, name)
                continue
            copied = None if written is None else self.by_step.get(written.step)
            if copied is None or is_stale(self.copies.values(), copied, at, interval):
                self.loose[interval][at] = operation
                continue
            self.last_read[step.warp] = index
            copied.read[interval].add(at)
            copied.read_span.setdefault(interval, operation.span)
            self._seen("read", interval, copied.tensor, index, step)

    # ---- shared memory that is no whole tile ----

    def _read_staged(self, index: int, written: int, name: str) -> None:
        """Computed values are read again by plain loads alone."""
        if name.startswith("ldmatrix"):
            self._refuse_computed(written)

    def _check_staged(self) -> None:
        """They are put down when all tiles have been read."""
        for index in sorted(self.staged):
            if index < self.last_read.get(self.trace.steps[index].warp, -1):
                self._refuse_computed(index)

    def _refuse_computed(self, index: int) -> NoReturn:
        message = "shared memory takes values that the kernel computes, for which CuIR has no statement"
        self._refuse(self.trace.code[self.trace.steps[index].at], message)

    # ---- the whole block ----

    def _check_turns(self) -> None:
        """All warps pass the same turns."""
        turns = self.turns[0]
        for warp in range(1, self.trace.warps):
            if self.turns[warp] != turns:
                span = turns[0].span if turns else self.trace.code[0].span
                raise CuError(Diagnostic("CU853", f"warp {warp} passes other waits and barriers than warp 0", span))
        count: dict[int, int] = defaultdict(int)
        for step in self.trace.steps:
            self.counted.append(count[step.warp])
            name = self.trace.code[step.at].name
            if name.startswith(("bar.sync", "barrier.sync", "cp.async.commit_group", "cp.async.wait_group")):
                count[step.warp] += 1

    def _events(self) -> Events:
        acts: dict[int, list[tuple[int, Act]]] = defaultdict(list)
        for copied in self.copies.values():
            tile = self._tile(copied)
            place = min(copied.granules)
            kind = "copy_async" if copied.asynchronous else "copy"
            at = self.first["copy", copied.interval, copied.tensor][1]
            acts[copied.interval].append((at, Act(kind, tile, place, copied.span)))
            for interval, granules in copied.read.items():
                if granules != copied.whole:
                    message = f"{len(granules)} of {len(copied.whole)} elements of a tile of `{copied.tensor}` are read"
                    raise CuError(Diagnostic("CU853", message, copied.read_span[interval]))
                at = self.first["read", interval, copied.tensor][1]
                acts[interval].append((at, Act("read", tile, place, copied.read_span[interval])))
        for (interval, tensor), (span, places) in self.stores.items():
            at = self.first["store", interval, tensor][1]
            acts[interval].append((at, Act("store", self._rows(tensor, places, len(places), span), 0, span)))
        return self._put_together(acts)

    def _put_together(self, acts: Mapping[int, list[tuple[int, Act]]]) -> Events:
        intervals: list[Interval] = []
        order: list[At] = []
        ends: list[Turn | None] = [*self.turns[0], None]
        for number, end in enumerate(ends):
            mine = sorted(acts.get(number, ()))
            intervals.append(Interval(tuple(act for _, act in mine), end))
            order += [At(at, act) for at, act in mine]
            if end is not None:
                order.append(At(self.turn_steps[0][number], end))
        return Events(tuple(intervals), tuple(order), tuple(map(tuple, self.turn_steps)))

    def _tile(self, copied: Copied) -> TileOf:
        places = {p for p in copied.granules.values() if p is not None}
        return self._rows(copied.tensor, places, len(copied.whole), copied.span)

    def _rows(self, tensor: str, places: set[Place], size: int, span: Span) -> TileOf:
        """Whole rows of one head. `size`: elements, those past the end with them."""
        width, length = self.layout.width(tensor), self.layout.length(tensor)
        rows = sorted({p.row for p in places})
        heads = {(p.b, p.h) for p in places}
        whole = (
            len(places) == len(rows) * width and len(heads) == 1 and rows == list(range(rows[0], rows[0] + len(rows)))
        )
        total = size // width if rows else 0
        if not whole or size % width or len(rows) != min(total, length - rows[0]):
            raise CuError(
                Diagnostic("CU853", f"what is moved of `{tensor}` here is no tile of whole rows of one head", span)
            )
        b, h = heads.pop()
        return TileOf(tensor, b, h, rows[0], total, len(rows))

    def _refuse(self, operation: Operation, message: str) -> NoReturn:
        raise CuError(Diagnostic("CU851", message, operation.span))
