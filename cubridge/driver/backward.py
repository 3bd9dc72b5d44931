"""The backward pass of an adaptation: the kernels of its gradient, their texts and patches, and what checking them found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cubridge.backend.launch.backward import BackwardLauncher
from cubridge.backend.ptx.device import PtxDevice
from cubridge.derive.explain import explain_gradient
from cubridge.driver.kernels import BACKWARD, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.report import BackwardReport, Changed
from cubridge.engine.dense_gradient import Gradients
from cubridge.engine.threads import one_thread
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.printer import to_text
from cubridge.ir.spec import Shape
from cubridge.ir.types import DTYPES
from cubridge.judge.backward_mutants import backward_mutants
from cubridge.judge.checker import approximations
from cubridge.judge.findings import CaseResult, MutantResult
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from cubridge.judge.gradient_runs import Pass, run_pass, saved
from cubridge.judge.list_makers import check_makers
from cubridge.judge.list_mutants import wrong_walks
from cubridge.judge.plan import Case, emulated_gradient_cases
from cubridge.judge.tools import EMULATED_HEAD_DIM, compile_text
from cubridge.judge.well_formed import verify_kernel
from cubridge.passes.gradient import backward_targets

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText
    from cubridge.backend.text.lower import Patched
    from cubridge.driver.adapted import Adapted
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.ir.gradient import GradientSpec

FORWARD: Final = "sm90a"
"""The forward kernel whose backward pass is packaged."""
NAMES: Final = ("backward_rows", "backward", "backward_dq")
"""What the kernels of a pass are called, in the order in which they run."""
PATCH: Final = "backward.patch"
_CASES: Final = (
    Case("index-coded V", Shape(1, 4, 2, 130, 150, 0), 1),
    Case("large scores", Shape(2, 2, 2, 70, 257, 0), 2),
)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A backward pass as texts, not checked. Of each kernel, in the order of `NAMES`: `chosen`, `lifted` as they come, `targets`,
    `patched`."""

    gradient: GradientSpec
    dtype: str
    head_dim: int
    chosen: tuple[ChosenKernel, ...]
    lifted: tuple[Lifted, ...]
    targets: Pass
    patched: tuple[Patched, ...]

    @property
    def texts(self) -> tuple[KernelText, KernelText, KernelText]:
        rows, pairs, last = (c.with_text(patched_source(p)) for c, p in zip(self.chosen, self.patched, strict=True))
        return rows, pairs, last

    def here(self) -> Lowered:
        """With the headers of this machine."""
        return replace(self, chosen=tuple(choose_kernel(kernel.name) for kernel in self.chosen))

    def of(self, targets: Pass) -> Lowered:
        """Other targets of the same kernels. Errors: CU2xx, CU6xx."""
        for target in targets:
            verify_kernel(target)
        kernels = zip(NAMES, self.chosen, self.lifted, targets, strict=True)
        patched = (lower_kernel(c, s, k, self.dtype, self.head_dim, f"{n}.cu") for n, c, s, k in kernels)
        return replace(self, targets=targets, patched=tuple(patched))


@dataclass(frozen=True, slots=True)
class Backward:
    lowered: Lowered
    report: BackwardReport

    def files(self) -> dict[str, bytes]:
        """What `cuirc adapt --grad` writes beside the forward's files."""
        targets, patched = self.lowered.targets, self.lowered.patched
        texts = {f"{name}.cu": p.text for name, p in zip(NAMES, patched, strict=True)}
        kernels = {f"{name}.cuir": to_text(k).encode() for name, k in zip(NAMES, targets, strict=True)}
        return {**texts, **kernels, PATCH: b"".join(p.patch for p in patched)}


def lower_backward(adapted: Adapted) -> Lowered:
    """The backward pass of an adapted kernel, verified as CuIR and not run. Errors: as `adapt_backward`."""
    if adapted.kernel.name != FORWARD:
        message = f"`{adapted.kernel.name}` has no backward pass here"
        raise Refused(Diagnostic("CU534", message, help=f"take --kernel {FORWARD}"))
    gradient = adapted.reference.gradient()
    chosen = tuple(choose_kernel(name) for name in BACKWARD)
    lifted = tuple(lift_kernel(text, adapted.dtype, adapted.shape.D) for text in chosen)
    sources = Pass(*(found.kernel for found in lifted))
    made = backward_targets(gradient, adapted.target, *sources)
    whole = Lowered(gradient, adapted.dtype, adapted.shape.D, chosen, lifted, sources, ())
    return whole.of(Pass(made.rows, made.pairs, made.last))


