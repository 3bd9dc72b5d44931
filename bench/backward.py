"""The backward pass of each variant on a GPU: gradients against fp64 autograd, wrong passes that must be told, and times beside
what users of PyTorch run."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import Tensor

from bench.build import DTYPES, one_thread
from bench.peers import Setting, Work, flex, sdpa
from bench.speed import extra_of, long_inputs
from bench.table import render
from bench.variants import VARIANTS
from cubridge.backend.compile.compiler import compile_best
from cubridge.backend.gpu.timing import Clock, Timing, cuda_clock, interleave
from cubridge.backend.launch.backward import BackwardLauncher
from cubridge.backend.launch.captured import on_device
from cubridge.backend.launch.device import Device, KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.backward import FORWARD, Lowered, lower_backward
from cubridge.engine.dense_gradient import Gradients
from cubridge.ir.diagnostics import CuError
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.spec import DEFAULT_SHAPE, Shape
from cubridge.judge.backward_mutants import backward_mutants
from cubridge.judge.checker import approximations
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from cubridge.judge.gradient_runs import saved

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue

Texts = tuple[KernelText, KernelText, KernelText]
SHAPES: Final = (
    Shape(1, 1, 1, 1, 1, 0),
    Shape(2, 4, 2, 130, 150, 0),
    Shape(1, 6, 3, 257, 1000, 0),
    Shape(2, 2, 2, 513, 192, 0),
    Shape(1, 8, 1, 640, 640, 0),
)
FORMS: Final = (("bf16", 128), ("bf16", 64), ("fp16", 128), ("fp16", 64))
"""Element types and head dims; the first is checked at every shape, and of it wrong passes are made."""
SPARSE: Final = 2
"""The other forms are checked at every second shape."""
KINDS: Final = ("random", "index-coded V", "large scores")
COLUMNS: Final = ("SDPA cuDNN", "SDPA FA2", "SDPA mask", "Flex", FORWARD)
PRODUCTS: Final = 2.5
"""Matrix products of a backward pass, for those of the forward pass."""


@dataclass(slots=True)
class Built:
    """One variant. `problems`: each with the output and LSE that a forward pass saves; `mutants`: wrong passes by name. `long`: the
    texts for the timed shape, the forward's first, with its captures."""

    variant: str
    form: str
    texts: Texts | None = None
    problems: list[tuple[GradientProblem, Tensor, Tensor]] = field(default_factory=list)
    mutants: dict[str, Texts] = field(default_factory=dict)
    captures: Mapping[str, object] = field(default_factory=dict)
    forward: KernelText | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`worst`: the largest error over its bound. `mutant`: of a wrong pass, which no problem may accept."""

    variant: str
    form: str
    problem: str
    worst: float
    fault: str = ""
    mutant: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Times of the backward pass of one variant."""

    variant: str
    flops: float
    timings: Mapping[str, Timing]

    def tflops(self, column: str) -> float | None:
        timing = self.timings.get(column)
        return None if timing is None or math.isnan(timing.median) else self.flops / timing.median / 1e9


# ---- without a GPU ---------------------------------------------------------------------------------------------------


def build_backward(names: Sequence[str], long_shape: Shape, workers: int | None = None, arch: str = "") -> list[Built]:
    """Every variant in all forms, and as it is timed; machine code for `arch` goes into the compile cache."""
    forms = [(name, dtype, dim, None, arch) for dtype, dim in FORMS for name in names]
    forms += [(name, "bf16", long_shape.D, long_shape, arch) for name in names]
    count = workers or max(1, (os.cpu_count() or 2) - 1)
    with ProcessPoolExecutor(min(count, len(forms)), get_context("spawn"), one_thread) as pool:
        return list(pool.map(build_one, *zip(*forms, strict=True)))


def build_one(name: str, dtype: str, dim: int, long_shape: Shape | None, arch: str = "") -> Built:
    """What fails is recorded, and the rest goes on."""
    built = Built(name, f"{dtype} D={dim}" + (" long" if long_shape else ""))
    try:
        _adapt(built, dtype, dim, long_shape)
        if arch:
            _compile(built, dtype, dim, arch)
    except Exception as error:  # one variant that breaks must not cost the run of the others
        built.fault = f"{type(error).__name__}: {error}"
    return built


