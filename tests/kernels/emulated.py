"""Running kernel texts on the emulator in tests: texts with edits, inputs, the fp64 oracle."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.backend.ptx.machine import Schedule
from cubridge.frontend.contract import read_contract
from cubridge.ir.source import SourceFile

ARCHS = ("sm80", "sm90a")


@cache
def kernel_source(arch: str) -> SourceFile:
    return SourceFile.read(KERNELS_DIR / arch / "attention_forward.cu")


def kernel_text(arch: str, *edits: tuple[str, str], equal_work: bool | None = None) -> KernelText:
    """A kernel with each edit's first text, which must occur once, replaced by its second. `equal_work`: overrules the contract,
    so that work is handed out by the counter although it need not be."""
    text = kernel_source(arch).text
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    source = SourceFile.from_text(kernel_source(arch).name, text)
    contract = read_contract(KERNELS_DIR / arch / "attention_forward.toml", source)
    return KernelText(source, contract if equal_work is None else replace(contract, equal_work=equal_work))


def region_edit(arch: str, name: str, body: str) -> tuple[str, str]:
    """The edit that puts `body` into a region."""
    text = kernel_source(arch).text
    opening = f"// @region {name}\n"
    start = text.index(opening)
    return text[start : text.index("// @endregion", start)], opening + body


def launcher(text: KernelText, schedules: tuple[Schedule, ...] = ONE_SCHEDULE, timeout_s: float = 20.0) -> Launcher:
    return Launcher(PtxDevice(schedules, timeout_s=timeout_s), text, say=lambda _: None)


def random_inputs(
    shape: tuple[int, int, int, int, int, int], dtype: torch.dtype = torch.bfloat16, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a shape B, Hq, Hk, Lq, Lk, D."""
    b, hq, hk, lq, lk, d = shape
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(b, h, n, d, generator=generator) for h, n in ((hq, lq), (hk, lk), (hk, lk)))
    return q.to(dtype), k.to(dtype), v.to(dtype)


def steep_inputs(
    shape: tuple[int, int, int, int, int, int], dtype: torch.dtype = torch.bfloat16
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs whose row maxima rise from key tile to key tile, which are walked from the right: the rescale path."""
    q, k, v = random_inputs(shape, torch.float32)
    ramp = torch.linspace(2, 0.1, shape[4])[None, None, :, None]
    return (q * 8).to(dtype), (k * ramp).to(dtype), v.to(dtype)


def oracle(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Output and LSE in fp64, and the bound on the output's error; `keep` [Lq, Lk] says which keys a row sees."""
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = q.double() @ keys.mT * q.shape[-1] ** -0.5
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse.unsqueeze(-1)).nan_to_num(0.0)
    out = weights @ values
    unit = 2.0**-8 if q.dtype is torch.bfloat16 else 2.0**-11
    return out, lse, 2 * unit * (weights @ values.abs() + out.abs())


def faults(out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None) -> list[str]:
    """What is wrong with a result; NaN is wrong."""
    right, right_lse, bound = oracle(q, k, v, keep)
    found: list[str] = []
    if not bool(((out.double() - right).abs() <= bound + 1e-6).all()):
        found.append("output")
    same = (lse.double() - right_lse).abs() <= 1e-3 + 1e-5 * right_lse.abs()
    if not bool((same | (lse.double() == right_lse)).all()):
        found.append("lse")
    return found
