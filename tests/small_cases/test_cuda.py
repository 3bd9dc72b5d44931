"""Small cases from public trouble, 29 to 32: CUDA; see test_index for 33."""
# pyright: basic

from __future__ import annotations

import re

import pytest
import torch

from cubridge.backend.compile.compiler import compile_kernel
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.ir.contract import CType, TensorStride
from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import print_expr
from cubridge.ir.source import SourceFile
from cubridge.judge.well_formed import find_faults
from tests.small_cases.tools import attend, each_on, positions, random_inputs, refused, run, scores, spec

EACH = each_on("sm90a")


# ---- 29: 64-bit indices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["sm80", "sm90a-backward"])
def test_29_strides_are_64_bits_wide(kernel: str) -> None:
    """Row 225304 of a tensor whose rows lie 9728 elements apart starts past 2^31. (The forward kernel of sm90a has descriptors.)"""
    strides = [f for f in choose_kernel(kernel).text.contract.params if isinstance(f.value, TensorStride)]
    assert strides and all(f.c_type is CType.I64 for f in strides)


def test_29_a_flat_index_that_may_pass_32_bits_is_refused_at_the_launch() -> None:
    def attention(q, k, v, table):
        i, j = positions(q, k)
        flat = table.flatten()[i * k.shape[2] + j]
        return attend((scores(q, k) + flat).softmax(-1), q, v)

    found = run(attention, random_inputs(1, 2, 1, 40, 70), lambda s, d: {"table": torch.rand(s.Lq, s.Lk)})
    assert found.right  # read as table[i, j], whose address the emitter computes in 64 bits

    def product_in_the_mask(q, k, v):
        i, j = positions(q, k)
        keep = (i * k.shape[2] + j) % 3 > 0
        return attend(scores(q, k).masked_fill(~keep, -torch.inf).softmax(-1), q, v)

    found = run(product_in_the_mask, random_inputs(1, 2, 1, 40, 70))
    assert found.right  # sizes at which the product passes 32 bits are refused at the launch
    limits = [print_expr(p.condition) for p in spec(product_in_the_mask).preconditions]
    assert any("Lk * Lq" in limit and "2147483647" in limit for limit in limits), limits

    def product_past_all_sizes(q, k, v):
        i, j = positions(q, k)
        keep = (i * i * i * i + j) % 3 > 0
        return attend(scores(q, k).masked_fill(~keep, -torch.inf).softmax(-1), q, v)

    fault = refused(product_past_all_sizes)
    assert "32 bits" in fault.message, fault.message


# ---- 30: architectures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "arch"), [("sm90a", "sm_90"), ("sm90a", "sm_80"), ("sm80", "sm_75")])
def test_30_another_architecture_is_refused_with_the_reason(kernel: str, arch: str) -> None:
    chosen = choose_kernel(kernel)
    with pytest.raises(CuError) as caught:
        compile_kernel(
            chosen.text.source, chosen.text.contract, chosen.instantiation("bf16", 64), arch,
            include_dirs=chosen.text.include_dirs,
        )  # fmt: skip
    assert caught.value.diagnostics[0].code in ("CU801", "CU802")
    assert arch in str(caught.value)


# ---- 31: fragment maps -------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("emulated", [False, True])
def test_31_every_element_of_a_bias_comes_back(kernel: str, emulated: bool) -> None:
    """bias[i, j] = 1000 i + j; each row sees the one key `(i + turn) % Lk`, so that its LSE is the bias there."""

    def attention(q, k, v, bias, turn):
        i, j = positions(q, k)
        keep = (i + turn) % k.shape[2] == j
        s = (scores(q, k) + bias).masked_fill(~keep, -torch.inf)
        return attend(s.softmax(-1), q, v), s.logsumexp(-1)

    def extra(shape, device):
        bias = 1000.0 * torch.arange(shape.Lq)[:, None] + torch.arange(shape.Lk)
        return {"bias": bias, "turn": torch.tensor(turn)}

    lq, lk, turn = 129, 70, 0
    nothing = random_inputs(1, 1, 1, lq, lk)
    inputs = (0.0 * nothing[0], nothing[1], nothing[2])
    for turn in range(0, lk, 7):
        lse = run(attention, inputs, extra, kernel, emulated=emulated).lse
        assert lse is not None
        column = (torch.arange(lq) + turn) % lk
        assert torch.equal(lse[0, 0].round(), 1000.0 * torch.arange(lq) + column)


# ---- 32: order ---------------------------------------------------------------------------------------------------------


@EACH
def test_32_every_deleted_wait_or_arrival_is_named_with_a_line(kernel: str) -> None:
    lines = choose_kernel(kernel).text.source.text.split("\n")
    body = next(n for n, line in enumerate(lines) if line.startswith("KERNEL("))
    ordering = [n for n, line in enumerate(lines) if n > body and re.search(r"(wait|arrive)\w*(<\d>)?\(", line)]
    assert len(ordering) >= 2
    for number in ordering[:: 1 + len(ordering) // 8]:
        changed = "\n".join([*lines[:number], ";", *lines[number + 1 :]])
        assert all(_fault_lines(kernel, changed)), lines[number]


def _fault_lines(kernel: str, text: str) -> list[int]:
    """Lines of the text at which something is found; there is at least one."""
    source = SourceFile.from_text("kernel.cu", text)
    try:
        faults = find_faults(lift_kernel(choose_kernel(kernel), "bf16", 64, source).kernel)
    except CuError as error:
        faults = error.diagnostics
    assert faults and all(f.span.file.name == "kernel.cu" for f in faults)
    return [f.span.location[0] for f in faults]
