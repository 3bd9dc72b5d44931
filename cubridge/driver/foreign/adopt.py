"""`cuirc adopt`: a copy of a foreign kernel whose mask and key range are hooks in a header, and variants of it by that header.

What an operand of the text's own condition is, a run says: a copy in which each is compared with a number of its own is lifted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cubridge.backend.ptx.machine import Schedule
from cubridge.backend.text.hooks import HIDE, KEEP, KEY_TILES, SAME_SCORE, SCORE, hook_header
from cubridge.backend.text.patch import TextEdit, apply_edits, diff_lines, unified_diff
from cubridge.driver.foreign.build import Built, build
from cubridge.driver.foreign.launch import launch_of
from cubridge.driver.foreign.lift import ForeignLift, lift_foreign
from cubridge.driver.foreign.runner import ForeignRunner
from cubridge.driver.foreign.scores import score_hook
from cubridge.driver.reference import TracedReference, read_reference
from cubridge.driver.verify import examine_ir, not_proved
from cubridge.engine.threads import one_thread
from cubridge.frontend.ptx.contract import read_foreign_contract
from cubridge.frontend.ptx.sites import BoundSite, MaskSite, bound_site, mask_site
from cubridge.ir.algebra.exprs import operands
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract, ParameterKind
from cubridge.ir.nodes import COMPARISONS, SIZES, Assign, Attr, Binary, Call, Expr, IntLit, Kernel, Name
from cubridge.ir.printer import print_expr, to_text
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.tile_shape import dtype_of, key_tile, size_of
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.plan import SMALL, emulator_cases, mutant_cases
from cubridge.judge.proof.read import ReadSpec, read_spec
from cubridge.judge.proof.unproved import Unproved
from cubridge.passes.base import PassContext
from cubridge.passes.kv_range import InferKvRange
from cubridge.passes.mask import RewriteMask
from cubridge.passes.pipeline import Pipeline
from cubridge.passes.runner import run_pipeline
from cubridge.verify.verifier import verify

HEADER: Final = "cubridge_hooks.cuh"
_ALONE: Final = "hooks say mask, key range and score; weights and what they sum to are the kernel's own"
_SECONDS: Final = 60.0
_APART: Final = 1_000_003
"""Numbers that probes compare with lie this far apart, beyond every length of a run."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """`source`: the kernel; `text`: its copy with hooks. `kernel`: what the copy says with this header."""

    source: SourceFile
    text: bytes
    header: str
    patch: bytes
    kernel: Kernel
    unproved: tuple[str, ...] = ()
    computes: str = "the same bits"

    def write(self, folder: Path, contract: Path) -> None:
        name = Path(self.source.name).name
        (folder / name).write_bytes(self.text)
        (folder / HEADER).write_text(self.header)
        (folder / f"{Path(name).stem}.patch").write_bytes(self.patch)
        (folder / f"{Path(name).stem}.cuir").write_text(to_text(self.kernel))
        shutil.copyfile(contract, folder / Path(name).with_suffix(".toml"))


def file_names(kernel: Path) -> list[str]:
    """What is written for a kernel."""
    return [kernel.name, HEADER, *(kernel.with_suffix(suffix).name for suffix in (".patch", ".cuir", ".toml"))]


def adopt(kernel: Path, contract: Path, reference: Path | None = None, function: str | None = None) -> Adopted:
    """`reference`, `function`: what the copy should compute; without one it gives the same bits as the kernel at every shape of
    the contract.

    Errors: as `lift_foreign`; CU47x to CU49x of the reference; CU856 where hooks cannot be placed; CU857 where the copy is another
    kernel; CU5xx of passes, CU603 for what a hook cannot say, CU844 and CU318 where the copy does not compute the reference."""
    wanted = None if reference is None else read_reference(reference, function, None)
    said, source = read_foreign_contract(contract), SourceFile.read(kernel)
    lifted = lift_foreign(kernel, contract)
    with tempfile.TemporaryDirectory() as made:
        placed = _Hooks.place(lifted, source, said, _Copies(Path(made), kernel.name, contract))
        same = placed.copy(lifted.kernel)
        _check_same(build(source, said, kernel.parent), placed.copies.build(same.text, said), said)
        return same if wanted is None else placed.variant(lifted.kernel, wanted)


@dataclass(frozen=True, slots=True)
class _Copies:
    """Builds copies of the kernel `name`, with its header beside them."""

    folder: Path
    name: str
    contract: Path

    def lift(self, text: bytes, header: str = "") -> ForeignLift:
        (self.folder / HEADER).write_text(header)
        return lift_foreign(self.folder / self.name, self.contract, SourceFile(self.name, text))

    def build(self, text: bytes, contract: ForeignContract) -> Built:
        """With the last header."""
        return build(SourceFile(self.name, text), contract, self.folder)


@dataclass(frozen=True, slots=True)
class _Hooks:
    """Where the hooks of one kernel stand, and what they are given: C expressions by the names of the header."""

    source: SourceFile
    contract: ForeignContract
    copies: _Copies
    mask: MaskSite
    bound: BoundSite
    given: dict[str, str]
    row: str
    key: str
    key_rows: int

    @staticmethod
    def place(lifted: ForeignLift, source: SourceFile, contract: ForeignContract, copies: _Copies) -> _Hooks:
        kernel = lifted.kernel
        mask = kernel.region("mask")
        if not mask.body:
            raise CuError(Diagnostic("CU856", "the kernel hides no score, so that no mask has a place", kernel.span))
        _check_every_tile(kernel)
        at, bound = mask_site(source, mask.span), bound_site(source, kernel.region("key_sequence").span)
        size = key_tile(kernel)
        assert size is not None
        given = _given(kernel, contract)
        row, key = _meanings(source, at, copies, given)
        return _Hooks(source, contract, copies, at, bound, given, row, key, size_of(kernel, size))

    @property
    def sizes(self) -> list[str]:
        return [name for name in SIZES if name in self.given]

    def copy(self, kernel: Kernel, score: Expr = SAME_SCORE) -> Adopted:
        """The copy with hooks that say what a kernel says, with another score, and what a run of it is."""
        header = hook_header(kernel, self.sizes, self.key_rows, score)
        edits = list(self._edits())
        text = apply_edits(self.source, edits)
        name = Path(self.source.name).name
        patch = unified_diff(diff_lines(self.source, edits), name)
        return Adopted(self.source, text, header, patch, self.copies.lift(text, header).kernel)

    def _edits(self) -> Iterator[TextEdit]:
        tile = ", ".join(self.given[name] for name in (*self.sizes, "b", "h", "q_start"))
        keep = f"{KEEP}({self.row}, {self.key}, {tile})"
        yield TextEdit(Span(self.source, 0, 0), f'#include "{HEADER}"\n'.encode())
        hidden = f"{HIDE}({keep}, {SCORE}({self.mask.score.text}))"
        yield TextEdit(
            self.mask.choice, (f"{self.mask.score.text} = {hidden};" if self.mask.assigns else hidden).encode()
        )
        count = f"{KEY_TILES}({tile})"
        yield TextEdit(
            self.bound.bound, (count if self.bound.unit == "tiles" else f"{count} * {self.key_rows}").encode()
        )

    def variant(self, source: Kernel, reference: TracedReference) -> Adopted:
        spec = reference.attention.spec
        if spec.captures:
            raise CuError(Diagnostic("CU603", "a hook cannot read captured values yet", spec.mask.span))
        passes = Pipeline((RewriteMask(spec.mask), InferKvRange()))
        score = score_hook(_read(source), spec, self.contract.head_dim)
        made = self.copy(run_pipeline(source, passes, PassContext(), _verified), score)
        faults = examine_ir(made.kernel, reference.attention)
        if faults:
            raise CuError(*(replace(f, help=f.help or _ALONE) for f in faults))
        _check_text(self.copies.build(made.text, self.contract), self.contract, made.kernel, reference)
        unproved = not_proved(made.kernel, reference.attention)
        return Adopted(made.source, made.text, made.header, made.patch, made.kernel, unproved, reference.attention.name)


def _check_every_tile(kernel: Kernel) -> None:
    """Errors: CU856 where scores of some key tiles have no mask that could be another one."""
    full = next(s for s in kernel.region("key_sequence").body if isinstance(s, Assign) and s.target == Name("full_hi"))
    if full.value != Name("lo"):
        message = "scores are hidden in the first key tiles alone, so that another mask has no place in the others"
        raise CuError(Diagnostic("CU856", message, kernel.region("mask").span))


def _read(kernel: Kernel) -> ReadSpec:
    try:
        return read_spec(kernel)
    except Unproved as error:
        raise CuError(
            Diagnostic("CU603", f"the kernel's own scores are not explained: {error}", kernel.span)
        ) from error


def _verified(kernel: Kernel) -> None:
    faults = verify(kernel)
    if faults:
        raise CuError(*faults)


# ---- what hooks are given --------------------------------------------------------------------------------------------


def _given(kernel: Kernel, contract: ForeignContract) -> dict[str, str]:
    """Sizes that parameters hold, and the query tile, in the text's own names."""
    given = {p.value.id: p.name for p in contract.values if p.kind is ParameterKind.INT and isinstance(p.value, Name)}
    for statement in kernel.schedule.body:
        match statement:
            case Assign(Attr(Name("tile"), name), value) if name in ("b", "h", "q_start"):
                given[name] = _block_text(value, kernel)
            case _:
                pass
    return given


