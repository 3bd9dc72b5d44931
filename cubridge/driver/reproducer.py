"""A failed run of a pipeline as one text that `cuirc opt FILE` runs: the kernel before the pass, and the passes from there."""

from __future__ import annotations

from typing import Final

from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.passes.pipeline import Pipeline
from cubridge.passes.runner import PassFault

_HEAD: Final = "# pipeline: "


def reproducer(fault: PassFault, pipeline: Pipeline) -> str:
    """The text that fails as the run did."""
    left = Pipeline(pipeline.passes[fault.at :])
    return f"{_HEAD}{left.to_text()}\n{to_text(fault.kernel)}"


def pipeline_of(file: SourceFile) -> SourceFile | None:
    """The pipeline that the first line of a text names, at its place there."""
    first = file.text.partition("\n")[0]
    if not first.startswith(_HEAD):
        return None
    return SourceFile(file.name, b" " * len(_HEAD) + first[len(_HEAD) :].encode())
