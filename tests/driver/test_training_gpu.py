"""Training on a real GPU: gradients of adapted references, CUDA graphs and compiled graphs of a step, a small transformer. Skipped
where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.launch.operator import AttentionOperator
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.backward import lower_backward
from cubridge.driver.compiled import compile_adapted
from cubridge.ir.diagnostics import CuError
from cubridge.judge.backward_mutants import backward_mutants
from tests.driver.test_train_tiny import example  # noqa: F401

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a GPU of compute capability 9.0",
)
L, LK, D = 300, 520, 128


def capped(q, k, v, bias, cap):
    s = cap * torch.tanh(q @ k.mT * q.shape[-1] ** -0.5 / cap) + bias
    return torch.softmax(s, -1).to(v.dtype) @ v


def extra_inputs(shape, device):
    return {"bias": torch.zeros(shape.Lq, shape.Lk, device=device), "cap": 20.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> AttentionOperator:
    """Judged on the device before its first output."""
    adapted = adapt_unchecked(capped, "sm90a", extra_inputs=extra_inputs)
    folder = tmp_path_factory.mktemp("cache")
    return compile_adapted(adapted, find_gpu, backward=lower_backward(adapted), cache_dir=folder)


def qkv(seed: int = 0) -> list[Tensor]:
    """As a model has them: heads are parts of a row."""
    generator = torch.Generator("cuda").manual_seed(seed)
    lengths = (L, LK, LK)
    made = [torch.randn(2, n, 4, D, device="cuda", generator=generator).bfloat16() for n in lengths]
    return [x.transpose(1, 2).requires_grad_() for x in made]


def bias() -> Tensor:
    return torch.linspace(-2, 2, L * LK, device="cuda").view(L, LK)


def close(found: tuple[Tensor, ...], inputs: list[Tensor], dout: Tensor) -> None:
    wide = [x.detach().double().requires_grad_() for x in inputs]
    expected = torch.autograd.grad(capped(*wide, bias().double(), 20.0), wide, dout.double())
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() < 1e-2 * other.norm()


def test_gradients_with_arguments_and_variables(run: AttentionOperator) -> None:
    inputs = qkv()
    out = run(*inputs, bias(), 20.0)
    for dout in (torch.randn_like(out), torch.ones((), device="cuda").bfloat16().expand(out.shape)):
        first, second = (torch.autograd.grad(out, inputs, dout, retain_graph=True) for _ in range(2))
        close(first, inputs, dout)
        assert all(torch.equal(a, b) for a, b in zip(first[1:], second[1:], strict=True))
        assert [g.stride() for g in first] == [x.stride() for x in inputs]


def test_a_wrong_pass_gives_no_output(tmp_path: Path) -> None:
    adapted = adapt_unchecked(capped, "sm90a", extra_inputs=extra_inputs)
    right = lower_backward(adapted)
    wrong = right.of(dict(backward_mutants(right.targets, right.gradient))["delta missing"])
    made = compile_adapted(adapted, find_gpu, backward=wrong, cache_dir=tmp_path)
    with pytest.raises(CuError, match="the compiled backward pass is wrong"):
        made(*qkv(), bias(), 20.0)


def test_a_graph_of_a_step_is_replayed(run: AttentionOperator) -> None:
    inputs, dout, given = qkv(), torch.randn(2, 4, L, D, device="cuda").bfloat16(), bias()

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(run(*inputs, given, 20.0), inputs, dout)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for seed in (1, 2):
        with torch.no_grad():
            for x, other in zip(inputs, qkv(seed), strict=True):
                x.copy_(other)
        graph.replay()
        torch.cuda.synchronize()
        close(found, inputs, dout)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_step_in_a_compiled_graph(run: AttentionOperator, backend: str) -> None:
    inputs, dout, given = qkv(), torch.randn(2, 4, L, D, device="cuda").bfloat16(), bias()
    compiled = torch.compile(lambda q, k, v: run(q + 0, k, v, given, 20.0), backend=backend, fullgraph=True)
    close(torch.autograd.grad(compiled(*inputs), inputs, dout), inputs, dout)


def test_a_step_on_another_stream(run: AttentionOperator) -> None:
    """Autograd runs the backward pass on the stream of the forward pass."""
    inputs, dout, given = qkv(), torch.randn(2, 4, L, D, device="cuda").bfloat16(), bias()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        found = torch.autograd.grad(run(*inputs, given, 20.0), inputs, dout)
    side.synchronize()
    close(found, inputs, dout)


def test_no_step_keeps_memory(run: AttentionOperator) -> None:
    inputs, given = qkv(), bias()
    held: list[int] = []
    for _ in range(6):
        run(*inputs, given, 20.0).float().sum().backward()
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated())
    assert held[-1] == held[1]


def test_a_small_transformer(example) -> None:  # noqa: F811
    adapted = adapt_unchecked(example.attention, "sm90a", extra_inputs=example.extra_inputs)
    kernel = compile_adapted(adapted, find_gpu, backward=lower_backward(adapted))
    curves = [example.train(attend, 200, 4, 257, 2, "cuda") for attend in (example.attention, kernel)]
    assert example.agree(*curves) and curves[1][-1] < 0.5
