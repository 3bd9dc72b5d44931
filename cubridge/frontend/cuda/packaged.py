"""The headers that come with the package: what they say is known, what lies beside a kernel is not."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.ir.source import SourceFile

PACKAGED: Final = Path(__file__).parents[2] / "kernels"
EMULATOR: Final = "emulate/"
"""Where the meaning of wrappers on a CPU is; these headers are not lifted."""

EMULATED_MACROS: Final = {
    "emulate/device.h": (
        "DEVICE __device__ __forceinline__",
        'KERNEL(threads, blocks_per_sm) extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm)',
        "SHARED_TILES(type, name) type& name",
    )
}
"""What the emulator's headers define for texts, as the tree of the text wants it."""

_CALLED: Final = ("device.h", "calls.h", "ptx_sm80.h", "ptx_sm90a.h")
"""Those of the emulator that a text may call."""
_TRIVIA: Final = re.compile(
    r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*include.*?$', re.DOTALL | re.MULTILINE
)
_WORD: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


def is_packaged(file: SourceFile) -> bool:
    """Is this the text of a packaged header, byte for byte?"""
    return file.data == _packaged(file.name)


@cache
def _packaged(name: str) -> bytes | None:
    path = (PACKAGED / name).resolve()
    return path.read_bytes() if path.is_relative_to(PACKAGED.resolve()) and path.is_file() else None


@cache
def emulator_words() -> frozenset[str]:
    """Names that the emulator gives to texts."""
    texts = ((PACKAGED / EMULATOR / name).read_text(encoding="utf-8") for name in _CALLED)
    return frozenset(w for text in texts for w in words(text)) - {"std"}


def words(text: str) -> frozenset[str]:
    """The names in a text, without its comments and strings."""
    return frozenset(_WORD.findall(_TRIVIA.sub(" ", text)))
