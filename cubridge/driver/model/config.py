"""Settings of models, from options of the command line or from TOML; a key that is not known is an error."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn, cast

from cubridge.driver.model.policy import Accept
from cubridge.driver.model.use import Approach, Lowering, ModelUse
from cubridge.driver.report import RULES
from cubridge.driver.sandbox.process import Sandbox
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.budget import Budget
from cubridge.llm.choose import choose_provider
from cubridge.llm.provider import Price
from cubridge.llm.replay import Recorder
from cubridge.llm.transcript import Transcript

CODE: Final = "CU720"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """As written. `proposer`: "rules" or a provider; `timeout`: seconds for a reply; `base_url`: another server of the same API."""

    proposer: str = RULES
    lowering: Lowering = Lowering.RULES
    approach: Approach = Approach.CUBRIDGE
    allow_cuda: bool = False
    accept: frozenset[Accept] = frozenset()
    budget: Budget = field(default_factory=Budget)
    timeout: float = 600.0
    base_url: str | None = None
    price: Price | None = None

    @property
    def is_rules(self) -> bool:
        return self.proposer == RULES

    def use(self, transcript: Path | None, record: Path | None, sandbox: Sandbox | None = None) -> ModelUse | None:
        """None for the rules alone. Errors: CU706, CU717 (exit code 2)."""
        if self.is_rules:
            if self.lowering is not Lowering.RULES or self.approach is not Approach.CUBRIDGE:
                way = (
                    f"--lowering {self.lowering}"
                    if self.approach is Approach.CUBRIDGE
                    else f"the approach {self.approach}"
                )
                message = f"{way} needs a model"
                raise CuError(Diagnostic("CU706", message, help="name one by --proposer"), exit_code=2)
            return None
        provider = choose_provider(self.proposer, self.timeout, self.base_url, self.price)
        if record is not None:
            provider = Recorder(provider, record)
        if transcript is not None:
            transcript.unlink(missing_ok=True)
        return ModelUse(
            provider,
            self.budget,
            Transcript(transcript),
            self.lowering,
            self.allow_cuda,
            sandbox,
            self.accept,
            self.approach,
        )


# ---- TOML ------------------------------------------------------------------------------------------------------------


def read_config(path: Path) -> ModelConfig:
    """A file with the keys of `config_of`. Errors: OSError; CU720."""
    return config_of(read_toml(path), str(path))


def read_toml(path: Path) -> dict[str, object]:
    """Errors: OSError; CU720 where it is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CuError(Diagnostic(CODE, f"{path} is not TOML: {error}")) from error


def config_of(data: Mapping[str, object], where: str) -> ModelConfig:
    """Keys: proposer, lowering, approach, allow_model_cuda, accept, max_rounds, max_tokens, max_usd, timeout, base_url, and a
    table price with input, output and cached, in US dollars for a million tokens. Errors: CU720, with `where`."""
    table = Table(dict(data), where)
    lowering = table.text("lowering", Lowering.RULES)
    if lowering not in [*Lowering]:
        table.fail(f"`lowering` is one of {', '.join(Lowering)}")
    approach = table.text("approach", Approach.CUBRIDGE)
    if approach not in [*Approach]:
        table.fail(f"`approach` is one of {', '.join(Approach)}")
    price = table.table("price")
    config = ModelConfig(
        proposer=table.text("proposer", RULES),
        lowering=Lowering(lowering),
        approach=Approach(approach),
        allow_cuda=table.flag("allow_model_cuda"),
        accept=frozenset(map(Accept, table.choices("accept", [*Accept]))),
        budget=Budget(
            table.integer("max_rounds", Budget().rounds),
            table.integer("max_tokens", Budget().tokens),
            table.number("max_usd"),
        ),
        timeout=table.number("timeout") or 600.0,
        base_url=table.text("base_url", "") or None,
        price=None if price is None else _price(price),
    )
    table.check_empty()
    return config


def _price(table: Table) -> Price:
    numbers = [table.number(key) for key in ("input", "output", "cached")]
    table.check_empty()
    if numbers[0] is None or numbers[1] is None:
        table.fail("a price has `input` and `output`")
    return Price(numbers[0], numbers[1], numbers[0] if numbers[2] is None else numbers[2])


@dataclass(slots=True)
class Table:
    """A table of a TOML file, whose keys are taken one by one."""

    data: dict[str, object]
    where: str

    def fail(self, message: str) -> NoReturn:
        raise CuError(Diagnostic(CODE, f"{self.where}: {message}"))

    def text(self, key: str, default: str | None = None) -> str:
        """Errors: CU720 without a default where the key is not there."""
        value = self.data.pop(key, default)
        if not isinstance(value, str):
            self.fail(f"`{key}` is a string" if value is not None else f"`{key}` is missing")
        return value

    def flag(self, key: str) -> bool:
        value = self.data.pop(key, False)
        if not isinstance(value, bool):
            self.fail(f"`{key}` is true or false")
        return value

    def integer(self, key: str, default: int) -> int:
        value = self.data.pop(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.fail(f"`{key}` is a whole number from 1")
        return value

    def number(self, key: str) -> float | None:
        value = self.data.pop(key, None)
        if value is not None and (
            not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e12
        ):
            self.fail(f"`{key}` is a number from 0")
        return None if value is None else float(value)

    def integers(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self.data.pop(key, [*default])
        if (
            not isinstance(value, list)
            or not value
            or not all(type(x) is int and x >= 1 for x in cast("list[object]", value))
        ):
            self.fail(f"`{key}` is a list of whole numbers from 1")
        return tuple(cast("list[int]", value))

    def choices(self, key: str, allowed: Sequence[str]) -> list[str]:
        value = self.data.pop(key, [])
        if not isinstance(value, list) or not all(x in allowed for x in cast("list[object]", value)):
            self.fail(f"`{key}` is a list of {', '.join(allowed)}")
        return cast("list[str]", value)

    def table(self, key: str) -> Table | None:
        value = self.data.pop(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fail(f"`{key}` is a table")
        return Table(dict(cast("dict[str, object]", value)), f"{self.where}, {key}")

    def tables(self, key: str) -> list[Table]:
        """The tables `[[key]]`."""
        value = self.data.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(x, dict) for x in cast("list[object]", value)):
            self.fail(f"`{key}` is a list of tables, [[{key}]]")
        entries = cast("list[dict[str, object]]", value)
        return [Table(dict(entry), f"{self.where}, {key} {n}") for n, entry in enumerate(entries, 1)]

    def check_empty(self) -> None:
        if self.data:
            self.fail(f"there is no key `{min(self.data)}`")


def with_options(
    config: ModelConfig,
    lowering: str | None = None,
    allow_cuda: bool = False,
    accept: Iterable[str] = (),
    rounds: int | None = None,
    tokens: int | None = None,
    usd: float | None = None,
    timeout: float | None = None,
) -> ModelConfig:
    """What the command line says over what a file says."""
    budget = config.budget
    budget = Budget(rounds or budget.rounds, tokens or budget.tokens, budget.usd if usd is None else usd)
    return replace(
        config,
        lowering=config.lowering if lowering is None else Lowering(lowering),
        allow_cuda=config.allow_cuda or allow_cuda,
        accept=config.accept | {Accept(x) for x in accept},
        budget=budget,
        timeout=timeout or config.timeout,
    )
