"""Small cases from public trouble, 34 and 35: caches, and the harness that judges kernels."""
# pyright: basic

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial

import pytest
import torch

from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.compiled import compile_adapted
from cubridge.driver.transfer import transfer_unverified
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import DEFAULT_SHAPE, Shape
from cubridge.judge.checker import Checker
from cubridge.judge.plan import Case, mutant_cases
from cubridge.judge.problem import Problem
from cubridge.judge.runners import LaunchRunner, ValueRunner
from tests.small_cases.tools import adapted, attend, positions, random_inputs, scores, traced

# ---- 34: what differs never shares a kernel ----------------------------------------------------------------------------


def _windowed(q, k, v, width, scale, table):
    i, j = positions(q, k)
    s = scale * scores(q, k) + table[(i - j).clamp(-4, 4) + 4]
    return attend(s.masked_fill(i - j >= width, -torch.inf).softmax(-1), q, v)


SOURCE = {"width": 30, "scale": 0.5, "table": torch.linspace(-1.0, 1.0, 9)}
CHANGES = {
    "width": 31,
    "scale": 0.25,
    "table": torch.linspace(-1.0, 2.0, 9),
}


def _operator(**constants):
    return compile_adapted(adapted(partial(_windowed, **constants)), lambda _: PtxDevice(ONE_SCHEDULE), check=False)


@cache
def _of_source():
    return _operator(**SOURCE)


@pytest.mark.parametrize("name", CHANGES)
def test_34_the_same_source_with_other_constants(name: str) -> None:
    inputs = random_inputs(1, 2, 1, 70, 90)
    constants = (SOURCE, SOURCE | {name: CHANGES[name]})
    operators = (_of_source(), _operator(**constants[1]))
    assert operators[0].key != operators[1].key
    for operator, given in zip(operators, constants, strict=True):
        want = _windowed(*(x.double() for x in inputs), **given)
        assert torch.allclose(operator(*inputs).double(), want, atol=2**-5, rtol=2**-6)


def test_34_the_same_reference_is_the_same_kernel() -> None:
    assert _operator(**SOURCE).key == _of_source().key


def test_34_one_kernel_with_other_strides() -> None:
    launcher = Launcher(PtxDevice(ONE_SCHEDULE), adapted(_softmax).text, say=lambda _: None)
    q, k, v = random_inputs(1, 2, 1, 70, 90)
    wide = torch.cat([k, v], -1)
    views = wide[..., :64], wide[..., 64:]
    assert [x.stride() for x in views] != [k.stride(), v.stride()]
    assert torch.equal(launcher(q, k, v), launcher(q, *views))
    assert torch.equal(launcher(q, k, v), launcher(q.mT.contiguous().mT, k, v))


# ---- 35: the harness ---------------------------------------------------------------------------------------------------


def _softmax(q, k, v):
    i, j = positions(q, k)
    s = scores(q, k).masked_fill(j > i + k.shape[2] - q.shape[2], -torch.inf)
    return attend(s.softmax(-1), q, v), s.logsumexp(-1)


