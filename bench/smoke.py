"""The kernels as they are, full attention: forms, strides, lengths and grouped heads, against fp64. Needs no adaptation."""

from __future__ import annotations

import torch
from torch import Tensor

from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.frontend.contract import read_contract
from cubridge.ir.source import SourceFile

KERNELS = ("sm80", "sm90a")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SIZES = (
    (1, 1, 1, 1, 1), (1, 2, 1, 64, 64), (2, 6, 3, 65, 129), (2, 6, 2, 257, 1000), (1, 4, 4, 1000, 63), (3, 5, 5, 128, 127),
)  # fmt: skip


def base_kernel(kernel: str) -> KernelText:
    """A kernel as it comes: full attention."""
    contract = read_contract(KERNELS_DIR / kernel / "attention_forward.toml")
    path = KERNELS_DIR / kernel / contract.source
    return KernelText(SourceFile(f"{kernel}/{path.name}", path.read_bytes()), contract)


def full_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Output and natural log-sum-exp in fp64."""
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = q.double() @ keys.mT * q.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ values, torch.logsumexp(scores, -1)


def inputs(sizes: tuple[int, ...], head_dim: int, dtype: torch.dtype, layout: str) -> list[Tensor]:
    batch, heads, key_heads, queries, keys = sizes
    made: list[Tensor] = []
    for h, n in ((heads, queries), (key_heads, keys), (key_heads, keys)):
        shape = (batch, n, h, head_dim) if layout == "rows of heads" else (batch, h, n, head_dim)
        tensor = torch.full((shape[0], shape[1] + 3, *shape[2:]), torch.nan, dtype=dtype, device="cuda")
        tensor = tensor[:, : shape[1]].copy_(torch.randn(shape, device="cuda"))
        made.append(tensor.transpose(1, 2) if layout == "rows of heads" else tensor)
    return made


def smoke() -> int:
    """Prints the worst relative error of each form; 1 if one is past half precision."""
    bad = 0
    for kernel in KERNELS:
        launcher = Launcher(find_gpu(), base_kernel(kernel))
        for name, dtype in DTYPES.items():
            for head_dim in (64, 128):
                worst = max(
                    _error(launcher, sizes, head_dim, dtype, layout)
                    for sizes in SIZES
                    for layout in ("heads of rows", "rows of heads")
                )
                limit = 2.0 ** (-7 if name == "bf16" else -10)
                bad += not worst <= limit
                print(f"{kernel:6} {name} D={head_dim:3}: worst error {worst:.2e} (limit {limit:.2e})", flush=True)
    return int(bad > 0)


def _error(launcher: Launcher, sizes: tuple[int, ...], head_dim: int, dtype: torch.dtype, layout: str) -> float:
    torch.manual_seed(sum(sizes))
    q, k, v = inputs(sizes, head_dim, dtype, layout)
    first = launcher(q, k, v, lse=True)
    again = launcher(q, k, v, lse=True)
    out, lse = first
    expected, expected_lse = full_attention(q, k, v)
    same = torch.equal(out, again[0]) and torch.equal(lse, again[1])
    error = ((out.double() - expected).norm() / expected.norm()).item()
    lse_error = (lse.double() - expected_lse).abs().max().item()
    return error if same and lse_error < 1e-3 else float("inf")