def _block_text(value: Expr, kernel: Kernel) -> str:
    match value:
        case Name(name) if name.startswith("block_"):
            return f"(int)blockIdx.{name[-1]}"
        case Name(name) if name in kernel.constant_values:
            return str(int(kernel.constant(name)))
        case IntLit(number):
            return str(number)
        case Binary("+" | "-" | "*" as op, left, right):
            return f"({_block_text(left, kernel)} {op} {_block_text(right, kernel)})"
        case _:
            message = f"`{print_expr(value)}` of a query tile has no spelling in a hook"
            raise CuError(Diagnostic("CU856", message, kernel.schedule.span))


def _meanings(source: SourceFile, site: MaskSite, copies: _Copies, given: dict[str, str]) -> tuple[str, str]:
    """Which operands of the condition are the score's row and its key; the row is the thread's where none is."""
    sizes = set(given.values())
    probes = {(n + 1) * _APART: text for n, text in enumerate(o for o in site.operands if o not in sizes)}
    condition = " && ".join(f"({text}) < {number}" for number, text in probes.items())
    if not site.keeps_where_true:
        condition = f"!({condition})"
    kernel = copies.lift(apply_edits(source, [TextEdit(site.condition, condition.encode())])).kernel
    found: dict[str, str] = {}
    for term in _terms(kernel):
        match term:
            case Binary(op, Name("i" | "j" as name), IntLit(n)) | Binary(op, IntLit(n), Name("i" | "j" as name)) if (
                op in COMPARISONS and (number := round(n / _APART) * _APART) in probes
            ):
                found[name] = probes[number]
            case _:
                pass
    if "j" not in found:
        raise CuError(Diagnostic("CU856", "no operand of this condition is the key of the score", site.condition))
    return found.get("i") or _row_of_thread(kernel, site, given), found["j"]


