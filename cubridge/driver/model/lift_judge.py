"""Judges CuIR that a model lifted from a kernel text that the rules cannot read: anchored in the text, statement by statement, and
computing what a source kernel computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cubridge.backend.compile.compiler import compile_unplaced, listed_instantiations
from cubridge.driver.model.agreement import agreement_faults
from cubridge.driver.model.anchored import CODE, Anchor, Anchored, read_anchored
from cubridge.driver.model.checks import verify_lifted
from cubridge.driver.model.instructions import TILES, Instructions, Site, operation_of
from cubridge.driver.model.judge import ValueJudge
from cubridge.driver.sandbox.texts import SandboxTools
from cubridge.frontend.cuda.checks import contract_faults
from cubridge.frontend.cuda.definitions import with_definitions
from cubridge.frontend.cuda.lift import Lifted
from cubridge.frontend.cuda.markers import read_source_map
from cubridge.ir.contract import HostValue, Instantiation
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Kernel, Scalar
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DTYPES
from cubridge.judge.attention import full_attention
from cubridge.judge.checker import Checker
from cubridge.judge.plan import SMALL, Case, emulator_cases, value_cases
from cubridge.judge.tools import EMULATED_HEAD_DIM

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.driver.sandbox.process import RunsJobs


@dataclass(frozen=True, slots=True)
class JudgedLift(Lifted):
    """CuIR that a model wrote, and that was judged. No round trip shows what a patch of its text says."""


@dataclass(frozen=True, slots=True)
class LiftJudge:
    """`cases`, `emulated`: problems of the value engine and of the emulator, where they are not the usual ones."""

    kernel: ChosenKernel
    dtype: str
    head_dim: int
    jobs: RunsJobs
    cases: Sequence[Case] | None = None
    emulated: Sequence[Case] | None = None

    def read(self, cuir: SourceFile) -> tuple[Lifted, Anchored]:
        """What can be judged without running anything. Errors: CU1xx, CU2xx; CU422 a text without region markers; CU428 against
        the launch contract; CU718 anchors; CU72x."""
        text = self.kernel.text.source
        anchored = read_anchored(cuir, text)
        self.jobs.run(verify_lifted, anchored.kernel)
        instructions = Instructions.of(self.kernel, text, self._instance)
        faults = [*self._contract_faults(anchored.kernel), *_anchor_faults(anchored, instructions)]
        faults = faults or [*agreement_faults(anchored, instructions)]
        if faults:
            raise CuError(*faults)
        source_map = with_definitions(read_source_map(text), instructions.program)
        return JudgedLift(anchored.kernel, source_map), anchored

    def judge(self, cuir: SourceFile) -> Lifted:
        """Errors: besides, CU316 and CU844 where CuIR or text do not compute full attention; CU718 for lines without effect."""
        lifted, anchored = self.read(cuir)
        attention = full_attention()
        cases = self.cases or value_cases(attention.spec, replace(SMALL, D=self.head_dim))
        ValueJudge(self.jobs, attention, self.dtype, cases).judge(lifted.kernel)
        self._check_text(self.kernel.text)
        self._check_deletions(anchored)
        return lifted

    @property
    def _instance(self) -> Instantiation:
        return self.kernel.instantiation(self.dtype, self.head_dim)

    # ---- against the contract ----------------------------------------------------------------------------------------

    def _contract_faults(self, kernel: Kernel) -> Iterator[Diagnostic]:
        contract = self.kernel.text.contract
        yield from contract_faults(kernel, contract, self._instance)
        constants = kernel.constant_values
        for name, value in self._instance.macros:
            if constants.get(name, value) != value:
                yield Diagnostic(CODE, f"`{name}` is {value} in this instantiation, not {constants[name]}", kernel.span)
        fields = {p.name: p for p in contract.params}
        for field in kernel.params:
            declared = fields.get(field.name)
            if declared is None:
                yield Diagnostic(CODE, f"`Params` has no field `{field.name}`", field.span)
            elif isinstance(field.type, Scalar) and declared.value != HostValue(field.type.host):  # pyright: ignore[reportArgumentType]
                yield Diagnostic(CODE, f"the host value of `{field.name}` is not the one in its comment", field.span)
            elif field.fixed == declared.patched:
                where = "variant_params" if declared.patched else "params"
                yield Diagnostic(CODE, f"`{field.name}` belongs into `{where}`", field.span)
        known = {f.name for f in kernel.params}
        for name, declared in fields.items():
            if name not in known and isinstance(declared.value, HostValue) and declared.size is None:
                yield Diagnostic(CODE, f"the field `{name}` of `Params` is missing", kernel.span)

    # ---- by running --------------------------------------------------------------------------------------------------

    def _check_text(self, text: KernelText) -> None:
        attention = full_attention()
        runner = SandboxTools(self.jobs, is_reply=True).emulator(text, self.dtype)
        cases = self.emulated or emulator_cases(attention.spec, EMULATED_HEAD_DIM)
        wrong = next((r for r in Checker(attention, self.dtype, {}).run(runner, cases) if not r.accepted), None)
        if wrong is not None:
            raise CuError(Diagnostic("CU844", f"the text itself does not compute full attention: {wrong.detail}"))

    def _check_deletions(self, anchored: Anchored) -> None:
        """Without the lines of an operation the compiled kernel is another one: they are no comment and no dead code."""
        text = self.kernel.text
        form = self.dtype, self.head_dim
        complete = self.jobs.run(assemble, text, *form)
        anchors = {a.lines: a for a in anchored.anchors if operation_of(a.statement)}
        for removed, anchor in anchors.items():
            shorter = replace(text, source=_without(text.source, removed))
            if self.jobs.run(assemble, shorter, *form) == complete:
                message = "the compiled kernel is the same without the lines of this statement"
                raise CuError(Diagnostic(CODE, message, anchor.place))


def assemble(text: KernelText, dtype: str, head_dim: int) -> str:
    """A job: what the compiler makes of one instantiation, without places; "" for a text that it refuses."""
    form = listed_instantiations(text.contract, DTYPES[dtype], head_dim)[0]
    return compile_unplaced(text.source, text.contract, form, text.include_dirs)


# ---- against the text ------------------------------------------------------------------------------------------------


def _anchor_faults(anchored: Anchored, instructions: Instructions) -> Iterator[Diagnostic]:
    """Every operation that orders or moves data is anchored to lines that reach its instruction, and each call site once."""
    sites = instructions.sites()
    operations = [(op, a) for a in anchored.anchors if (op := operation_of(a.statement))]
    for op, anchor in operations:
        if not _reach(sites, anchor)[op]:
            yield Diagnostic(CODE, f"the lines of this `{op}` do not reach its instruction", anchor.place)
    yield from _crowded(operations, sites)
    yield from _uncovered(operations, sites)
    counts = Counter(op for op, _ in operations if op not in TILES)
    for op in sorted({*counts, *instructions.totals} - TILES.keys()):
        if counts[op] != instructions.totals[op]:
            there = f"{instructions.totals[op]} times, with functions put in"
            message = f"the text has `{op}` {there}, and the CuIR {counts[op]} times"
            yield Diagnostic(CODE, message, anchored.kernel.span)


def _reach(sites: Sequence[Site], anchor: Anchor) -> Counter[str]:
    total: Counter[str] = Counter()
    for site in sites:
        if site.line in anchor.lines:
            total += site.reaches
    return total


def _crowded(operations: Sequence[tuple[str, Anchor]], sites: Sequence[Site]) -> Iterator[Diagnostic]:
    """Two statements that stand for one instruction."""
    groups: dict[tuple[str, frozenset[int]], list[Anchor]] = {}
    for op, anchor in operations:
        groups.setdefault((op, anchor.lines), []).append(anchor)
    for (op, _), anchors in groups.items():
        most = _reach(sites, anchors[0])[op]
        for anchor in anchors[most:] if most else ():
            yield Diagnostic(CODE, f"another `{op}` stands for these lines already", anchor.place)


def _uncovered(operations: Sequence[tuple[str, Anchor]], sites: Sequence[Site]) -> Iterator[Diagnostic]:
    """Call sites of tile operations in the kernel that no statement stands for. Where a statement stands for lines of a function
    that the kernel calls, its runs alone can tell."""
    for op in TILES:
        covered = {line for name, anchor in operations if name == op for line in anchor.lines}
        mine = [s for s in sites if s.reaches[op]]
        if any(s.line in covered and not s.in_entry for s in mine):
            continue
        for site in mine:
            if site.in_entry and site.line not in covered:
                yield Diagnostic(CODE, f"line {site.line} of the text reaches `{op}`, and no statement stands for it")


def _without(source: SourceFile, lines: frozenset[int]) -> SourceFile:
    kept = ["" if number in lines else line for number, line in enumerate(source.text.split("\n"), 1)]
    return SourceFile(source.name, "\n".join(kept).encode())
