"""What is said of one part of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cubridge.judge.proof.integers import Point

PARTS: Final = ("mask", "score", "weight", "rows", "finalize", "LSE", "captures", "keys", "schedule")


@dataclass(frozen=True, slots=True)
class Part:
    """`because`: why there is no proof; "" where there is. `counterexample`: where the part is not the reference's."""

    name: str
    because: str = ""
    counterexample: str = ""

    @property
    def proved(self) -> bool:
        return not self.because

    @property
    def refuted(self) -> bool:
        return bool(self.counterexample)


class Wrong(Exception):
    """A part that is not the reference's."""

    def __init__(self, message: str, point: Point) -> None:
        super().__init__(message)
        self.message = message
        self.point = point
