"""Passes in words, from their classes: the list and the help of `cuirc opt`, and docs/passes.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Final

from cubridge.backend.text.diff import render_diff
from cubridge.ir.nodes import Kernel
from cubridge.passes.base import Pass
from cubridge.passes.options import defaults, kinds
from cubridge.passes.pipeline import Pipeline, parse_text
from cubridge.passes.runner import run_pipeline

_PAGE: Final = """# Passes

A pipeline is a list of passes, as text, `rewrite-mask{keep="j <= i"},infer-kv-range`, or as TOML. Each takes valid CuIR and
gives valid CuIR. `cuirc opt KERNEL -p PIPELINE` runs one; `--list-passes` lists them, `--help-pass NAME` prints one of these
sections. `--print-ir-before`, `--print-ir-after`, `--print-ir-after-change`, `--print-ir-diff` and `--timing` show the run;
`--reproducer FILE` keeps one that failed. Below, examples are what the last pass of the pipeline changes in the packaged
kernel sm80. Passes of your own: [extending.md](extending.md).

This page is written from the classes by `pytest tests/docs/test_passes_page.py --update-cases`.
"""


def listed(passes: Mapping[str, type[Pass]]) -> str:
    """A line a pass."""
    width = max(map(len, passes))
    return "\n".join(f"{name:{width}}  {_summary(cls)}" for name, cls in passes.items())


def help_of(cls: type[Pass]) -> str:
    """What a pass does, and its options."""
    return "\n".join((f"{cls.name}: {_doc(cls)}", "", *(_options(cls) or ("No options.",))))


def page(passes: Mapping[str, type[Pass]], kernel: Kernel) -> str:
    """docs/passes.md. `kernel`: the packaged kernel sm80, of which examples are."""
    return "\n".join((_PAGE, *(line for cls in passes.values() for line in _section(cls, kernel))))


def _section(cls: type[Pass], kernel: Kernel) -> Iterator[str]:
    summary, _, rest = _doc(cls).partition("\n")
    yield f"## {cls.name}\n\n{summary}\n"
    if rest.strip():
        yield f"```text\n{rest.strip()}\n```\n"
    if _options(cls):
        yield "\n".join(f"- {line.strip()}" for line in _options(cls)) + "\n"
    if cls.example:
        yield f"```sh\ncuirc opt sm80 --print-ir-diff -p '{cls.example}'\n```\n\n```diff\n{example(cls, kernel)}```\n"


def example(cls: type[Pass], kernel: Kernel) -> str:
    """The difference that the last pass of its example makes."""
    steps = parse_text(cls.example).passes
    before = run_pipeline(kernel, Pipeline(steps[:-1]))
    return render_diff(before, run_pipeline(before, Pipeline(steps[-1:])))


def _doc(cls: type[Pass]) -> str:
    return inspect.cleandoc(cls.__doc__ or "")


def _summary(cls: type[Pass]) -> str:
    return _doc(cls).partition("\n")[0].removesuffix(".")


def _options(cls: type[Pass]) -> tuple[str, ...]:
    known, given = kinds(cls), defaults(cls)
    return tuple(f"  `{f.name}`: {known[f.name]}{_default(given.get(f.name))}" for f in fields(cls))


def _default(text: str | None) -> str:
    return ", needed" if text is None else f"; default `{text}`" if text else ""
