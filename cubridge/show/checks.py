"""What was checked: runs with their errors, wrong kernels and who refused them, proofs, and what was not."""

from __future__ import annotations

from collections.abc import Iterator

from cubridge.show.html import Html, element, joined
from cubridge.show.plots import error_plot, library_is_missing
from cubridge.show.tables import mark, ratio, table
from cubridge.show.view import Run, View


def runs_section(view: View) -> Html:
    if not view.runs:
        return element("p", "Nothing was run.")
    text = (
        "An error is given as a part of a bound that is derived for every element from the formats that the kernel computes in, "
        "against an fp64 oracle: 1 is the limit. Plots show the largest of each query row."
    )
    stages = dict.fromkeys(r.stage for r in view.runs)
    plots = (_stage(stage, [r for r in view.runs if r.stage == stage]) for stage in stages)
    return joined((element("p", text), *plots))


def _stage(stage: str, runs: list[Run]) -> Html:
    head = ("sizes", "inputs", "error / bound", "LSE", "half-precision reference", "", "")
    rows = (
        (
            r.shape,
            r.inputs,
            _worst(r),
            ratio(r.lse),
            ratio(r.reference),
            mark(r.accepted, "within", "differs"),
            r.detail,
        )
        for r in runs
    )
    missing = library_is_missing()
    plot = element("p", missing, class_="quiet") if missing else element("figure", error_plot(stage, runs))
    return joined((element("h3", stage), plot, table(head, rows)))


def _worst(run: Run) -> str:
    return "no number" if run.worst is None else ratio(run.worst)


def refusals_section(view: View) -> Html:
    if not view.refusals:
        return element("p", "No wrong kernel was tried, so that the check shows nothing.", class_="bad")
    refused = sum(r.by is not None for r in view.refusals)
    text = f"{refused} of {len(view.refusals)} kernels that are wrong on purpose were refused; one that passes rejects the result."
    rows = ((r.name, r.by if r.by is not None else mark(False, wrong="nobody"), r.detail) for r in view.refusals)
    return joined((element("p", text), table(("wrong kernel", "refused by", ""), rows)))


def proofs_section(view: View) -> Html:
    if not view.proofs:
        return element("p", "Nothing is proved.")
    rows = ((p.part, mark(p.proved, "proved", p.text)) for p in view.proofs)
    return joined((element("p", "For all sizes, in real arithmetic."), table(("part", ""), rows)))


def left_section(view: View) -> Html:
    if not view.not_checked:
        return element("p", "Nothing was left out.")
    return element("ul", *_items(view.not_checked))


def _items(texts: tuple[str, ...]) -> Iterator[Html]:
    return (element("li", text) for text in texts)