def adapt_backward(adapted: Adapted) -> Backward:
    """The backward pass of an adapted kernel, checked. Errors: CU534 for a kernel without one, or a gradient that it cannot say;
    CU514 and CU530 to CU533 for one that is not derived."""
    return check_backward(adapted, lower_backward(adapted))


def check_backward(adapted: Adapted, lowered: Lowered) -> Backward:
    """`lowered` with what its runs, and those of wrong passes, say of it."""
    with one_thread():
        return Backward(lowered, _Check(adapted, lowered.gradient, lowered.targets).report(lowered))


class _Check:
    """Runs the pass, and wrong ones, on problems of the reference."""

    def __init__(self, adapted: Adapted, gradient: GradientSpec, targets: Pass) -> None:
        self.attention = adapted.reference.attention
        self.gradient = gradient
        self.targets = targets
        self.dtype = adapted.dtype
        self.dim = adapted.shape.D

    def report(self, lowered: Lowered) -> BackwardReport:
        patched, texts = lowered.patched, lowered.texts
        problems = [*self._problems(*_CASES, dim=self.dim)]
        right = [self._run(self.targets, p) for p in problems]
        cases = [self._case("value engine", p, got) for p, got in zip(problems, right, strict=True)]
        return BackwardReport(
            gradient=explain_gradient(self.gradient),
            changed={
                n: Changed(p.regions_changed, p.lines_added, p.lines_removed)
                for n, p in zip(NAMES, patched, strict=True)
            },
            cases=(*cases, *self._emulated(texts)),
            mutants=(
                *(self._mutant(n, wrong, problems) for n, wrong in backward_mutants(self.targets, self.gradient)),
                *self._wrong_walks(problems, right),
            ),
            compiled=(compile_text(texts[1], self.dtype, self.dim),),
        )

    def _problems(self, *cases: Case, dim: int) -> Iterator[GradientProblem]:
        approximated = approximations(self.targets.pairs)
        for case in cases:
            for shape in fitting_shapes(self.attention.spec, [replace(case.shape, D=dim)]):
                yield make_gradient_problem(
                    self.attention, self.gradient, case.inputs, shape, case.seed, self.dtype, approximated
                )

    def _run(self, kernels: Pass, problem: GradientProblem) -> Gradients:
        return run_pass(kernels, self.attention, problem)

    def _case(self, stage: str, problem: GradientProblem, got: Gradients) -> CaseResult:
        judged = problem.judge(got)
        name, worst = max(judged.items(), key=lambda item: item[1].worst)
        accepted = all(j.accepted for j in judged.values())
        detail = (
            ""
            if accepted
            else f"`{name}` at {list(worst.where)} is {worst.value:.6g}, and should be {worst.expected:.6g}"
        )
        return CaseResult(stage, str(problem.shape), problem.inputs, worst.worst, accepted, detail)

    def _emulated(self, texts: tuple[KernelText, KernelText, KernelText]) -> Iterator[CaseResult]:
        dims = texts[1].contract.head_dims
        dim = EMULATED_HEAD_DIM if EMULATED_HEAD_DIM in dims else dims[0]
        check_makers(PtxDevice(), texts[1], DTYPES[self.dtype], dim)
        launch = BackwardLauncher.of(PtxDevice(), texts, say=lambda _: None)
        for p in self._problems(*emulated_gradient_cases(self.attention.spec, dim), dim=dim):
            out, lse = saved(self.attention, p)
            yield self._case("emulator", p, Gradients(*launch(p.q, p.k, p.v, out, lse, p.dout, p.dlse, p.captures)))

    def _mutant(self, name: str, wrong: Pass, problems: list[GradientProblem]) -> MutantResult:
        try:
            told = any(not p.accepts(self._run(wrong, p)) for p in problems)
        except CuError as error:
            return MutantResult(name, "value engine", error.diagnostics[0].message)
        return MutantResult(name, "value engine" if told else None)

    def _wrong_walks(self, problems: list[GradientProblem], right: list[Gradients]) -> Iterator[MutantResult]:
        """Of lists of query tiles. A walk that gives the right bits in all problems is wrong in none of them, and left out."""
        for name, pairs in wrong_walks(self.targets.pairs):
            wrong = self.targets._replace(pairs=pairs)
            if any(not _same(self._run(wrong, p), expected) for p, expected in zip(problems, right, strict=True)):
                yield self._mutant(name, wrong, problems)


def _same(one: Gradients, other: Gradients) -> bool:
    return all(a.equal(b) for a, b in ((one.dq, other.dq), (one.dk, other.dk), (one.dv, other.dv)))
