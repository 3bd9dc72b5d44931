"""What was proved before."""

from __future__ import annotations

from typing import Final

from cubridge.judge.memory import Memory

PROOFS: Final = Memory("proofs", ("judge/proof/*.py", "ir/**/*.py", "verify/ranges.py"), "z3-solver")
