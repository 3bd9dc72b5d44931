"""Launches on a real GPU: streams, CUDA graphs, compiled graphs, layouts. Skipped where there is none."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cubridge.backend.compile.compiler import compile_best
from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.launch.operator_plan import OperatorPlan
from cubridge.backend.launch.runtime import Launcher
from cubridge.frontend.contract import read_contract
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
    reason="needs a GPU of compute capability 9.0",
)

CAUSAL = (
    "const int hi = ceil_div(p.len_kv, BLOCK_KV);",
    "const int hi = ceil_div(imin(p.len_kv, tile.q_start + BLOCK_Q), BLOCK_KV);",
)


def kernel_text(name: str, *edits: tuple[str, str]) -> KernelText:
    path = KERNELS_DIR / name / "attention_forward.cu"
    text = path.read_text()
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    source = SourceFile.from_text(f"{name}.cu", text)
    return KernelText(source, read_contract(path.with_suffix(".toml"), source))


@pytest.fixture(params=["sm80", "sm90a"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def qkv(length: int = 300, head_dim: int = 128, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, h, length, head_dim, device="cuda", dtype=torch.bfloat16) for h in (4, 2, 2))
    return q, k, v


def expected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), enable_gqa=True).to(
        q.dtype
    )


def test_a_launch_is_on_the_current_stream(name: str) -> None:
    """Behind work that takes long: on another stream it would end at once, and read what was there before."""
    launcher = Launcher(find_gpu(), kernel_text(name))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launcher(*qkv(seed=1))  # loads the kernel and fills this stream's pool of memory
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        q, k, v = qkv(seed=2)
        out = launcher(q, k, v)
        done = stream.record_event()
    assert not done.query()
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(out, expected(q, k, v), rtol=2e-2, atol=2e-2)


def test_a_cuda_graph_replays_with_new_data(name: str) -> None:
    launcher = Launcher(find_gpu(), kernel_text(name, CAUSAL))
    q, k, v = qkv()
    right = launcher(q, k, v)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        launcher(q, k, v)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = launcher(q, k, v)
    for _ in range(3):
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, right)
    q.copy_(torch.randn_like(q))
    graph.replay()
    assert torch.equal(out, launcher(q, k, v))


def test_unequal_work_gives_the_same_on_two_streams_at_once(name: str) -> None:
    launcher = Launcher(find_gpu(), kernel_text(name, CAUSAL))
    q, k, v = qkv(2048)
    right = launcher(q, k, v)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    found: list[Tensor] = []
    for _ in range(10):
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(launcher(q, k, v))
    torch.cuda.synchronize()
    assert all(torch.equal(out, right) for out in found)


def test_the_operator_in_a_compiled_graph(name: str) -> None:
    operator = AttentionOperator(OperatorPlan(kernel_text(name)), find_gpu)
    q, k, v = qkv()
    compiled = torch.compile(lambda q, k, v: operator(q * 2, k, v) + 1, fullgraph=True)
    assert torch.equal(compiled(q, k, v), operator(q * 2, k, v) + 1)


def test_tensors_elsewhere_are_refused(name: str) -> None:
    operator = AttentionOperator(OperatorPlan(kernel_text(name)), find_gpu)
    q, k, v = qkv()
    with pytest.raises(CuError, match="is on cpu"):
        operator(q, k.cpu(), v)
    with pytest.raises(CuError, match="not on a GPU"):
        operator(q.cpu(), k.cpu(), v.cpu())


def test_many_launches_keep_no_memory(name: str) -> None:
    launcher = Launcher(find_gpu(), kernel_text(name))
    inputs = qkv()
    launcher(*inputs)
    gc.collect()  # what other tests left, which would be counted if it went meanwhile
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        launcher(*inputs)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_a_text_that_the_driver_has_cached_tells_its_resources(name: str, tmp_path: Path) -> None:
    """NVRTC keeps results of its own where a driver is; from there comes no log of the assembler."""
    text = kernel_text(name)
    forms = [
        compile_best(
            text.source, text.contract, DType.BF16, 64, find_gpu().target(text).name, cache_dir=tmp_path / folder
        )
        for folder in ("first", "second")
    ]
    assert not any(f.from_cache for f in forms)
    assert forms[0].resources == forms[1].resources and forms[0].resources.registers > 0
