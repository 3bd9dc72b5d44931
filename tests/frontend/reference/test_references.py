"""The table of references: what is found in each, that it is what the reference computes at two other shapes, and that the gradient
derived from it is PyTorch's."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch.torch_version import TorchVersion

import tests.frontend.reference.references  # noqa: F401  (fills the table)
from cubridge.frontend.reference.trace import trace
from cubridge.frontend.reference.traced import Traced
from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import RowReduction
from tests.frontend.reference.table import ACCEPTED, REFUSED, Accepted, Refusal
from tests.support.gradients import check_gradient


def found_row(traced: Traced, row: RowReduction) -> str:
    over = "" if row.over == traced.spec.mask else f" over {print_expr(row.over)}"
    return f"{row.name} = {row.kind} {print_expr(row.body)}{over}"


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_reads(case: Accepted) -> None:
    if case.since and TorchVersion(torch.__version__) < case.since:
        with pytest.raises(CuError, match="CU474"):
            trace(case.reference, case.shape, torch.bfloat16)
        return
    traced = trace(case.reference, case.shape, torch.bfloat16)
    spec, normalizer = traced.spec, case.normalizer
    found = {
        "score": print_expr(spec.score),
        "mask": print_expr(spec.mask),
        "weight": print_expr(spec.weight),
        "rows": tuple(found_row(traced, r) for r in spec.rows),
        "out": print_expr(spec.finalize),
        "lse": None if spec.lse is None else print_expr(spec.lse),
        "shift": spec.shift,
        "kv": print_expr(spec.kv_head),
        "captures": tuple(
            f"{c.name}[{', '.join(map(print_expr, c.extents))}] {c.kind} {c.dtype}" for c in spec.captures
        ),
        "requires": tuple(print_expr(p.condition) for p in spec.preconditions),
    }
    assert found == {
        "score": case.score,
        "mask": case.mask,
        "weight": normalizer.weight,
        "rows": normalizer.rows,
        "out": normalizer.out,
        "lse": normalizer.lse,
        "shift": normalizer.shift,
        "kv": case.kv,
        "captures": case.captures,
        "requires": case.requires,
    }
    warnings = [w.message for w in spec.warnings]
    assert len(warnings) == len(case.warns), warnings
    for message, part in zip(warnings, case.warns, strict=True):
        assert part in message
    with pytest.raises(CuError, match=case.no_gradient) if case.no_gradient else nullcontext():
        check_gradient(traced)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refuses(case: Refusal) -> None:
    with pytest.raises(CuError) as caught:
        trace(case.reference)
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == case.code, str(caught.value)
    assert case.message in diagnostic.message
    line, _ = diagnostic.span.location
    assert case.line in diagnostic.span.file.line(line), str(caught.value)


def test_the_table_is_large_enough() -> None:
    assert len(ACCEPTED) >= 100
    assert len(REFUSED) >= 40
