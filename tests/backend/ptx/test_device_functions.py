"""CUDA's own functions, which NVRTC puts in: every instruction of theirs has a row, and what comes out is what they are."""

from __future__ import annotations

import torch

from cubridge.backend.ptx.device import ONE_SCHEDULE
from cubridge.ir.functions import FUNCTIONS
from tests.backend.ptx.foreign import Given, run

OF_ONE = {
    "sinf": torch.sin, "cosf": torch.cos, "tanf": torch.tan, "atanf": torch.atan, "asinhf": torch.asinh, "sinhf": torch.sinh,
    "coshf": torch.cosh, "tanhf": torch.tanh, "expf": torch.exp, "exp2f": torch.exp2, "expm1f": torch.expm1, "erff": torch.erf,
    "erfcf": torch.erfc, "floorf": torch.floor, "ceilf": torch.ceil, "rintf": torch.round, "truncf": torch.trunc,
    "fabsf": torch.abs, "lgammaf": torch.lgamma,
}  # fmt: skip
OF_POSITIVE = {
    "logf": torch.log, "log2f": torch.log2, "log10f": torch.log10, "log1pf": torch.log1p, "sqrtf": torch.sqrt,
    "rsqrtf": torch.rsqrt, "acoshf": lambda x: torch.acosh(x + 1),
}  # fmt: skip
OF_TWO = {
    "powf": torch.pow, "fmodf": torch.fmod, "atan2f": torch.atan2, "copysignf": torch.copysign, "remainderf": None,
    "fmaxf": torch.maximum, "fminf": torch.minimum,
}  # fmt: skip


def test_functions_are_what_they_are_called() -> None:
    """Where the arguments are large too: sin and cos reduce them in another way."""
    x = torch.linspace(-9.0, 9.0, 32) * torch.tensor([1.0] * 28 + [1e5] * 4)
    y = torch.linspace(0.01, 3.0, 32)
    calls = (
        [f"{n}(x[l])" for n in OF_ONE] + [f"{n}(y[l])" for n in OF_POSITIVE if n != "acoshf"] + ["acoshf(y[l] + 1.f)"]
    )
    calls += [f"{n}({'y[l], x[l]' if n == 'powf' else 'x[l], y[l]'})" for n in OF_TWO]
    lines = "".join(f"out[{32 * n} + l] = {call};\n" for n, call in enumerate(calls))
    text = f"G(const float* x, const float* y, float* out) {{ const int l = threadIdx.x; {lines} }}"
    out = run(text, Given((x, y, torch.zeros(len(calls), 32)), threads=32), ONE_SCHEDULE)
    right = [f(x.double()) for f in OF_ONE.values()] + [f(y.double()) for f in OF_POSITIVE.values()]
    right += [
        torch.pow(y.double(), x.double()) if n == "powf" else f(x.double(), y.double()) for n, f in OF_TWO.items() if f
    ]
    kept = [row for row, call in zip(out, calls, strict=True) if not call.startswith("remainderf")]
    for got, wanted, call in zip(kept, right, [c for c in calls if not c.startswith("remainderf")], strict=True):
        torch.testing.assert_close(got.double(), wanted.float().double(), rtol=2e-6, atol=1e-6, msg=call)


def test_every_function_of_the_table_is_among_them() -> None:
    of_cuda = {f.cuda for f in FUNCTIONS.values() if f.cuda is not None and f.cuda.endswith("f")}
    assert of_cuda <= OF_ONE.keys() | OF_POSITIVE.keys() | OF_TWO.keys() | {"rcpf"}
