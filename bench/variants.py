"""The variants that are checked and timed: the example of each, its mask as a formula, and how its peers are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from torch import Tensor

EXAMPLES: Final = Path(__file__).resolve().parent.parent / "examples"

Visible = Callable[[Tensor, Tensor, int, int], Tensor]
"""From query rows i, keys j and the two lengths to where key j is visible to row i."""


def everything(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
    return (i >= 0) & (j >= 0)


def top_left(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
    return j <= i


def bottom_right(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
    return j <= i + (lk - lq)


def window(left: int, right: int) -> Visible:
    """Keys from `left` before the query's own to `right` after it, both included."""

    def visible(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
        own = i + (lk - lq)
        return (j >= own - left) & (j <= own + right)

    return visible


def prefix(i: Tensor, j: Tensor, lq: int, lk: int) -> Tensor:
    return (j <= i) | (j < lq // 4)


@dataclass(frozen=True, slots=True)
class BenchVariant:
    """`constants`: module constants of the example, set anew for the timing at long lengths. `softmax`: FlexAttention and SDPA
    can say it. `score`: name of the score change, of peers.SCORES. `goal`: TFLOP/s on an H200 at B 2, L 8192, 32 heads."""

    name: str
    visible: Visible
    softmax: bool = True
    score: str | None = None
    causal: bool = False
    constants: Mapping[str, int | float] = field(default_factory=dict)
    goal: int | None = None

    @property
    def path(self) -> Path:
        return EXAMPLES / f"{self.name}.py"

    def load(self, long: bool, folder: Path) -> ModuleType:
        """The reference as a module, from a copy in `folder`."""
        path = folder / f"{self.name}.py"
        path.write_text(self.source(long))
        spec = spec_from_file_location(self.name, path)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def source(self, long: bool) -> str:
        """The text of the reference; `long`: with the constants of the timing."""
        text = self.path.read_text()
        for name, value in self.constants.items() if long else ():
            head, separator, rest = text.partition(f"\n{name} = ")
            if not separator:
                raise ValueError(f"{self.path} sets no {name}")
            text = f"{head}\n{name} = {value}\n{rest.partition(chr(10))[2]}"
        return text


VARIANTS: Final[dict[str, BenchVariant]] = {
    v.name: v
    for v in (
        BenchVariant("full", everything, goal=685),
        BenchVariant("causal_top_left", top_left, causal=True, goal=650),
        BenchVariant("causal_bottom_right", bottom_right, causal=True, goal=650),
        BenchVariant("sliding_window_causal", window(1023, 0), constants={"WINDOW": 1024}, goal=500),
        BenchVariant("sliding_window_two_sided", window(512, 512), constants={"LEFT, RIGHT": "512, 512"}),
        BenchVariant("prefix_lm", prefix, goal=620),
        BenchVariant("alibi", bottom_right, score="alibi", goal=590),
        BenchVariant("alibi_two_sided", everything, score="alibi_two_sided"),
        BenchVariant("softcap", top_left, score="softcap", goal=540),
        BenchVariant("sigmoid", everything, softmax=False, goal=650),
        BenchVariant("sigmoid_causal", top_left, softmax=False),
        BenchVariant("relu", everything, softmax=False, goal=690),
        BenchVariant("relu_causal", top_left, softmax=False),
        BenchVariant("attention_sink", top_left, score="sink"),
        BenchVariant("comb", prefix, softmax=False, goal=590),
    )
}
