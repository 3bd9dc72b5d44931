"""Checks of values and tables of sizes as on a GPU, which tensors on the CPU stand for here."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cubridge.backend.launch import prepared
from cubridge.backend.launch.capturing import refuse_capturing
from cubridge.backend.launch.prepared import Tables, ValueChecks
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.requirement import Requirement

GPU = torch.device("cuda", 0)
Q = torch.zeros(1)
INPUTS = (Q, Q, Q)


class Bench:
    """Values must not be negative; `asked` counts how often that was told."""

    def __init__(self, device: torch.device = GPU, reads_inputs: bool = False) -> None:
        self.asked = 0
        self.checks = ValueChecks(device, self.make, reads_inputs)

    def make(self, inputs: tuple[Tensor, ...], values: tuple[object, ...]) -> tuple[Requirement, ...]:
        del inputs
        self.asked += 1
        (value,) = values
        assert isinstance(value, Tensor)
        return (Requirement((value >= 0).all(), "negative", lambda: Diagnostic("CU490", f"holds {int(value.min())}")),)

    def __call__(self, value: Tensor) -> None:
        self.checks(INPUTS, (value,))


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Is a graph captured: the last element."""
    state = [False]
    for module in ("prepared", "capturing"):
        monkeypatch.setattr(f"cubridge.backend.launch.{module}.is_capturing", lambda device: state[-1])
    return state


def test_values_are_checked_once_for_a_version_of_a_storage(capturing: list[bool]) -> None:
    del capturing
    bench, value = Bench(), torch.arange(8)
    for _ in range(3):
        bench(value)
    assert bench.asked == 1
    value[0] = 5
    bench(value)
    assert bench.asked == 2
    bench(value[2:])
    assert bench.asked == 3
    value[3] = -7
    for _ in range(2):
        with pytest.raises(CuError, match="holds -7"):
            bench(value)
    assert bench.asked == 5


def test_another_tensor_at_the_same_address_is_checked(capturing: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    del capturing
    bench, memory = Bench(), torch.arange(8).numpy()
    bench(torch.from_numpy(memory))
    memory[0] = -1
    with pytest.raises(CuError, match="holds -1"):
        bench(torch.from_numpy(memory))
    monkeypatch.setattr(prepared.StorageWeakRef, "expired", lambda self: False)
    memory[0] = 0
    bench(torch.from_numpy(memory))
    memory[0] = -1
    bench(torch.from_numpy(memory))  # what the weak references are there to prevent


def test_on_a_cpu_every_call_is_checked() -> None:
    bench, memory = Bench(torch.device("cpu")), torch.arange(8)
    bench(memory)
    memory.numpy()[0] = -1
    with pytest.raises(CuError, match="holds -1"):
        bench(memory)


def test_while_a_graph_is_captured_the_device_asserts(capturing: list[bool]) -> None:
    bench, value = Bench(), torch.arange(8)
    bench(value)
    capturing.append(True)
    bench(value)
    assert bench.asked == 2
    value[0] = -1
    with pytest.raises(RuntimeError, match="negative"):
        bench(value)


def test_tensors_that_count_no_versions_are_asserted_on_the_device(capturing: list[bool]) -> None:
    del capturing
    bench = Bench()
    with torch.inference_mode():
        value = torch.arange(8)
        bench(value)
        value[0] = -1
        with pytest.raises(RuntimeError, match="negative"):
            bench(value)


def test_tables_are_made_once_and_anew_for_each_graph(capturing: list[bool]) -> None:
    made: list[Tensor] = []

    def make(inputs: object, values: object) -> dict[str, Tensor]:
        made.append(torch.arange(3))
        return {"table": made[-1]}

    tables = Tables(torch.device("cpu"), make)
    assert tables(INPUTS, ())["table"] is tables(INPUTS, ())["table"] is made[0]
    capturing.append(True)
    assert tables(INPUTS, ())["table"] is made[1] and tables(INPUTS, ())["table"] is made[2]
    capturing.append(False)
    assert tables(INPUTS, ())["table"] is made[0]


def test_what_a_graph_cannot_record_is_refused(capturing: list[bool]) -> None:
    refuse_capturing(GPU, "a kernel is compiled")
    capturing.append(True)
    with pytest.raises(CuError, match="a kernel is compiled while a CUDA graph is captured") as caught:
        refuse_capturing(GPU, "a kernel is compiled")
    assert caught.value.diagnostics[0].code == "CU829"