def _terms(kernel: Kernel) -> Iterator[Expr]:
    for statement in kernel.region("mask").body:
        if isinstance(statement, Assign) and isinstance(statement.value, Call):
            yield from operands("&", statement.value.args[0])


def _row_of_thread(kernel: Kernel, site: MaskSite, given: dict[str, str]) -> str:
    """Where a block has as many rows as threads, and each thread one, its own."""
    if kernel.constant("BLOCK_Q") != kernel.constant("NUM_THREADS"):
        raise CuError(Diagnostic("CU856", "no operand of this condition is the row of the score", site.condition))
    return f"({given['q_start']} + (int)threadIdx.x)"


# ---- what holds a copy to account ------------------------------------------------------------------------------------


def _check_same(first: Built, second: Built, contract: ForeignContract) -> None:
    """Errors: CU857 where an output differs in a bit."""
    for shape in contract.shapes:
        outputs = [
            b.machine.run(launch_of(b, contract, shape).ptx, Schedule.FORWARD, _SECONDS) for b in (first, second)
        ]
        if outputs[0] != outputs[1]:
            message = f"the copy with hooks gives other bits at {shape}"
            raise CuError(Diagnostic("CU857", message, Span(first.source, 0, 0)))


def _check_text(built: Built, contract: ForeignContract, kernel: Kernel, reference: TracedReference) -> None:
    """The copy itself on the emulator, against fp64. Errors: CU844."""
    attention, dim = reference.attention, contract.head_dim
    cases = (*emulator_cases(attention.spec, dim)[:2], *mutant_cases(attention.spec, replace(SMALL, D=dim))[1:])
    with one_thread():
        results = Checker(attention, dtype_of(kernel), approximations(kernel)).run(
            ForeignRunner(built, contract), cases
        )
    for result in results:
        if not result.accepted:
            message = f"{result.stage}: the copy does not compute {attention.name} at {result.shape}: {result.detail}"
            raise CuError(Diagnostic("CU844", message, kernel.span))