def _adapt(built: Built, dtype: str, dim: int, long_shape: Shape | None) -> None:
    variant, first = VARIANTS[built.variant], (dtype, dim) == FORMS[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{variant.name}.py"
        path.write_text(variant.source(long_shape is not None))
        adapted = adapt_unchecked(path, FORWARD, replace(DEFAULT_SHAPE, D=dim), dtype)
        attention = adapted.reference.attention
        lowered = lower_backward(adapted)
        built.texts, built.forward = lowered.texts, adapted.text
        if long_shape is not None:
            built.captures = attention.captures(long_shape, attention.extra(long_shape), {})
            return
        shapes = fitting_shapes(attention.spec, [replace(s, D=dim) for s in SHAPES])
        for seed, shape in list(enumerate(shapes))[:: 1 if first else SPARSE]:
            kind = KINDS[seed % len(KINDS)]
            approximated = approximations(lowered.targets.pairs)
            problem = make_gradient_problem(attention, lowered.gradient, kind, shape, seed, dtype, approximated)
            built.problems.append((problem, *saved(attention, problem)))
        if first:
            built.mutants = dict(_mutants(lowered))


def _compile(built: Built, dtype: str, dim: int, arch: str) -> None:
    for texts in filter(None, (built.texts, *built.mutants.values())):
        for text in texts:
            compile_best(text.source, text.contract, DTYPES[dtype], dim, arch, include_dirs=text.include_dirs)


def _mutants(lowered: Lowered) -> Iterator[tuple[str, Texts]]:
    """Wrong passes that a text can say."""
    for name, wrong in backward_mutants(lowered.targets, lowered.gradient):
        try:
            yield name, lowered.of(wrong).texts
        except CuError:
            continue


# ---- with one --------------------------------------------------------------------------------------------------------


def check_backward(built: Iterable[Built], device: Device) -> Iterator[Outcome]:
    """Each problem of each variant, twice: dk and dv have the same bits. Then wrong passes."""
    for item in built:
        if item.texts is None or item.fault:
            yield Outcome(item.variant, item.form, "", math.inf, item.fault or "not built")
            continue
        for problem, out, lse in item.problems:
            yield _checked(item, BackwardLauncher.of(device, item.texts, say=_quiet), problem, out, lse)
        for name, texts in item.mutants.items():
            yield _rejected(item, name, BackwardLauncher.of(device, texts, say=_quiet))


def _checked(item: Built, launch: BackwardLauncher, problem: GradientProblem, out: Tensor, lse: Tensor) -> Outcome:
    name = f"{problem.inputs} {problem.shape}"
    try:
        first, second = (_gradients(launch, problem, out, lse) for _ in range(2))
    except CuError as error:
        return Outcome(item.variant, item.form, name, math.inf, str(error))
    judged = problem.judge(first)
    worst = max(j.worst for j in judged.values())
    fault = "; ".join(f"{n} at {j.where} {j.value}, expected {j.expected}" for n, j in judged.items() if not j.accepted)
    if not (torch.equal(first.dk, second.dk) and torch.equal(first.dv, second.dv)):
        fault = "two runs differ"
    return Outcome(item.variant, item.form, name, worst, fault)


def _rejected(item: Built, name: str, launch: BackwardLauncher) -> Outcome:
    """Of a wrong pass: told by some problem, or equal to the right one in all of them."""
    assert item.texts is not None
    right = BackwardLauncher.of(launch.rows.device, item.texts, say=_quiet)
    differs, worst = False, 0.0
    for problem, out, lse in item.problems:
        try:
            wrong = _gradients(launch, problem, out, lse)
        except CuError:  # told before it gives anything
            return Outcome(item.variant, item.form, "all", math.inf, "", name)
        worst = max(worst, *(j.worst for j in problem.judge(wrong).values()))
        expected = _gradients(right, problem, out, lse)
        differs |= not all(torch.equal(getattr(wrong, n), getattr(expected, n)) for n in ("dk", "dv"))
        differs |= not torch.allclose(wrong.dq.float(), expected.dq.float(), rtol=1e-2, atol=1e-3)
    fault = "accepted" if differs and worst <= 1.0 else ""
    return Outcome(item.variant, item.form, "all", worst, fault, name)


def _gradients(launch: BackwardLauncher, problem: GradientProblem, out: Tensor, lse: Tensor) -> Gradients:
    device = launch.rows.device.torch_device
    p = problem
    q, k, v, o, rows, dout = (x.to(device) for x in (p.q, p.k, p.v, out, lse, p.dout))
    dlse = None if p.dlse is None else p.dlse.to(device)
    captures = on_device(cast("Mapping[str, CaptureValue]", p.captures), device)
    return Gradients(*(x.cpu() for x in launch(q, k, v, o, rows, dout, dlse, captures)))


def time_backward(
    built: Iterable[Built], shape: Shape, device: Device, peers: Sequence[str], rounds: int, clock: Clock = cuda_clock
) -> Iterator[Row]:
    for item in built:
        if item.form.endswith("long") and item.texts is not None and item.forward is not None:
            yield _timed(item, item.texts, item.forward, shape, device, peers, rounds, clock)


def _timed(
    item: Built, texts: Texts, forward: KernelText, shape: Shape, device: Device, peers: Sequence[str], rounds: int,
    clock: Clock,
) -> Row:  # fmt: skip
    variant = VARIANTS[item.variant]
    q, k, v = long_inputs(shape, device.torch_device)
    dout = torch.randn_like(q)
    captures = on_device(cast("Mapping[str, CaptureValue]", item.captures), device.torch_device)
    out, lse = _forward(Launcher(device, forward, say=_quiet), q, k, v, captures)
    launch = BackwardLauncher.of(device, texts, say=_quiet)
    works: dict[str, Callable[[], object]] = {FORWARD: lambda: launch(q, k, v, out, lse, dout, None, captures)}
    with tempfile.TemporaryDirectory() as folder:
        reference = variant.load(long=True, folder=Path(folder))
    learned = tuple(x.detach().clone().requires_grad_() for x in (q, k, v))
    setting = Setting(variant, *learned, extra_of(reference, shape, device.torch_device))
    faults: dict[str, Timing] = {}
    makers: dict[str, Callable[[], Mapping[str, Work | None]]] = {
        "sdpa": lambda: {f"SDPA {name}": work for name, work in sdpa(setting).items()},
        "flex": lambda: {"Flex": flex(setting)},
    }
    for peer in peers:
        try:
            works |= {n: _backward_of(work, learned, dout) for n, work in makers[peer]().items() if work is not None}
        except Exception as error:  # a peer may fail in any way; it is reported beside the others
            faults[peer] = Timing(fault=f"{type(error).__name__}: {error}")
    flops = PRODUCTS * setting.flops()
    return Row(item.variant, flops, {**interleave(works, clock, rounds=rounds), **faults})


def _forward(
    launcher: Launcher, q: Tensor, k: Tensor, v: Tensor, captures: Mapping[str, CaptureValue]
) -> tuple[Tensor, Tensor]:
    """Output and LSE; zeros of a variant that has none, which its backward pass does not read."""
    has_lse = any(t.name == "lse" for t in launcher.text.contract.tensors)
    found = launcher(q, k, v, captures, lse=has_lse)
    return found if isinstance(found, tuple) else (found, torch.zeros(q.shape[:3], device=q.device))


def _backward_of(work: Work, inputs: tuple[Tensor, ...], dout: Tensor) -> Work:
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # the graph is walked again and again
    out = work()
    assert isinstance(out, Tensor)
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


def _quiet(_: str) -> None:
    """Of what a launcher says."""


# ---- tables ----------------------------------------------------------------------------------------------------------


def check_table(outcomes: Sequence[Outcome]) -> str:
    """One line a variant."""
    rows: list[tuple[object, ...]] = []
    for name in dict.fromkeys(o.variant for o in outcomes):
        right = [o for o in outcomes if o.variant == name and not o.mutant]
        wrong = [o for o in outcomes if o.variant == name and o.mutant]
        told = sum(o.worst > 1.0 for o in wrong)
        rows.append(
            (name, len(right), sum(bool(o.fault) for o in right), max(o.worst for o in right), told, len(wrong))
        )
    return render(("variant", "problems", "failed", "error / bound", "wrong passes told", "of"), rows)


def speed_table(rows: Sequence[Row]) -> str:
    used = [c for c in COLUMNS if any(c in r.timings for r in rows)]
    return render(("TFLOP/s, backward", *used), [(r.variant, *(r.tflops(c) for c in used)) for r in rows])
