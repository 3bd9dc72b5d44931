"""Calls on a real GPU: CUDA graphs and streams with captured tensors. Skipped where there is none."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.gpu.driver import checked, cuda_driver
from cubridge.backend.launch.operator import AttentionOperator
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.compiled import compile_adapted
from cubridge.ir.diagnostics import CuError
from tests.driver.test_calls import everywhere, gathered, scores, times

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
    reason="needs a GPU of compute capability 9.0",
)
L = 300


def documents(q, k, v, doc):
    same = doc[: q.shape[2], None] == doc[None, : k.shape[2]]
    return times(scores(q, k).masked_fill(~same, -torch.inf).softmax(-1), v)


def operator(reference, **extra) -> AttentionOperator:
    adapted = adapt_unchecked(
        reference, "sm90a", extra_inputs=lambda shape, _: {n: make(shape) for n, make in extra.items()}
    )
    return compile_adapted(adapted, find_gpu, check=False)


@pytest.fixture(scope="module")
def by_document() -> AttentionOperator:
    return operator(documents, doc=lambda s: torch.arange(max(s.Lq, s.Lk)) // 9)


def qkv(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, 4, L, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    return q, k, v


class Sunk(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.linspace(-1, 1, L), requires_grad=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return times((scores(q, k) + self.bias[torch.arange(k.shape[2], device=q.device) % L]).softmax(-1), v)


def test_a_module_that_lies_on_the_gpu_is_read_and_stays_there() -> None:
    module = Sunk().cuda()
    address = module.bias.data_ptr()
    run = operator(module)
    assert module.bias.is_cuda and module.bias.data_ptr() == address
    close(run(*qkv()), module, qkv())


def close(got: Tensor, reference, inputs: tuple[Tensor, ...], **extra: Tensor) -> None:
    wide = {n: x.double() if x.is_floating_point() else x for n, x in extra.items()}
    torch.testing.assert_close(got.double(), reference(*(t.double() for t in inputs), **wide), rtol=2e-2, atol=2e-2)


def overwrite(tensor: Tensor, content: Tensor) -> None:
    """As a kernel of the user does, which moves no version counter."""
    version, size = tensor._version, tensor.numel() * tensor.element_size()
    checked("copying", cuda_driver().cuMemcpyDtoD(tensor.data_ptr(), content.contiguous().data_ptr(), size))
    assert tensor._version == version


def captured_graph(call) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


def test_a_graph_replays_with_what_captured_tensors_hold_then(by_document: AttentionOperator) -> None:
    """int64 ids are converted and padded before the launch."""
    inputs, doc = qkv(), torch.arange(L, device="cuda") // 9
    graph, out = captured_graph(lambda: by_document(*inputs, doc))
    for width in (9, 50, 7):
        overwrite(doc, torch.arange(L, device="cuda") // width)
        graph.replay()
        torch.cuda.synchronize()
        close(out, documents, inputs, doc=doc)


def test_a_graph_records_what_is_computed_from_captured_tensors() -> None:
    run = operator(
        everywhere,
        bias=lambda s: torch.linspace(0, 1, max(s.Lq, s.Lk)),
        doc=lambda s: (torch.arange(max(s.Lq, s.Lk)) // 9).int(),
        temperature=lambda s: torch.tensor(1.5),
    )
    inputs = qkv()
    bias, temperature = torch.linspace(-1, 1, L, device="cuda"), torch.tensor(1.5, device="cuda")
    doc = (torch.arange(L, device="cuda") // 40).int()
    graph, out = captured_graph(lambda: run(*inputs, bias, doc, temperature))
    for factor in (1.0, -0.5):
        overwrite(bias, bias * factor)
        overwrite(temperature, torch.full((), 0.7, device="cuda"))
        graph.replay()
        torch.cuda.synchronize()
        close(out, everywhere, inputs, bias=bias, doc=doc, temperature=temperature)


def test_tensors_changed_without_a_count_are_read_anew(by_document: AttentionOperator) -> None:
    inputs, doc = qkv(), torch.arange(L, device="cuda") // 9
    by_document(*inputs, doc)
    overwrite(doc, torch.arange(L, device="cuda") // 50)
    close(by_document(*inputs, doc), documents, inputs, doc=doc)


def test_captured_tensors_on_a_second_stream() -> None:
    """Tables of sizes are made on the first stream, behind work that takes long."""
    run = operator(
        everywhere,
        bias=lambda s: torch.linspace(0, 1, max(s.Lq, s.Lk)),
        doc=lambda s: (torch.arange(max(s.Lq, s.Lk)) // 9).int(),
        temperature=lambda s: torch.tensor(1.5),
    )
    inputs = qkv()
    extra = {
        "bias": torch.linspace(-1, 1, L, device="cuda"),
        "doc": (torch.arange(L, device="cuda") // 40).int(),
        "temperature": torch.tensor(1.5, device="cuda"),
    }
    torch.cuda.synchronize()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        torch.cuda._sleep(100_000_000)
        run(*inputs, **extra)
    with torch.cuda.stream(second):
        out = run(*inputs, **extra)
    torch.cuda.synchronize()
    close(out, everywhere, inputs, **extra)


def test_a_form_that_is_not_compiled_is_refused_while_a_graph_is_captured() -> None:
    run = operator(documents, doc=lambda s: torch.arange(max(s.Lq, s.Lk)) // 9)
    inputs, doc = qkv(), torch.arange(L, device="cuda") // 9
    with pytest.raises(CuError, match="while a CUDA graph is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        run(*inputs, doc)
    torch.cuda.synchronize()


def test_captured_values_are_checked_once_for_a_version() -> None:
    run = operator(gathered, table=lambda s: torch.zeros(9), index=lambda s: torch.zeros(s.Lq, s.Lk, dtype=torch.long))
    inputs, table = qkv(), torch.arange(9.0, device="cuda")
    index = torch.arange(L * L, device="cuda").view(L, L) % 9
    run(*inputs, table, index)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.set_sync_debug_mode("error")
        try:
            run(*inputs, table, index)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    index[3, 4] = 9
    with pytest.raises(CuError, match="is 9, and there are 9 elements"):
        run(*inputs, table, index)


def test_a_call_from_another_thread(by_document: AttentionOperator) -> None:
    inputs, doc, found = qkv(), torch.arange(L, device="cuda") // 9, []
    right = by_document(*inputs, doc)
    thread = threading.Thread(target=lambda: found.append(by_document(*inputs, doc)))
    thread.start()
    thread.join()
    assert len(found) == 1 and torch.equal(found[0], right)
