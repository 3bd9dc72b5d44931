"""The variants that are checked and timed: the example of each, its mask as a formula, and how its peers are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from bench import masks
from bench.masks import Mask

EXAMPLES: Final = Path(__file__).resolve().parent.parent / "examples"
TIMED: Final = Path(__file__).resolve().parent / "timed"


@dataclass(frozen=True, slots=True)
class BenchVariant:
    """`softmax`: FlexAttention can say the normalizer. `score`: name of the score change, of peers.SCORES. `by_batch`: the mask
    differs between batch entries.

    At long lengths, for the timing, `constants` set module constants of the example anew, and the text of `timed`, a file of
    bench/timed, follows the example's. `goal`: TFLOP/s on an H200 at B 2, L 8192, 32 heads."""

    name: str
    visible: Mask
    softmax: bool = True
    score: str | None = None
    causal: bool = False
    by_batch: bool = False
    constants: Mapping[str, int | str] = field(default_factory=dict)
    timed: str | None = None
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
        """The text of the reference; `long`: as it is timed."""
        text = self.path.read_text()
        if not long:
            return text
        for name, value in self.constants.items():
            head, separator, rest = text.partition(f"\n{name} = ")
            if not separator:
                raise ValueError(f"{self.path} sets no {name}")
            text = f"{head}\n{name} = {value}\n{rest.partition(chr(10))[2]}"
        return text if self.timed is None else f"{text}\n\n{(TIMED / self.timed).read_text()}"


VARIANTS: Final[dict[str, BenchVariant]] = {
    v.name: v
    for v in (
        BenchVariant("full", masks.everything, goal=685),
        BenchVariant("causal_top_left", masks.top_left, causal=True, goal=650),
        BenchVariant("causal_bottom_right", masks.bottom_right, causal=True, goal=650),
        BenchVariant("sliding_window_causal", masks.Window(1023, 0), constants={"WINDOW": 1024}, goal=500),
        BenchVariant("sliding_window_two_sided", masks.Window(512, 512), constants={"LEFT, RIGHT": "512, 512"}),
        BenchVariant("sink_window", masks.sink_window(4, 1024), constants={"SINKS, WINDOW": "4, 1024"}),
        BenchVariant(
            "global_sliding_window", masks.global_window(64, 1024), constants={"GLOBAL, WINDOW": "64, 1024"}, goal=510
        ),
        BenchVariant("prefix_lm", masks.prefix, goal=620),
        BenchVariant("share_question", masks.share_question, by_batch=True, timed="one_question.py", goal=570),
        BenchVariant("causal_blockwise", masks.causal_blockwise),
        BenchVariant("documents", masks.documents, by_batch=True, timed="uneven_documents.py"),
        BenchVariant("documents_causal", masks.documents_causal, by_batch=True, timed="uneven_documents.py", goal=430),
        BenchVariant("relative_position", masks.everything, score="relative"),
        BenchVariant(
            "relative_position_table", masks.everything, score="table", timed="relative_position_row.py", goal=500
        ),
        BenchVariant("alibi", masks.bottom_right, score="alibi", goal=590),
        BenchVariant("alibi_two_sided", masks.everything, score="alibi_two_sided"),
        BenchVariant("softcap", masks.top_left, score="softcap", goal=540),
        BenchVariant(
            "alibi_softcap_documents", masks.documents_causal, score="alibi_softcap", by_batch=True,
            timed="uneven_documents.py", goal=340,
        ),
        BenchVariant("sigmoid", masks.everything, softmax=False, goal=650),
        BenchVariant("sigmoid_causal", masks.top_left, softmax=False),
        BenchVariant("relu", masks.everything, softmax=False, goal=690),
        BenchVariant("relu_causal", masks.top_left, softmax=False),
        BenchVariant(
            "documents_window_relu", masks.documents_window(1024), softmax=False, by_batch=True,
            constants={"WINDOW": 1024}, timed="uneven_documents.py",
        ),
        BenchVariant("attention_sink", masks.top_left, score="sink"),
        BenchVariant("comb", masks.prefix, softmax=False, goal=590),
    )
}  # fmt: skip
