"""Interleaved medians, with a clock that a test winds itself."""

from __future__ import annotations

from collections.abc import Callable

from cubridge.backend.gpu.timing import interleave


class FakeClock:
    """`costs`: milliseconds of each candidate, which is a function that returns its name. A sample now and then is late."""

    def __init__(self, **costs: float) -> None:
        self.costs = costs
        self.order: list[str] = []

    def __call__(self, work: Callable[[], object], count: int) -> float:
        name = str(work())
        self.order.append(name)
        late = 50.0 if len(self.order) % 17 == 0 else 0.0
        return self.costs[name] * count + late


def test_the_median_ignores_a_late_sample() -> None:
    clock = FakeClock(a=40.0, b=30.0)
    timed = interleave({"a": lambda: "a", "b": lambda: "b"}, clock, rounds=9)
    assert timed["a"].median == 40.0 and timed["b"].median == 30.0
    assert timed["a"].least == 40.0 and max(timed["a"].most, timed["b"].most) > 40.0


def test_every_round_times_each_candidate_once_in_changing_order() -> None:
    clock = FakeClock(a=30.0, b=30.0, c=30.0)
    interleave({n: (lambda n=n: n) for n in "abc"}, clock, rounds=20)
    rounds = [tuple(clock.order[x : x + 3]) for x in range(6, len(clock.order), 3)]
    assert len(rounds) == 20 and all(sorted(r) == ["a", "b", "c"] for r in rounds) and len(set(rounds)) > 3


def test_short_work_is_repeated_within_a_sample() -> None:
    clock = FakeClock(a=2.5)
    counts: list[int] = []

    def counting(work: Callable[[], object], count: int) -> float:
        counts.append(count)
        return clock(work, count)

    assert interleave({"a": lambda: "a"}, counting, rounds=3)["a"].median == 2.5
    assert counts == [1, 1, 8, 8, 8]


def test_a_candidate_that_raises_is_reported_beside_the_others() -> None:
    def broken() -> str:
        raise RuntimeError("no backend\nsecond line")

    timed = interleave({"a": lambda: "a", "broken": broken}, FakeClock(a=1.0))
    assert timed["a"].fault is None and timed["broken"].fault == "RuntimeError: no backend"
    assert timed["broken"].median != timed["broken"].median


def test_a_candidate_that_raises_later_is_left_out() -> None:
    calls: list[None] = []

    def tired() -> str:
        calls.append(None)
        if len(calls) > 3:
            raise MemoryError("no more")
        return "tired"

    timed = interleave({"a": lambda: "a", "tired": tired}, FakeClock(a=10.0, tired=10.0), rounds=5)
    assert timed["tired"].fault == "MemoryError: no more" and timed["a"].median == 10.0
    assert len(calls) == 4
