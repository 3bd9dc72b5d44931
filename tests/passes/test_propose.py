from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from cubridge.ir.capture_names import capture_of
from cubridge.ir.diagnostics import CuError, Refused
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse, parse_expr
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Precondition
from cubridge.passes.pipeline import parse_text, parse_toml
from cubridge.passes.propose import propose
from cubridge.passes.runner import run_pipeline
from cubridge.verify.events import structure_difference
from cubridge.verify.verifier import verify
from tests.passes.specs import CASES, softmax
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel


def _verify(kernel: Kernel) -> None:
    faults = verify(kernel)
    if faults:
        raise CuError(*faults)


@cache
def proposed(arch: str, name: str) -> Kernel:
    return run_pipeline(golden_kernel(arch), propose(CASES[name].spec, golden_kernel(arch)))


RUNS = [
    *(("sm80", n) for n in CASES),
    *(("sm90a", n) for n in ("global window", "share question", "sink", "comb", "alibi")),
]


@pytest.mark.parametrize(("arch", "name"), RUNS)
def test_every_proposal_is_valid_after_each_pass_and_replays(arch: str, name: str) -> None:
    kernel = golden_kernel(arch)
    pipeline = propose(CASES[name].spec, kernel)
    verified = run_pipeline(kernel, pipeline, verify=_verify)
    assert verified == proposed(arch, name)
    assert structure_difference(kernel, verified) == ()
    assert parse(SourceFile.from_text("target.cuir", to_text(verified))) == verified
    assert parse_text(pipeline.to_text()) == parse_toml(pipeline.to_toml()) == pipeline


@pytest.mark.parametrize("arch", GOLDEN_NAMES)
def test_full_attention_is_the_source(arch: str) -> None:
    assert run_pipeline(golden_kernel(arch), propose(softmax(), golden_kernel(arch))) == golden_kernel(arch)


@pytest.mark.parametrize("name", CASES)
def test_one_target_for_both_kernels(name: str) -> None:
    """The regions of a variant are the same text in every kernel."""
    first, second = (proposed(arch, name) for arch in GOLDEN_NAMES)
    assert first.regions == second.regions
    assert (first.tile_state, first.row_state) == (second.tile_state, second.row_state)


def test_running_a_proposal_again_changes_nothing() -> None:
    kernel = golden_kernel("sm80")
    pipeline = propose(CASES["prefix"].spec, kernel)
    target = run_pipeline(kernel, pipeline)
    assert (
        run_pipeline(
            target, parse_text("infer-kv-range,row-bounds,hoist,place-captured,approximate,dce,drop-row-state")
        )
        is target
    )


@pytest.mark.parametrize(
    ("heads", "conditions", "fits"),
    [
        ("h // (Hq // Hk)", (), True),
        ("h * Hk // Hq", (), True),
        ("h", ("Hq == Hk",), True),
        ("h", (), False),
        ("h % Hk", (), False),
        ("0", ("Hk == 1",), True),
        ("h // 2", ("Hq == 2 * Hk",), True),
        ("h % Hk", ("Lq == 100", "Lk == 100"), False),
        ("h % Hk", ("D == 128", "Lk >= 400", "B % 4 == 0"), False),
        ("h", ("Hq == Hk", "Lq == 49", "Lk == 49"), True),
        ("h", ("Lq == 49", "Lq == 50"), False),
    ],
)
def test_heads_map_as_the_kernel_maps_them(heads: str, conditions: tuple[str, ...], fits: bool) -> None:
    needs = tuple(Precondition(parse_expr(c)) for c in conditions)
    spec = replace(softmax(), kv_head=parse_expr(heads), preconditions=needs)
    if fits:
        propose(spec, golden_kernel("sm80"))
        return
    with pytest.raises(Refused) as raised:
        propose(spec, golden_kernel("sm80"))
    assert raised.value.diagnostics[0].code == "CU520"


def test_captures_are_read_by_their_names_whatever_their_fields_are_called() -> None:
    kernel = golden_kernel("sm80")
    spec = softmax("(s + lse[h]) * int", captures="lse f32 Hq; int f32")
    target = run_pipeline(kernel, propose(spec, kernel), verify=_verify)
    assert {capture_of(f): f.name for f in target.params if capture_of(f)} == {
        "lse": "captured_lse",
        "int": "captured_int",
    }
