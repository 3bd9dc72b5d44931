"""What a suite shows: pass@k by the unbiased estimator, speed, cost. The same outcomes give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb, exp, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cubridge.driver.suites.suite import Method, Suite


@dataclass(frozen=True, slots=True)
class Outcome:
    """One trial. `reason`: codes of what it was refused for. `broken`: no fault of the method, such as a server that is down.
    `speed`: TFLOP/s over visible elements. `cost_usd`: None where no price is known."""

    method: str
    variant: str
    length: int
    sample: int
    accepted: bool
    verdict: str
    reason: str
    broken: bool
    speed: float | None
    replies: int
    tokens: int
    cost_usd: float | None

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.method, self.variant, self.length, self.sample


@dataclass(frozen=True, slots=True)
class Problem:
    """A method on a variant at a length. `passes`: pass@k for each k; `first`: accepted at the first answer; `speed`: the best."""

    method: str
    variant: str
    length: int
    samples: int
    accepted: int
    first: int
    broken: int
    passes: tuple[float | None, ...]
    speed: float | None
    tokens: int
    cost_usd: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A method over all problems: means of pass@k, geometric mean of the speeds of problems that have one."""

    method: str
    problems: int
    solved: int
    passes: tuple[float | None, ...]
    speed: float | None
    tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class Results:
    suite: str
    kernel: str
    level: str
    ks: tuple[int, ...]
    problems: tuple[Problem, ...]
    methods: tuple[Summary, ...]

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def to_text(self) -> str:
        passes = [f"pass@{k}" for k in self.ks]
        problems = [
            [p.method, p.variant, str(p.length), f"{p.accepted}/{p.samples}", f"{p.first}/{p.samples}", *map(_share, p.passes),
             _speed(p.speed), str(p.tokens), _cost(p.cost_usd), "; ".join(p.reasons) + " (broken)" * (p.broken > 0)]
            for p in self.problems
        ]  # fmt: skip
        methods = [
            [
                m.method,
                f"{m.solved}/{m.problems}",
                *map(_share, m.passes),
                _speed(m.speed),
                str(m.tokens),
                _cost(m.cost_usd),
            ]
            for m in self.methods
        ]
        head = [
            "method",
            "variant",
            "length",
            "accepted",
            "at once",
            *passes,
            "TFLOP/s",
            "tokens",
            "cost",
            "refused for",
        ]
        means = ["method", "solved", *passes, "TFLOP/s, geometric mean", "tokens", "cost"]
        title = f"# {self.suite}: {self.kernel}, accepted where checked as {self.level}"
        return "\n\n".join((title, _table(means, methods), _table(head, problems))) + "\n"


def pass_at_k(samples: int, accepted: int, k: int) -> float | None:
    """The chance that one of k samples is accepted, estimated without bias from more: 1 - C(n - c, k) / C(n, k).
    None for fewer samples than k.    Source: Chen et al. 2021, arXiv:2107.03374."""
    return None if samples < k else 1.0 - comb(samples - accepted, k) / comb(samples, k)


def make_results(suite: Suite, outcomes: Sequence[Outcome]) -> Results:
    problems = tuple(
        _problem(suite, method, variant.name, length, outcomes)
        for method in suite.methods
        for variant in suite.variants
        for length in suite.lengths
    )
    summaries = tuple(
        _summary(m.name, [p for p in problems if p.method == m.name], len(suite.ks)) for m in suite.methods
    )
    return Results(suite.name, suite.kernel, suite.level, suite.ks, problems, summaries)


def _problem(suite: Suite, method: Method, variant: str, length: int, outcomes: Sequence[Outcome]) -> Problem:
    mine = [o for o in outcomes if (o.method, o.variant, o.length) == (method.name, variant, length)]
    accepted = [o for o in mine if o.accepted]
    rules = method.model.is_rules  # one sample stands for any number
    passes = tuple(pass_at_k(len(mine), len(accepted), 1 if rules else k) for k in suite.ks)
    speeds = [o.speed for o in accepted if o.speed is not None]
    return Problem(
        method=method.name,
        variant=variant,
        length=length,
        samples=len(mine),
        accepted=len(accepted),
        first=sum(o.replies <= 1 for o in accepted),
        broken=sum(o.broken for o in mine),
        passes=passes,
        speed=max(speeds, default=None),
        tokens=sum(o.tokens for o in mine),
        cost_usd=_total([o.cost_usd for o in mine]),
        reasons=tuple(dict.fromkeys(o.reason for o in mine if o.reason)),
    )


def _summary(method: str, problems: Sequence[Problem], ks: int) -> Summary:
    speeds = [p.speed for p in problems if p.speed]
    return Summary(
        method=method,
        problems=len(problems),
        solved=sum(p.accepted > 0 for p in problems),
        passes=tuple(_mean([p.passes[x] for p in problems]) for x in range(ks)),
        speed=exp(sum(log(s) for s in speeds) / len(speeds)) if speeds else None,
        tokens=sum(p.tokens for p in problems),
        cost_usd=_total([p.cost_usd for p in problems]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _total(costs: Sequence[float | None]) -> float | None:
    known = [c for c in costs if c is not None]
    return sum(known) if known else None


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _speed(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _cost(value: float | None) -> str:
    return "" if value is None else f"${value:.4f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
