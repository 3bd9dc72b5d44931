"""What was proved before."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cubridge.judge.memory import PACKAGE, Memory

PROOFS: Final = Memory(
    "proofs",
    (*Path(__file__).parent.glob("*.py"), *(PACKAGE / "ir").rglob("*.py"), PACKAGE / "verify" / "ranges.py"),
    "z3-solver",
)
