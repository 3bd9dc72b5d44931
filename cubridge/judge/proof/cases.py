"""Proofs by cases: a proof is run again and again, and each time that it asks how something is, it is told another case.

A question is a key with its answers; asked twice in one run, it has one answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cubridge.judge.proof.unproved import Unproved

T = TypeVar("T")
MAX_RUNS: Final = 512


@dataclass(slots=True)
class _Choice:
    key: Hashable
    answers: tuple[int, ...]
    taken: int = 0


@dataclass(slots=True)
class Cases:
    """The answers of the present run, in the order in which they were asked for."""

    choices: list[_Choice] = field(default_factory=list[_Choice])
    _asked: int = 0

    def answer(self, key: Hashable, answers: tuple[int, ...]) -> int:
        """The answer of this run."""
        for choice in self.choices[: self._asked]:
            if choice.key == key:
                return choice.answers[choice.taken]
        if self._asked == len(self.choices):
            self.choices.append(_Choice(key, answers))
        choice = self.choices[self._asked]
        assert choice.key == key, "a proof asks the same in each run"
        self._asked += 1
        return choice.answers[choice.taken]

    def taken(self) -> Iterator[tuple[Hashable, int]]:
        """What was asked in this run, and how it was answered."""
        return ((c.key, c.answers[c.taken]) for c in self.choices[: self._asked])

    def runs(self, run: Callable[[], T]) -> Iterator[T]:
        """`run` in every case. Errors: Unproved where there are too many."""
        self.choices.clear()
        for _ in range(MAX_RUNS):
            self._asked = 0
            yield run()
            del self.choices[self._asked :]
            while self.choices and self.choices[-1].taken + 1 == len(self.choices[-1].answers):
                self.choices.pop()
            if not self.choices:
                return
            self.choices[-1].taken += 1
        raise Unproved("there are too many cases")