Change = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Cheat:
    """A runner that gives the right result, changed."""

    out: Change
    lse: Change = torch.clone
    stage: str = "cheat"

    def run(self, problem: Problem, lse: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        assert problem.lse is not None
        return self.out(problem.out.clone()), self.lse(problem.lse.clone())


def _one_row_late(out: torch.Tensor) -> torch.Tensor:
    return out.roll(1, 2)


def _unwritten_row(out: torch.Tensor) -> torch.Tensor:
    out[:, :, -1] = torch.nan
    return out


CHEATS = {
    "zeros": Cheat(torch.zeros_like),
    "a row late": Cheat(_one_row_late),
    "a row not written": Cheat(_unwritten_row),
    "one percent off": Cheat(lambda x: 1.02 * x),
    "infinite": Cheat(lambda x: torch.full_like(x, torch.inf)),
    "NaN": Cheat(lambda x: torch.full_like(x, torch.nan)),
    "LSE in base 2": Cheat(lambda x: x, lambda x: x * 1.4427),
    "LSE not written": Cheat(lambda x: x, lambda x: torch.full_like(x, torch.nan)),
    "LSE of another row": Cheat(lambda x: x, lambda x: x.roll(1, -1)),
}
CASES = [Case("random", Shape(1, 2, 1, 70, 130, 64), 1)]


@pytest.mark.parametrize("name", CHEATS)
def test_35_a_wrong_result_is_rejected(name: str) -> None:
    checker = Checker(traced(_softmax).attention, "bf16", {})
    assert all(r.accepted for r in checker.run(Cheat(lambda x: x), CASES))
    assert not any(r.accepted for r in checker.run(CHEATS[name], CASES))


def test_35_every_mutant_that_applies_is_rejected() -> None:
    made = adapted(_softmax)
    checker = Checker(made.reference.attention, "bf16", {})
    spec = made.reference.attention.spec
    found = {name: (wrong, problem) for name, wrong, problem in checker.wrong_specs(mutant_cases(spec, DEFAULT_SHAPE))}
    assert {
        "mask dropped",
        "mask one row late",
        "other alignment",
        "scale doubled",
        "zero output",
        "LSE in base 2",
    } <= found.keys()
    for name, (wrong, problem) in found.items():
        try:
            target = transfer_unverified(made.lifted.kernel, wrong)
        except CuError:
            continue  # no kernel can be made of it
        assert checker.reject(name, problem, ValueRunner(target)).rejected_by == "value engine", name


def test_35_outputs_start_as_nan_and_inputs_are_copies() -> None:
    """A kernel that writes nothing gives NaN, whatever was in memory before; one that writes its input is found out."""
    made = adapted(_softmax)
    checker = Checker(made.reference.attention, "bf16", {})
    right = LaunchRunner(Launcher(PtxDevice(ONE_SCHEDULE), made.text), "emulator")
    assert all(r.accepted for r in checker.run(right, CASES))
    problem = checker.problem(CASES[0])
    held = [x.clone() for x in (problem.q, problem.k, problem.v)]
    text = made.text.source.text
    assert "store_tile(o_gmem, tile.q_start, o);" in text
    silent = replace(
        made.text, source=SourceFile.from_text("kernel.cu", text.replace("store_tile(o_gmem, tile.q_start, o);", ""))
    )
    out, _ = LaunchRunner(Launcher(PtxDevice(ONE_SCHEDULE), silent), "emulator").run(problem, lse=True)
    assert out.isnan().all()
    assert all(torch.equal(x, y) for x, y in zip(held, (problem.q, problem.k, problem.v), strict=True))


@dataclass(slots=True)
class Unsteady:
    """A launcher whose results differ, or that writes into an input."""

    launcher: Launcher
    into_input: bool
    launches: int = 0
    device: PtxDevice = field(default_factory=PtxDevice)

    def run_into(self, inputs, captures, outputs) -> None:
        self.launcher.run_into(inputs, captures, outputs)
        self.launches += 1
        if self.into_input:
            inputs["k"][0, 0, 0, 0] += 1.0
        elif self.launches > 1:
            outputs["o"][0, 0, 0, 0] += 2**-6


@pytest.mark.parametrize(("into_input", "says"), [(True, "writes into its input `k`"), (False, "give two `o`")])
def test_35_runs_that_differ_and_inputs_that_change_are_errors(into_input: bool, says: str) -> None:
    made = adapted(_softmax)
    checker = Checker(made.reference.attention, "bf16", {})
    launcher = Unsteady(Launcher(PtxDevice(ONE_SCHEDULE), made.text), into_input)
    (result,) = checker.run(LaunchRunner(launcher, "gpu", runs=2), CASES)  # pyright: ignore[reportArgumentType]
    assert not result.accepted and says in result.detail
