"""A picture of few colours as PNG: a byte a pixel, which indexes a palette."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

PALETTE: Final = ((0, 0, 0, 0), (86, 140, 214, 150), (45, 104, 190, 255))
"""Of hidden, partly visible and visible elements: red, green, blue, opacity. Hidden ones show the page."""


def png(rows: Sequence[bytes]) -> str:
    """In base64. `rows`: of one length each, with indices of `PALETTE`."""
    width = len(rows[0]) if rows else 0
    head = struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0)
    colours = bytes(x for *rgb, _ in PALETTE for x in rgb)
    opacity = bytes(a for *_, a in PALETTE)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    parts = ((b"IHDR", head), (b"PLTE", colours), (b"tRNS", opacity), (b"IDAT", pixels), (b"IEND", b""))
    return b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
