"""Every check of one adaptation that this machine can run, in an order that keeps both cores busy."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, TypeVar

from cubridge.backend.ptx.device import ONE_SCHEDULE
from cubridge.driver.forms import in_form, lift_form, listed_forms, same_program
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.stopwatch import Stopwatch, counted
from cubridge.driver.transfer import transfer_unverified
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.findings import Compiled, Findings, MutantResult, Verdict
from cubridge.judge.list_mutants import list_mutants
from cubridge.judge.long_lengths import check_long_lengths
from cubridge.judge.mutants import mutants
from cubridge.judge.plan import emulator_cases, gpu_cases, mutant_cases, value_cases
from cubridge.judge.proof.prove import prove
from cubridge.judge.runners import Runner, ValueRunner
from cubridge.judge.tools import EMULATED_HEAD_DIM, Here, Tools
from cubridge.judge.well_formed import verify_kernel

if TYPE_CHECKING:
    from cubridge.driver.adapted import Adapted
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.spec import AttentionSpec, Shape
    from cubridge.judge.problem import Problem

T = TypeVar("T")

EMULATED_MUTANTS: Final = 2
"""Mutants that are emulated besides; all are run on the value engine."""
FEWEST_MUTANTS: Final = 4
COMPILE_PART: Final = "check: compile"
EMULATOR_PART: Final = "check: emulator"
"""Of the seconds of a check, beside others."""


def check_adapted(
    adapted: Adapted, pool: ThreadPoolExecutor, tools: Tools | None = None, watch: Stopwatch | None = None
) -> Findings:
    """Run all checks. A missing tool (compiler, GPU) lowers the verdict and is listed, it fails nothing. Errors: where all runs are
    right, what `check_long_lengths` raises."""
    tools, watch = tools or Here(), watch or Stopwatch()
    compiling = pool.submit(_compile, adapted, tools, watch)
    building = pool.submit(_load, adapted, tools, watch, compiling)
    proving = pool.submit(prove, adapted.target, adapted.reference.attention.spec)
    spec = adapted.reference.attention.spec
    told = counted(watch.progress, "check", _most_runs(spec, adapted.shape))
    checker = Checker(adapted.reference.attention, adapted.dtype, approximations(adapted.target), told)
    cases = list(checker.run(ValueRunner(adapted.target), value_cases(spec, adapted.shape)))
    missing: list[str] = []
    emulator = _available(building, missing)
    if emulator is not None:
        emulated = emulator_cases(spec, EMULATED_HEAD_DIM)
        with watch.part(EMULATOR_PART):
            cases += checker.run(emulator, emulated)
        if not emulated:
            missing.append(f"nothing is emulated: no shape of head dim {EMULATED_HEAD_DIM} meets the preconditions")
    mutants = tuple(_reject_mutants(adapted, checker, pool, None if emulator is None else tools))
    compiled = _available(compiling, missing)
    gpu = _available(pool.submit(tools.gpu, adapted.text), missing)
    if gpu is not None:
        cases += checker.run(gpu, gpu_cases(spec, adapted.shape))
    if len(mutants) < FEWEST_MUTANTS:
        missing.append(f"only {len(mutants)} wrong kernels differ from this one in the problems of the check")
    missing += [f"sizes {s} are passed over: {e.diagnostics[0].message}" for s, e in checker.passed_over.items()]
    points = 0
    if all(case.accepted for case in cases):
        points = check_long_lengths(adapted.target, spec)
        missing += check_other_forms(adapted, checker)
    verdict = _verdict(emulator is not None, compiled is not None, gpu is not None)
    found = () if compiled is None else (compiled,)
    return Findings(tuple(cases), mutants, found, verdict, tuple(missing), proving.result(), points)


def _most_runs(spec: AttentionSpec, shape: Shape) -> int:
    """Of the value engine, the emulator and wrong kernels, as far as they are known before."""
    cases = (*value_cases(spec, shape), *emulator_cases(spec, EMULATED_HEAD_DIM), *mutants(spec))
    return len(cases) + EMULATED_MUTANTS


def check_other_forms(adapted: Adapted, checker: Checker) -> list[str]:
    """The patched text in the forms that a compiler may take instead of the first: rules, order, long lengths, and runs of a form
    that differs in more than constants. What could not be looked at. Errors: CU2xx, CU42x, and as `check_long_lengths`."""
    first, *others = listed_forms(adapted.kernel, adapted.dtype, adapted.shape.D)
    if not others:
        return []
    if not adapted.is_read:
        return [f"the form {form} is not looked at: the text is not lifted" for form in others]
    spec = adapted.reference.attention.spec
    lifted = [lift_form(adapted.kernel, form, adapted.text.source) for form in (first, *others)]
    for again in lifted[1:]:
        try:
            verify_kernel(again.kernel)
            check_long_lengths(again.kernel, spec)
        except CuError as error:
            raise CuError(*in_form(error.diagnostics, again.form), exit_code=error.exit_code) from None
        if not same_program(lifted[0].kernel, again.kernel):
            wrong = [
                r for r in checker.run(ValueRunner(again.kernel), value_cases(spec, adapted.shape)) if not r.accepted
            ]
            if wrong:
                message = f"{wrong[0].stage}: wrong at {wrong[0].shape} ({wrong[0].inputs}): {wrong[0].detail.splitlines()[0]}"
                fault = Diagnostic("CU844", message, again.kernel.span)
                raise CuError(*in_form([fault], again.form), exit_code=3)
    return []


def _compile(adapted: Adapted, tools: Tools, watch: Stopwatch) -> Compiled:
    with watch.part(COMPILE_PART):
        return tools.compile(adapted.text, adapted.dtype, adapted.shape.D)


def _load(adapted: Adapted, tools: Tools, watch: Stopwatch, compiling: Future[Compiled]) -> Runner:
    """The text on the emulator, after the compile that gives both machine code and PTX."""
    wait([compiling])
    with watch.part(EMULATOR_PART):
        return tools.emulator(adapted.text, adapted.dtype)


def _verdict(emulated: bool, compiled: bool, ran: bool) -> Verdict:
    """A level counts where those below it were reached."""
    reached = (Verdict.INTERPRETED, Verdict.EMULATED, Verdict.COMPILED, Verdict.GPU)
    return reached[(emulated, emulated and compiled, emulated and compiled and ran).count(True)]


def _available(future: Future[T], missing: list[str]) -> T | None:
    """The result, or None where it needs a tool that is not here, which is noted."""
    try:
        return future.result()
    except CuError as error:
        if error.exit_code != 5:
            raise
        missing.append(error.diagnostics[0].message)
        return None


def _reject_mutants(
    adapted: Adapted, checker: Checker, pool: ThreadPoolExecutor, tools: Tools | None
) -> Iterator[MutantResult]:
    """Wrong specs, adapted as the right one was, and wrong walks of its lists of key tiles. Each must be rejected, by every stage
    that runs it; texts are built while others run, by `tools`, if there is an emulator. A wrong spec that no kernel can be made of
    shows nothing and is left out."""
    cases = mutant_cases(adapted.reference.attention.spec, adapted.shape)
    wanted = EMULATED_MUTANTS if tools is not None and adapted.shape.D == EMULATED_HEAD_DIM else 0
    texts: list[tuple[str, Problem, Future[Runner]]] = []
    for name, wrong, problem in checker.wrong_specs(cases):
        try:
            target = transfer_unverified(adapted.lifted.kernel, wrong)
        except CuError:
            continue
        if tools is not None and len(texts) < wanted:
            texts.append((f"{name}, as text", problem, pool.submit(_text_mutant, adapted, target, tools)))
        yield checker.reject(name, problem, ValueRunner(target))
    for name, target, problem in list_mutants(
        adapted.target, adapted.reference.attention.spec, checker.problems(cases)
    ):
        yield checker.reject(name, problem, ValueRunner(target))
    for name, problem, building in texts:
        yield checker.reject(name, problem, building.result())


def _text_mutant(adapted: Adapted, target: Kernel, tools: Tools) -> Runner:
    patched = lower_kernel(adapted.kernel, adapted.lifted, target, adapted.dtype, adapted.shape.D)
    text = adapted.kernel.with_text(patched_source(patched))
    return tools.emulator(text, adapted.dtype, schedules=ONE_SCHEDULE)
