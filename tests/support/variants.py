"""The one table of attention variants: every file of `examples/`, with what a test must know of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True, slots=True)
class Variant:
    """`equal_lengths`: the reference insists on Lq == Lk. `has_lse`: its normalizer defines one. `reads_data`: its mask reads
    captured tensors, so that key tiles are walked by a list."""

    name: str
    equal_lengths: bool = False
    has_lse: bool = True
    reads_data: bool = False

    @property
    def path(self) -> Path:
        return EXAMPLES / f"{self.name}.py"


VARIANTS: Final[dict[str, Variant]] = {
    v.name: v
    for v in (
        Variant("full"),
        Variant("causal_top_left"),
        Variant("causal_bottom_right"),
        Variant("sliding_window_causal"),
        Variant("sliding_window_two_sided"),
        Variant("prefix_lm"),
        Variant("alibi"),
        Variant("alibi_two_sided"),
        Variant("softcap"),
        Variant("sigmoid", has_lse=False),
        Variant("sigmoid_causal", has_lse=False),
        Variant("relu", has_lse=False),
        Variant("relu_causal", has_lse=False),
        Variant("attention_sink"),
        Variant("comb", has_lse=False),
        Variant("global_sliding_window"),
        Variant("sink_window"),
        Variant("share_question", equal_lengths=True, reads_data=True),
        Variant("causal_blockwise", equal_lengths=True, reads_data=True),
        Variant("relative_position"),
        Variant("relative_position_table"),
        Variant("documents", reads_data=True),
        Variant("documents_causal", reads_data=True),
        Variant("alibi_softcap_documents", reads_data=True),
        Variant("documents_window_relu", has_lse=False, reads_data=True),
    )
}
