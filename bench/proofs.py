"""How many kernels that the rules make are proved, part by part: of the examples, of the specs of the tests (each definition of the
table of variants, with other numbers), and of references put together at random.

    python -m bench.proofs --draws 3000 --first 0

Draw N is the same on every machine. What is not proved is listed with the reason. Ends with 1 if something is shown to be wrong."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from cubridge.driver.reference import read_reference
from cubridge.driver.transfer import transfer_unverified
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import AttentionSpec
from cubridge.judge.proof.prove import prove
from tests.passes.specs import CASES
from tests.support.compose import compose
from tests.support.judge_draw import source
from tests.support.variants import VARIANTS

KERNELS = ("sm80", "sm90a")


@dataclass(slots=True)
class Tally:
    """Counts of one group. `because`: the reasons, by part. `slowest`: seconds of one proof."""

    kernels: int = 0
    whole: int = 0
    refused: int = 0
    parts: Counter[str] = field(default_factory=Counter[str])
    proved: Counter[str] = field(default_factory=Counter[str])
    because: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    slowest: float = 0.0

    def add(self, name: str, kernel: Kernel, spec: AttentionSpec) -> None:
        start = time.perf_counter()
        parts = prove(kernel, spec)
        self.slowest = max(self.slowest, time.perf_counter() - start)
        self.kernels += 1
        self.whole += all(p.proved for p in parts)
        for part in parts:
            self.parts[part.name] += 1
            self.proved[part.name] += part.proved
            if not part.proved:
                self.because[f"{part.name}: {part.because}"] += 1
            if part.refuted:
                self.wrong.append(f"{name}: {part}")

    def to_text(self) -> str:
        """Two lines, then the reasons."""
        parts, proved = self.parts.total(), self.proved.total()
        share = f"{100 * proved / parts:.2f} %" if parts else "none"
        keys = f"{self.proved['keys']} of {self.parts['keys']}"
        lines = [
            f"{self.kernels} kernels ({self.refused} references refused): {self.whole} wholly proved, {proved} of {parts} parts "
            f"({share}); key sequences {keys}; slowest {self.slowest:.1f} s"
        ]
        lines += [f"  {count:4} {reason}" for reason, count in self.because.most_common()]
        return "\n".join([*lines, *(f"  WRONG {w}" for w in self.wrong)])


def examples() -> Iterator[tuple[str, AttentionSpec]]:
    for variant in VARIANTS.values():
        yield variant.name, read_reference(variant.path).attention.spec


def draws(first: int, count: int, folder: Path) -> Iterator[tuple[str, AttentionSpec | None]]:
    """None for a reference that is refused."""
    for number in range(first, first + count):
        path = folder / f"draw_{number}.py"
        path.write_text(compose(random.Random(number).choice).text, encoding="utf-8")
        try:
            yield path.stem, read_reference(path).attention.spec
        except CuError:
            yield path.stem, None


def count_proofs(specs: Iterable[tuple[str, AttentionSpec | None]], kernels: tuple[str, ...]) -> Tally:
    tally = Tally()
    for n, (name, spec) in enumerate(specs):
        for kernel in kernels if len(kernels) == 1 else (kernels[n % 2],) if name.startswith("draw") else kernels:
            try:
                target = None if spec is None else transfer_unverified(source(kernel).lifted.kernel, spec)
            except CuError:
                target = None
            if target is None or spec is None:
                tally.refused += 1
            else:
                tally.add(f"{name} on {kernel}", target, spec)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("examples", "specs", "draws"), help="one group alone")
    parser.add_argument("--draws", type=int, default=0, help="references to put together at random")
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wrong = False
    with tempfile.TemporaryDirectory() as folder:
        groups = {
            "examples": examples(),
            "specs": ((name, case.spec) for name, case in CASES.items()),
            "draws": draws(options.first, options.draws, Path(folder)),
        }
        for name, specs in groups.items():
            if options.only not in (None, name):
                continue
            start = time.perf_counter()
            tally = count_proofs(specs, KERNELS)
            wrong |= bool(tally.wrong)
            print(f"{name}: {tally.to_text()}\n  in {time.perf_counter() - start:.0f} s", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
