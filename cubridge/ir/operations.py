"""What the row of an operation says beside syntax: the objects that it writes, what it shares with other operations that is no
object of the text, and how it takes part in the order between threads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto


class Order(Flag):
    """How a statement takes part in order between threads."""

    NONE = 0
    MEMORY = auto()  # touches shared memory
    ACQUIRE = auto()
    RELEASE = auto()
    CONTROL = auto()  # leaves a block


@dataclass(frozen=True, slots=True)
class Effect:
    """An operation reads what its operands name. `writes`: the fields whose objects it also writes.

    `needs`, `changes`: shared state that it reads and writes: `copies`, the open cp.async group; `bulk copies`, the open bulk
    group; `wgmma`, the open wgmma group; `registers`, all register tiles, as far as wgmma must be ordered with them;
    `initialisation` of barriers; `register budget`."""

    writes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    order: Order = Order.NONE
