"""Shared memory in the order engine: slots with their last copies and reads, and scalars. Races and lost copies end here."""

from __future__ import annotations

from dataclasses import dataclass, field

from cubridge.engine.core.operands import Value, fault
from cubridge.engine.order.clock import Access, Clock
from cubridge.engine.order.work import named
from cubridge.ir.diagnostics import Note
from cubridge.ir.nodes import Stmt

WHOLE = -1
"""The part of a slot that a TMA copy writes; a cp.async copy, and stores, write one part per warp."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a copy brought: `rows` rows from `row` on of a view of a parameter."""

    param: str
    view: tuple[Value, ...]
    row: Value
    rows: int

    def __str__(self) -> str:
        return f"`{self.param}` at {', '.join(map(named, self.view))}, from row {named(self.row)}"


@dataclass(slots=True)
class Part:
    write: Access
    content: Content
    read: bool = False
    stored: bool = False  # by the threads, not by a copy


@dataclass(slots=True)
class Slot:
    """One tile of shared memory: the last copies into it, and its reads by component of the clock."""

    label: str
    parts: dict[int, Part] = field(default_factory=dict)
    writers: int = 0  # warps that store to it together; 0: copies fill it
    turns: dict[int, int] = field(default_factory=dict)  # how often each of them has
    reads: dict[int, Access] = field(default_factory=dict)

    def overwrite(self, part: int, write: Access, content: Content, clock: Clock, stored: bool = False) -> None:
        """A copy or a store of `part` starts, issued by an agent with `clock`."""
        old = self.parts.values() if part == WHOLE else [p for x, p in self.parts.items() if x in (part, WHOLE)]
        for before in old:
            if not before.write.before(clock):
                note = Note(
                    f"the copy that {before.write.who} started here may still be on its way", before.write.stmt.span
                )
                raise fault("CU251", f"two copies into `{self.label}` at once", write.stmt, note)
            if not before.read:
                note = Note("nobody has read what this brought", before.write.stmt.span)
                raise fault("CU253", f"`{self.label}` is overwritten before anybody reads it", write.stmt, note)
        for read in self.reads.values():
            if not read.before(clock):
                note = Note(f"{read.who} may still be reading here", read.stmt.span)
                raise fault("CU251", f"`{self.label}` is overwritten while it may still be read", write.stmt, note)
        if part == WHOLE:
            self.parts.clear()
        else:
            self.parts.pop(WHOLE, None)
        self.parts[part] = Part(write, content, stored=stored)

    def read(self, access: Access, clock: Clock, parts: int) -> Content:
        """`access` reads the whole slot; gives what is in it."""
        if not self.parts:
            raise fault("CU252", f"`{self.label}` is read, but nothing has been written to it", access.stmt)
        for part in self.parts.values():
            if not part.write.before(clock):
                note = Note(
                    f"{part.write.who} started this copy; no wait orders it before the read", part.write.stmt.span
                )
                raise fault(
                    "CU251",
                    f"{access.who} reads `{self.label}` while a copy into it may be on its way",
                    access.stmt,
                    note,
                )
        first = next(iter(self.parts.values()))
        if WHOLE not in self.parts and len(self.parts) != parts:
            note = Note("not every warp has started its part of this copy", first.write.stmt.span)
            raise fault(
                "CU251", f"{access.who} reads `{self.label}` while a copy into it may be on its way", access.stmt, note
            )
        for part in self.parts.values():
            part.read = True
            if part.content != first.content:
                message = f"`{self.label}` holds parts of two copies: {first.content}, and {part.content}"
                raise fault("CU251", message, access.stmt, Note("the second copy", part.write.stmt.span))
        self.reads[access.component] = access
        return first.content


@dataclass(slots=True)
class SharedScalar:
    """One scalar of shared memory."""

    label: str
    value: Value = None
    write: Access | None = None
    reads: dict[int, Access] = field(default_factory=dict)

    def load(self, access: Access, clock: Clock) -> Value:
        if self.write is None:
            raise fault("CU252", f"`{self.label}` is read before anybody has written it", access.stmt)
        if not self.write.before(clock):
            note = Note(f"{self.write.who} writes it here", self.write.stmt.span)
            raise fault("CU251", f"{access.who} reads `{self.label}`, unordered with its write", access.stmt, note)
        self.reads[access.component] = access
        return self.value

    def store(self, access: Access, clock: Clock, value: Value) -> None:
        for other in (self.write, *self.reads.values()):
            if other is not None and not other.before(clock):
                note = Note(f"{other.who} may still be here", other.stmt.span)
                raise fault("CU251", f"`{self.label}` is overwritten, unordered with another access", access.stmt, note)
        self.write, self.value = access, value
        self.reads.clear()


def unread(slots: dict[tuple[str, int], Slot]) -> tuple[str, Stmt] | None:
    """A slot whose last copy nobody read, with that copy."""
    for slot in slots.values():
        for part in slot.parts.values():
            if not part.read:
                return slot.label, part.write.stmt
    return None
