"""What is adapted: a kernel, lifted, to a reference, at example sizes."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.driver.kernels import ChosenKernel
from cubridge.driver.reference import TracedReference
from cubridge.frontend.cuda.lift import Lifted
from cubridge.ir.spec import Shape


@dataclass(frozen=True, slots=True)
class Subject:
    """`dtype`: of q, k and v, as the command line names it."""

    kernel: ChosenKernel
    lifted: Lifted
    reference: TracedReference
    dtype: str
    shape: Shape
