"""Declarations of PTX: registers, and variables with their places in each memory space."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cubridge.backend.ptx.program import Space, Variable

TYPE_BYTES: Final = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
    "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "pred": 0,
}  # fmt: skip
_REGISTERS: Final = re.compile(r"\.reg\s+\.(\w+)\s+(.+)")
_NAME: Final = re.compile(r"(%?[\w$]+)(?:<(\d{1,9})>)?$")
_VARIABLE: Final = re.compile(
    r"(?:\.(?:extern|visible|weak|common)\s+)*\.(global|const|shared|local|param)\s+(?:\.align\s+(\d{1,9})\s+)?(?:\.attribute\([^)]*\)\s*)?"
    r"\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?([\w$%]+)((?:\[\d{0,12}\])*)\s*(?:=\s*(.*))?$",
    re.DOTALL,
)
_MOST_REGISTERS: Final = 1 << 17
_MOST_BYTES: Final = {Space.GLOBAL: 1 << 26, Space.SHARED: 1 << 30, Space.LOCAL: 1 << 30, Space.PARAM: 1 << 16}
"""Of all variables together; a launch has bounds of its own."""
_MOST_ALIGN: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Declared:
    """A variable before it has a place. `data`: its first bytes."""

    name: str
    space: Space
    bytes: int
    align: int
    unsized: bool
    data: bytes


def is_register(directive: str) -> bool:
    return directive.startswith(".reg")


def is_variable(directive: str) -> bool:
    return _VARIABLE.match(directive) is not None


def declared_registers(directive: str) -> tuple[int, list[str]] | None:
    """Bytes a lane (small ones take 4, predicates 0) and the names; None if this is no such declaration."""
    found = _REGISTERS.match(directive)
    if found is None or found[1] not in TYPE_BYTES:
        return None
    names: list[str] = []
    for part in found[2].split(","):
        name = _NAME.match(part.strip())
        if name is None or int(name[2] or 0) > _MOST_REGISTERS:
            return None
        names += [name[1]] if name[2] is None else [f"{name[1]}{n}" for n in range(int(name[2]))]
    width = TYPE_BYTES[found[1]]
    return (width and max(4, width)), names


def declared_variable(directive: str) -> Declared | None:
    """None if this is no declaration that is understood."""
    found = _VARIABLE.match(directive)
    if found is None or found[3] not in TYPE_BYTES:
        return None
    space, align, kind, name, extents, initial = found.groups()
    width, count = TYPE_BYTES[kind], 1
    for extent in re.findall(r"\[(\d*)\]", extents):
        count *= int(extent or 0)
    alignment = width if align is None else int(align)
    if width == 0 or not 0 < alignment <= _MOST_ALIGN or alignment & (alignment - 1):
        return None
    data = b"" if initial is None else _initial(initial, width)
    return None if data is None else Declared(name, Space(space), width * count, alignment, "[]" in extents, data)


def _initial(text: str, width: int) -> bytes | None:
    """The bytes of `5`, `0f3F800000` or `{1, 2}`; None for addresses and other forms."""
    data = b""
    for item in filter(None, (x.strip() for x in text.strip().strip("{}").split(","))):
        if found := re.fullmatch(r"0[fFdD]([0-9a-fA-F]{1,16})", item):
            number = int(found[1], 16)
        elif re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]{1,16}|0|[1-9]\d{0,19})U?", item):
            number = int(item.rstrip("U"), 0)
        else:
            return None
        data += (number & (1 << 8 * width) - 1).to_bytes(width, "little")
    return data


@dataclass(slots=True)
class Layout:
    """Gives variables their offsets. `data`: contents of the global and constant ones, which lie together."""

    ends: dict[Space, int] = field(default_factory=lambda: dict.fromkeys(Space, 0))
    data: bytearray = field(default_factory=bytearray)

    def place(self, declared: Declared) -> Variable | None:
        """None where there is no room."""
        space = Space.GLOBAL if declared.space is Space.CONST else declared.space
        offset = -(-self.ends[space] // declared.align) * declared.align
        if offset + declared.bytes > _MOST_BYTES[space]:
            return None
        if not declared.unsized or space is not Space.SHARED:
            self.ends[space] = offset + declared.bytes
        if space is Space.GLOBAL:
            self.data.extend(bytes(offset - len(self.data)))
            self.data.extend(declared.data.ljust(declared.bytes, b"\0")[: declared.bytes])
        return Variable(declared.name, declared.space, offset, declared.bytes, declared.unsized)

    @property
    def shared_bytes(self) -> int:
        return self.ends[Space.SHARED]
