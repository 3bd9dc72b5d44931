"""`cuirc verify` and `cuirc run`: is a kernel well-formed, and does it compute what it should?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cubridge.driver.attention import Attention
from cubridge.driver.check import Checker, approximations
from cubridge.driver.checks import EMULATED_HEAD_DIM, emulate
from cubridge.driver.kernels import DTYPES, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.plan import emulator_cases, value_cases
from cubridge.driver.runners import ValueRunner
from cubridge.driver.verify import find_faults
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.nodes import Tile
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, RowReduction, Shape
from cubridge.ir.spec_values import spec_values
from cubridge.ir.threads import one_thread
from cubridge.ir.tile_shape import head_dim

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.driver.attention import Captures, Extra, Outputs
    from cubridge.driver.reference import TracedReference
    from cubridge.driver.report import CaseResult
    from cubridge.ir.nodes import Kernel

TINY = Shape(1, 4, 2, 200, 330, 0)


def full_attention() -> Attention:
    """What a source kernel computes: softmax attention over all keys, scale D ** -0.5."""
    everywhere, weight = parse_expr("True"), parse_expr("exp(x - m)")
    spec = AttentionSpec(
        score=parse_expr("s * D ** -0.5"), mask=everywhere, weight=weight,
        rows=(RowReduction("l", "sum", everywhere, weight),), finalize=parse_expr("acc / l"), shift=True,
        lse=parse_expr("m + log(l)"), kv_head=parse_expr("h // (Hq // Hk)"),
    )  # fmt: skip

    def oracle(q: Tensor, k: Tensor, v: Tensor, _: Extra) -> Outputs:
        values = spec_values(spec, q, k, v, {}, derivatives=False)
        return values.out, values.lse

    def nothing(*_: object) -> Captures:
        return {}

    def half(q: Tensor, k: Tensor, v: Tensor, _: Extra) -> Tensor:
        from torch.nn.functional import scaled_dot_product_attention

        return scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return Attention("full attention", spec, lambda _: {}, nothing, oracle, half)


def examine_ir(kernel: Kernel, attention: Attention | None = None) -> tuple[Diagnostic, ...]:
    """Faults of a kernel in CuIR: static rules, order engine, then the value engine on tiny problems, whose results are
    compared if it is known what they should be. Errors: CU3xx where a run cannot go on."""
    faults = find_faults(kernel)
    if faults:
        return faults
    known = attention or full_attention()
    checker = Checker(known, dtype_of(kernel), approximations(kernel))
    cases = value_cases(known.spec, replace(TINY, D=head_dim(kernel)))[:3]
    with one_thread():
        results = checker.run(ValueRunner(kernel), cases)
    return _differences(results, known, kernel)


def examine_text(path: str, dtype: str, head_dim: int, attention: Attention | None = None) -> tuple[Diagnostic, ...]:
    """Faults of a kernel text: those of its CuIR, then those that the emulator shows. A text without a reference is a source
    kernel and computes full attention. Errors: CU4xx where it cannot be lifted."""
    chosen = choose_kernel(path)
    kernel = lift_kernel(chosen, dtype, head_dim).kernel
    faults = examine_ir(kernel, attention)
    if faults:
        return faults
    known = attention or full_attention()
    checker = Checker(known, dtype, approximations(kernel))
    with one_thread():
        results = checker.run(emulate(chosen.text, dtype), emulator_cases(known.spec, EMULATED_HEAD_DIM))
    return _differences(results, known, kernel)


def run_against(kernel: Kernel, reference: TracedReference, shape: Shape | None) -> tuple[CaseResult, ...]:
    """A kernel in CuIR on the value engine, against a reference."""
    spec = reference.attention.spec
    sizes = replace(shape or reference.traced.shape, D=head_dim(kernel))
    checker = Checker(reference.attention, dtype_of(kernel), approximations(kernel))
    with one_thread():
        return checker.run(ValueRunner(kernel), value_cases(spec, sizes)[:1] if shape else value_cases(spec, sizes))


def _differences(results: tuple[CaseResult, ...], known: Attention, kernel: Kernel) -> tuple[Diagnostic, ...]:
    return tuple(
        Diagnostic(
            "CU844",
            f"{r.stage}: the kernel does not compute {known.name} at {r.shape} ({r.inputs}): {r.detail.splitlines()[0]}",
            kernel.span,
        )
        for r in results
        if not r.accepted
    )[:1]


def dtype_of(kernel: Kernel) -> str:
    """Of the tiles in shared memory, as the command line names it."""
    tiles = {f.type.dtype for f in kernel.shared if isinstance(f.type, Tile)}
    return next(name for name, dtype in DTYPES.items() if dtype in tiles)
