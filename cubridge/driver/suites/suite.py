"""Suites: which methods are tried on which variants, at which lengths and how often, as TOML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from cubridge.driver.model.config import ModelConfig, Table, config_of, read_toml
from cubridge.ir.spec import Shape
from cubridge.judge.findings import Verdict

MAX_TRIALS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Method:
    """`model`: its settings; in its proposer `{variant}`, `{length}` and `{sample}` stand for those of a trial."""

    name: str
    model: ModelConfig
    samples: int


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    reference: Path
    function: str | None


@dataclass(frozen=True, slots=True)
class Trial:
    """One sample of a method on a variant at a length."""

    method: Method
    variant: Variant
    length: int
    sample: int

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.method.name, self.variant.name, self.length, self.sample

    @property
    def folder(self) -> Path:
        """Where its files go, below the output folder."""
        return Path("trials", self.method.name, self.variant.name, str(self.length), str(self.sample))


@dataclass(frozen=True, slots=True)
class Suite:
    """`level`: how far a kernel must be checked to count. `ks`: the k of pass@k. `digest`: of the file."""

    name: str
    kernel: str
    dtype: str
    shape: Shape
    lengths: tuple[int, ...]
    ks: tuple[int, ...]
    level: Verdict
    methods: tuple[Method, ...]
    variants: tuple[Variant, ...]
    folder: Path
    digest: str

    def trials(self) -> Iterator[Trial]:
        """In the order in which they run."""
        for method in self.methods:
            for variant in self.variants:
                for length in self.lengths:
                    for sample in range(1, method.samples + 1):
                        yield Trial(method, variant, length, sample)

    def sizes(self, trial: Trial) -> Shape:
        return replace(self.shape, Lq=trial.length, Lk=trial.length)

    def model_of(self, trial: Trial) -> ModelConfig:
        """The method's settings for one trial; paths of recorded replies are relative to the suite."""
        text = trial.method.model.proposer
        for name, value in (("variant", trial.variant.name), ("length", trial.length), ("sample", trial.sample)):
            text = text.replace(f"{{{name}}}", str(value))
        kind, _, folder = text.partition(":")
        return replace(trial.method.model, proposer=f"replay:{self.folder / folder}" if kind == "replay" else text)


def read_suite(path: Path) -> Suite:
    """Errors: OSError; CU720 for a key, a value or a name that a suite does not have."""
    table = Table(read_toml(path), str(path))
    heads = table.integers("heads", (2, 1))
    if len(heads) != 2 or heads[0] % heads[1]:
        table.fail("`heads` are query heads and key heads, the first a multiple of the second")
    level = table.text("level", Verdict.COMPILED)
    if level not in [*Verdict]:
        table.fail(f"`level` is one of {', '.join(Verdict)}")
    dtype = table.text("dtype", "bf16")
    if dtype not in ("bf16", "fp16"):
        table.fail("`dtype` is bf16 or fp16")
    samples = table.integer("samples", 1)
    suite = Suite(
        name=path.stem,
        kernel=table.text("kernel", "sm80"),
        dtype=dtype,
        shape=Shape(table.integer("batch", 1), heads[0], heads[1], 1, 1, table.integer("head_dim", 64)),
        lengths=table.integers("lengths", (257,)),
        ks=table.integers("k", (1,)),
        level=Verdict(level),
        methods=tuple(_method(entry, samples) for entry in table.tables("method")),
        variants=tuple(_variant(entry, path.parent) for entry in table.tables("variant")),
        folder=path.parent,
        digest=sha256(path.read_bytes()).hexdigest(),
    )
    table.check_empty()
    _check(suite, table)
    return suite


def _method(table: Table, samples: int) -> Method:
    name = _name(table)
    own = table.integer("samples", samples)
    model = config_of(table.data, table.where)
    return Method(name, model, 1 if model.is_rules else own)  # rules give the same each time


def _variant(table: Table, folder: Path) -> Variant:
    variant = Variant(_name(table), folder / table.text("reference"), table.text("function", "") or None)
    table.check_empty()
    return variant


def _name(table: Table) -> str:
    """Names become parts of paths and cells of tables."""
    name = table.text("name")
    if not name.replace("-", "_").isidentifier() or not name.isascii():
        table.fail(f"`{name}` is not a name: letters, digits, `_` and `-`")
    return name


def _check(suite: Suite, table: Table) -> None:
    for kind, names in (("method", [m.name for m in suite.methods]), ("variant", [v.name for v in suite.variants])):
        if not names:
            table.fail(f"a suite has at least one [[{kind}]]")
        if len(names) != len(set(names)):
            table.fail(f"two entries of [[{kind}]] have one name")
    count = sum(m.samples for m in suite.methods) * len(suite.variants) * len(suite.lengths)
    if count > MAX_TRIALS:
        table.fail(f"the suite has {count} trials; {MAX_TRIALS} are the most")
