"""The backward kernels for sm_90a, as NVRTC makes PTX of them, on the PTX machine: full and causal attention within the bound of
PyTorch's own gradients in fp64, and texts that are wrong outside it or against the machine's rules."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import torch

from cubridge.backend.compile.compiler import compile_kernel, listed_instantiations
from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.launch.backward import BackwardLauncher
from cubridge.backend.launch.device import KernelText
from cubridge.backend.ptx.device import SCHEDULES, PtxDevice
from cubridge.backend.ptx.machine import Schedule
from cubridge.derive.gradient import derive
from cubridge.engine.dense import spec_values
from cubridge.engine.dense_gradient import Gradients
from cubridge.frontend.contract import read_contract
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Shape
from cubridge.ir.types import DType
from cubridge.judge.attention import Attention, full_attention
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from tests.support.specs import softmax_spec

ROWS, PAIRS, LAST = "attention_backward_rows", "attention_backward", "attention_backward_dq"
Edits = tuple[tuple[str, str, str], ...]
"""(kernel, what stands in its text once, what stands there instead)."""

BOTTOM_RIGHT: Final = "j <= i + Lk - Lq"
CAUSAL: Final[Edits] = (
    (PAIRS, "s[r][c] = j < p.len_kv ? ", "s[r][c] = (j < p.len_kv) & (j <= q_start + frag_col(c) + p.len_kv - p.len_q) ? "),
    (PAIRS, "0, whole ? p.q_blocks : 0, tile.kv_start / BLOCK_Q % imax(p.q_blocks, 1)}", "0, 0, 0}"),
)  # fmt: skip


def kernel_text(name: str, edits: Edits) -> KernelText:
    source = SourceFile.read(KERNELS_DIR / "sm90a" / f"{name}.cu")
    text = source.text
    for _, old, new in (e for e in edits if e[0] == name):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    source = SourceFile.from_text(source.name, text)
    return KernelText(source, read_contract(KERNELS_DIR / "sm90a" / f"{name}.toml", source))


def gradients(
    problem: GradientProblem, attention: Attention, edits: Edits, schedules: tuple[Schedule, ...] = (Schedule.FORWARD,)
) -> Gradients:
    """Of the kernels, from the output and LSE that a forward pass rounds. All but dq must be the same under every schedule."""
    p = problem
    values = spec_values(attention.spec, p.q, p.k, p.v, {}, derivatives=False)
    lse = torch.zeros(p.q.shape[:3]) if values.lse is None else values.lse.float()
    device = PtxDevice(schedules, timeout_s=60.0)
    texts = (kernel_text(ROWS, edits), kernel_text(PAIRS, edits), kernel_text(LAST, edits))
    launch = BackwardLauncher.of(device, texts, say=lambda _: None)
    return Gradients(*launch(p.q, p.k, p.v, values.out.to(p.q.dtype), lse, p.dout, p.dlse))


@cache
def problem_of(mask: str, kind: str, shape: Shape, dtype: str) -> tuple[GradientProblem, Attention]:
    attention = replace(full_attention(), spec=softmax_spec(mask=mask))
    return make_gradient_problem(attention, derive(attention.spec), kind, shape, 0, dtype, {}), attention


CASES: Final = {
    "full, grouped heads": ("True", "index-coded V", Shape(1, 4, 2, 130, 150, 128), "bf16", SCHEDULES),
    "full, one row and one key": ("True", "random", Shape(2, 1, 1, 1, 1, 128), "bf16", (Schedule.FORWARD,)),
    "full, fp16, head dim 64": ("True", "large scores", Shape(1, 2, 1, 70, 190, 64), "fp16", (Schedule.REVERSED,)),
    "causal": (BOTTOM_RIGHT, "large scores", Shape(1, 2, 1, 129, 257, 128), "bf16", (Schedule.HOSTILE,)),
    "causal, rows without keys": (BOTTOM_RIGHT, "random", Shape(1, 2, 2, 150, 66, 64), "bf16", (Schedule.FORWARD,)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    mask, kind, shape, dtype, schedules = CASES[name]
    problem, attention = problem_of(mask, kind, shape, dtype)
    found = gradients(problem, attention, CAUSAL if mask != "True" else (), schedules)
    judgements = problem.judge(found)
    assert all(j.accepted for j in judgements.values()), judgements
    if "rows without keys" in name:
        assert not found.dq[:, :, : shape.Lq - shape.Lk].any()


@pytest.mark.parametrize("head_dim", [64, 128])
def test_every_form_compiles_and_keeps_its_gemms_in_flight(head_dim: int) -> None:
    """ptxas neither serialises wgmma, which is an error here, nor spills more than around the loop."""
    for name, most in ((ROWS, 0), (PAIRS, 64), (LAST, 0)):
        text = kernel_text(name, ())
        (form,) = listed_instantiations(text.contract, DType.BF16, head_dim)
        assert compile_kernel(text.source, text.contract, form).resources.spill_stores <= most


STEP: Final = "\n                    "
"""Before a line of the loop over query tiles."""
WRONG: Final[dict[str, Edits]] = {
    "delta missing": (*CAUSAL, (ROWS, "0.f : delta[r] - d_lse[r]", "0.f : -d_lse[r]")),
    "dlse ignored": (*CAUSAL, (ROWS, "delta[r] - d_lse[r]", "delta[r]")),
    "LSE off by ln 2": (*CAUSAL, (ROWS, "lse[r] * LOG2E;", "(lse[r] + LN2) * LOG2E;")),
    "derivative of the weight dropped": (*CAUSAL, (PAIRS, "w[r][c] * (dp[r][c] - delta[c])", "dp[r][c] - delta[c]")),
    "scale on dq only": (*CAUSAL, (PAIRS, "            scale(dk, p.grad_scale);\n", "")),
    "scale on dk only": (*CAUSAL, (LAST, "    scale(dq, p.grad_scale);\n", "")),
    "mask missing": CAUSAL[1:],
    "a query tile skipped": (CAUSAL[0], (PAIRS, "QuerySequence{0, p.q_blocks,", "QuerySequence{0, p.q_blocks - 1,")),
    "group sum over the wrong heads": (*CAUSAL, (PAIRS, "tile.hk * (p.heads_q / p.heads_kv);", "tile.hk;")),
}
UNORDERED: Final[dict[str, Edits]] = {
    "ds read before both have written it": (
        (PAIRS, "named_sync(DS_READY, CONSUMER_THREADS);", "named_sync(PART_READY + wg, WARPGROUP);"),
    ),
    "ds not shown to wgmma": ((PAIRS, f"async_proxy_fence();{STEP}q_ring.next();", "q_ring.next();"),),
    "dq overwritten while it is copied": ((PAIRS, "if (leader) bulk_wait_read<0>();  // the copy", "// the copy"),),
    "q handed back before dk has read it": (
        (PAIRS, "q_done = q_slot;", f"if (leader) barrier_arrive(smem.q_empty[q_slot]);{STEP}q_done = q_slot;"),
    ),
}


def causal(edits: Edits) -> Gradients:
    problem, attention = problem_of(BOTTOM_RIGHT, "index-coded V", Shape(1, 4, 2, 130, 150, 128), "bf16")
    found = gradients(problem, attention, edits)
    assert problem.accepts(found) == (edits == CAUSAL)
    return found


def test_the_right_text_is_told_from_the_wrong_ones() -> None:
    causal(CAUSAL)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_told_apart(name: str) -> None:
    causal(WRONG[name])


@pytest.mark.parametrize("name", UNORDERED)
def test_missing_order_is_noticed(name: str) -> None:
    """By the machine, whatever the values are."""
    with pytest.raises(CuError) as error:
        causal((*CAUSAL, *UNORDERED[name]))
    assert error.value.diagnostics[0].code in ("CU832", "CU833", "CU834"), str(error.value)


# ---- contracts and calls -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("[tensors.d_lse]", "[tensors.bias]", "`bias`"), ('pass = "backward_rows"', 'pass = "sideways"', "sideways"),
     ('pass = "backward_rows"\n', "", "`o`")],
)  # fmt: skip
def test_a_contract_that_is_none(tmp_path: Path, old: str, new: str, said: str) -> None:
    folder = KERNELS_DIR / "sm90a"
    text = (folder / f"{ROWS}.toml").read_text()
    assert text.count(old) == 1
    (tmp_path / f"{ROWS}.toml").write_text(text.replace(old, new))
    with pytest.raises(CuError) as error:
        read_contract(tmp_path / f"{ROWS}.toml", SourceFile.read(folder / f"{ROWS}.cu"))
    assert error.value.diagnostics[0].code == "CU451"
    assert said in error.value.diagnostics[0].message


def test_an_lse_in_the_half_type_is_refused() -> None:
    launch = BackwardLauncher.of(PtxDevice(), (kernel_text(ROWS, ()), kernel_text(PAIRS, ()), kernel_text(LAST, ())))
    q = torch.zeros(1, 1, 1, 64).bfloat16()
    with pytest.raises(CuError) as error:
        launch(q, q, q, q, q[..., 0], q)
    assert error.value.diagnostics[0].code == "CU821"
