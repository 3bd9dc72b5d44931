"""The forms of a kernel: every element type, head dim and choice of macros that its contract lists, each read by itself.

A text may say another thing in each of them. Static rules and the order engine look at all. Of forms whose CuIR differs in
element types alone, one is run: no rule of CuIR asks for the element type, and checks bound what rounding does. Of forms that
differ in constants besides, all are run, and the first is proved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cubridge.driver.lift import lift_kernel
from cubridge.frontend.cuda.views import MISFIT
from cubridge.ir.contract import instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic, Note, Refused
from cubridge.ir.nodes import Kernel
from cubridge.ir.printer import to_text
from cubridge.ir.tile_shape import head_dim as head_dim_of
from cubridge.ir.types import DTYPES, DType

if TYPE_CHECKING:
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.ir.contract import Instantiation
    from cubridge.ir.source import SourceFile


@dataclass(frozen=True, slots=True)
class Form:
    """One of the forms that a contract lists."""

    dtype: str
    head_dim: int
    instance: Instantiation

    def __str__(self) -> str:
        macros = " ".join(f"{name}={value}" for name, value in self.instance.macros)
        return f"{self.dtype}, head dim {self.head_dim} ({macros})"


@dataclass(frozen=True, slots=True)
class LiftedForm:
    form: Form
    kernel: Kernel


def listed_forms(kernel: ChosenKernel, dtype: str | None, head_dim: int | None) -> tuple[Form, ...]:
    """All, or those of an element type or a head dim. Errors: CU809 where there is none."""
    contract = kernel.text.contract
    names = [name for name, of in DTYPES.items() if of in dict(contract.dtypes) and dtype in (None, name)]
    dims = [d for d in contract.head_dims if head_dim in (None, d)]
    if not names or not dims:
        listed = ", ".join(n for n, of in DTYPES.items() if of in dict(contract.dtypes))
        what = " and ".join([*([dtype] if dtype else []), *([f"head dim {head_dim}"] if head_dim is not None else [])])
        help = f"it is written for {listed} and head dim {', '.join(map(str, contract.head_dims))}"
        raise Refused(Diagnostic("CU809", f"{contract.source} has no form for {what}", help=help))
    return tuple(Form(n, d, i) for d in dims for n in names for i in instantiations(contract, DTYPES[n], d))


def lift_form(kernel: ChosenKernel, form: Form, source: SourceFile | None = None) -> LiftedForm:
    """Errors: as `lift_kernel`, with the form; CU428 for a form of another head dim than its own."""
    try:
        lifted = lift_kernel(kernel, form.dtype, form.head_dim, source, form.instance).kernel
        if head_dim_of(lifted) not in (0, form.head_dim):
            message = f"the form for head dim {form.head_dim} computes with head dim {head_dim_of(lifted)}"
            raise CuError(Diagnostic(MISFIT, message, kernel.text.contract.place("head_dims")))
    except CuError as error:
        raise CuError(*in_form(error.diagnostics, form), exit_code=error.exit_code) from None
    return LiftedForm(form, lifted)


def in_form(faults: Iterable[Diagnostic], form: Form) -> tuple[Diagnostic, ...]:
    """Faults with the form in which they are some."""
    return tuple(replace(f, notes=(*f.notes, Note(f"in the form {form}"))) for f in faults)


def same_program(a: Kernel, b: Kernel) -> bool:
    """Do two kernels differ in constants and element types alone."""
    return _program(a) == _program(b)


def _program(kernel: Kernel) -> str:
    return _without_elements(replace(kernel, constants=()))


def to_run(forms: Iterable[LiftedForm]) -> tuple[tuple[LiftedForm, bool], ...]:
    """One of each that differ in more than element types; whether it is to be proved too, as none was that differs from it in
    constants alone."""
    runs: dict[str, tuple[LiftedForm, bool]] = {}
    proved: set[str] = set()
    for lifted in forms:
        text = _without_elements(lifted.kernel)
        program = _program(lifted.kernel)
        runs.setdefault(text, (lifted, program not in proved))
        proved.add(program)
    return tuple(runs.values())


def _without_elements(kernel: Kernel) -> str:
    return to_text(kernel).replace(f" {DType.F16}", f" {DType.BF16}").replace(f"({DType.F16}", f"({DType.BF16}")
