"""Lowered into the shipped kernels and lifted again, every case says what its target says, and the diff applies."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from cubridge.backend.text.diff import render_diff
from cubridge.backend.text.lower import Patched, lower
from cubridge.backend.text.names import Names
from cubridge.frontend.contract import read_contract
from cubridge.ir.canonical import value_form
from cubridge.ir.nodes import Assign, Attr, Call, Kernel, Name, Unary
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from cubridge.ir.walk import rewrite, substitute
from tests.backend.text.expressions import random_expr
from tests.backend.text.lowering import CASES, with_changes
from tests.backend.text.test_emit_plan import WRITABLE, BodyMaker
from tests.backend.text.test_patch_cases import EXPECTED
from tests.frontend.cuda.kernels import ARCHITECTURES, KERNELS, kernel_text, lift_text, shipped

NAMES = sorted(p.stem for p in CASES.glob("*.cuir") if not p.stem.startswith("fault"))


def target_of(case: str, source: Kernel) -> Kernel:
    changes = (CASES / f"{case}.cuir").read_text(encoding="utf-8").split(EXPECTED)[0]
    return with_changes(to_text(source), changes)


def lowered(arch: str, target: Kernel, text: str | None = None) -> Patched:
    source = SourceFile.from_text("kernel.cu", text or kernel_text(arch))
    contract = read_contract(KERNELS / arch / "attention_forward.toml", source)
    lifted = lift_text(arch, source.data)
    return lower(source, lifted.source_map, lifted.kernel, target, Names.of(contract), patchable=contract.patchable)


@pytest.mark.parametrize(
    ("arch", "case"), [*(("sm80", case) for case in NAMES), ("sm90a", "comb"), ("sm90a", "documents")]
)
def test_the_patched_text_lifts_to_its_target(arch: str, case: str, tmp_path: Path) -> None:
    target = target_of(case, shipped(arch).kernel)
    result = lowered(arch, target)
    assert value_form(lift_text(arch, result.text).kernel) == value_form(target)
    if result.patch:
        (tmp_path / "kernel.cu").write_text(kernel_text(arch), encoding="utf-8")
        subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=result.patch, check=True)
        assert (tmp_path / "kernel.cu").read_bytes() == result.text


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_patching_twice_comes_back(arch: str) -> None:
    """From one variant to another and back to full attention: the text of a patch is a kernel text like any other."""
    full = shipped(arch).kernel
    there = lowered(arch, target_of("comb", full))
    back = lowered(arch, full, there.text.decode())
    assert value_form(lift_text(arch, back.text).kernel) == value_form(full)


def renamed_field() -> str:
    return kernel_text("sm80").replace("len_kv", "keys_n")


def renamed_argument() -> str:
    """`p` is `params` in the regions score and mask."""
    before, regions = kernel_text("sm80").split("// @region score", 1)
    regions, after = regions.split("// @endregion mask", 1)
    regions = regions.replace("const Params& p)", "const Params& params)").replace("p.len_kv", "params.len_kv")
    return before + "// @region score" + regions + "// @endregion mask" + after


@pytest.mark.parametrize("text", [renamed_field(), renamed_argument()], ids=["field", "argument"])
def test_a_text_with_other_names(text: str) -> None:
    target = target_of("prefix_lm", lift_text("sm80", text).kernel)
    result = lowered("sm80", target, text)
    assert value_form(lift_text("sm80", result.text).kernel) == value_form(target)


def random_target(seed: int, source: Kernel) -> Kernel:
    """The source with random bodies in three regions, and a mask by a random predicate."""
    rnd = Random(seed)
    bodies = {name: BodyMaker(rnd, name).body() for name in WRITABLE}
    keep = substitute(random_expr(rnd, DType.BOOL, 4), {"kv_start": Name("Lk")})
    keep = rewrite(keep, lambda n: Name("Lq") if n == Attr(Name("tile"), "q_start") else n)
    bodies["mask"] = (Assign(Name("s"), Call("where", (keep, Name("s"), Unary("-", Name("inf"))))),)
    regions = tuple(replace(r, body=bodies.get(r.name, r.body)) for r in source.regions)
    return replace(source, regions=regions)


@pytest.mark.parametrize("seed", range(15))
def test_random_regions_survive_the_round_trip(seed: int) -> None:
    target = random_target(seed, shipped("sm80").kernel)
    again = lift_text("sm80", lowered("sm80", target).text).kernel
    assert value_form(again).regions == value_form(target).regions, render_diff(target, again)
