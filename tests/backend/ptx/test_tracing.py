"""The log of a block: its steps in order, lanes, addresses and results, with their lines."""

from __future__ import annotations

import torch

from cubridge.backend.ptx.tracing import trace
from cubridge.ir.trace import Trace
from tests.backend.ptx.foreign import Given, launch_of, machine

TEXT = """
G(const float* x, float* y) {
    const int t = blockIdx.x * 64 + threadIdx.x;
    if (t % 2) y[t] = x[t] + 1.f;
    else y[t] = x[t + 1];
}
"""


def traced(block: int) -> tuple[Trace, tuple[bytes, ...]]:
    x = torch.arange(193, dtype=torch.float32)
    launch = launch_of(TEXT, Given((x, torch.empty(192)), threads=64, blocks=3))
    return trace(machine(TEXT), launch, block, 5.0)


def test_a_block_is_followed_alone_and_outputs_are_of_all() -> None:
    found, outputs = traced(2)
    assert found.block == (2, 0, 0) and {s.warp for s in found.steps} == {0, 1}
    expected = torch.tensor([t + 1.0 for t in range(192)])
    assert torch.equal(torch.frombuffer(bytearray(outputs[0]), dtype=torch.float32), expected)


def test_addresses_results_and_lines() -> None:
    found, _ = traced(1)
    loads = [s for s in found.steps if found.code[s.at].name.startswith("ld.global")]
    seen: dict[int, float] = {}
    for step in loads:
        for lane in (n for n in range(32) if step.mask >> n & 1):
            at = (int(step.addresses[0][lane]) - found.windows[0].base) // 4
            bits = step.results[0]
            assert not isinstance(bits, int)
            seen[64 + 32 * step.warp + lane] = (
                torch.tensor(int(bits[lane]), dtype=torch.int32).view(torch.float32).item()
            )
            assert seen[64 + 32 * step.warp + lane] == at
        assert "x[t" in found.code[step.at].span.text
    assert len(seen) == 64


def test_lanes_that_take_a_branch() -> None:
    found, _ = traced(0)
    taken = [s.taken for s in found.steps if found.code[s.at].guard is not None and found.code[s.at].target >= 0]
    assert taken and all(t in (0x55555555, 0xAAAAAAAA) for t in taken)
