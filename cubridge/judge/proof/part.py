"""What is said of one part of a kernel."""

from __future__ import annotations

from collections.abc import Iterable
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

    def __str__(self) -> str:
        return f"{self.name}: {self.said()}"

    def said(self, points: int = 0) -> str:
        """`points`: at how many points of long problems the kernel was compared."""
        if self.proved:
            return "proved"
        if self.refuted:
            return f"wrong, because {self.because}, at {self.counterexample}"
        return f"tested{f' at {points} points' if points else ''}, because {self.because}"


def unproved(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Those without a proof."""
    return tuple(p for p in parts if not p.proved)


class Wrong(Exception):
    """A part that is not the reference's."""

    def __init__(self, message: str, point: Point) -> None:
        super().__init__(message)
        self.message = message
        self.point = point
