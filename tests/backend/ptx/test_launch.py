"""What the emulator sees of the tensors of a call."""

from __future__ import annotations

import pytest
import torch

from cubridge.backend.ptx.device import SCHEDULES
from cubridge.backend.ptx.launch import PlacedTensor
from cubridge.ir.diagnostics import CuError
from tests.kernels.emulated import faults, kernel_text, launcher, random_inputs, region_edit

DOC = "    const int* doc;        // @captured doc[B, Lk] pad 128\n    float exponent_scale;  // @host D ** -0.5 * LOG2E\n    "
MASK = """\
DEVICE void mask(float (&s)[ROWS][S_COLS], int kv_start, const WorkTile& tile, const Params& p) {
    for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < S_COLS; ++c) {
            const int j = kv_start + frag_col(c);
            const int doc = p.doc[(i64)tile.b * (ceil_div(p.len_kv, 128) * 128) + j];
            s[r][c] = doc == CHOSEN ? s[r][c] : -INFINITY;
        }
    }
}
"""


def test_gaps_and_padding_are_nan() -> None:
    rows = torch.arange(6.0).reshape(2, 3)
    spread = torch.full((2, 4), 9.0)[:, :3]
    spread.copy_(rows)
    placed = PlacedTensor("x", (spread,), 0, 4, used=2)
    assert placed.bytes == 7 * 4
    seen = torch.frombuffer(bytearray(placed.data()), dtype=torch.float32)
    assert seen.isnan().tolist() == [False, False, True, True, False, False, True]


def test_views_of_one_buffer_share_their_memory() -> None:
    buffer = torch.arange(8.0)
    placed = PlacedTensor("x", (buffer[::2], buffer[:3]), 0, 4)
    seen = torch.frombuffer(bytearray(placed.data()), dtype=torch.float32)
    assert seen.isnan().tolist() == [False, False, False, True, False, True, False]
    assert seen.nan_to_num(-1.0).tolist() == [0, 1, 2, -1, 4, -1, 6]


@pytest.mark.parametrize(("chosen", "right"), [("1", True), ("-1", False)])
def test_padding_of_a_captured_tensor_never_counts(chosen: str, right: bool) -> None:
    """Every key is document 1, so a mask that wants document 1 shows every key and no padding: padding is -1 here. One that
    wants -1 shows padding alone, which the kernel's value check then finds."""
    text = kernel_text(
        "sm90a", region_edit("sm90a", "params", DOC), region_edit("sm90a", "mask", MASK.replace("CHOSEN", chosen))
    )
    inputs = random_inputs((2, 1, 1, 70, 100, 64))
    out, lse = launcher(text)(*inputs, {"doc": torch.ones(2, 100, dtype=torch.int32)}, lse=True)
    assert (faults(out, lse, *inputs) == []) is right


def test_one_tensor_as_query_key_and_value() -> None:
    x, _, _ = random_inputs((1, 2, 2, 70, 70, 64))
    for arch in ("sm80", "sm90a"):
        out, lse = launcher(kernel_text(arch), schedules=SCHEDULES)(x, x, x, lse=True)
        assert faults(out, lse, x, x, x) == []


def test_shorter_view_at_the_same_address() -> None:
    """k and v begin where q does and hold fewer heads; the kernel reads each within its own sizes."""
    q, _, _ = random_inputs((1, 4, 4, 70, 70, 64))
    k = q[:, :2]
    for arch in ("sm80", "sm90a"):
        out, lse = launcher(kernel_text(arch))(q, k, k, lse=True)
        assert faults(out, lse, q, k, k) == []


def test_first_schedule_with_a_fault_is_told() -> None:
    text = kernel_text("sm80", ("cp_async_wait<1>();  // v[slot] is here", "cp_async_wait<2>();"))
    with pytest.raises(CuError) as caught:
        launcher(text, schedules=SCHEDULES)(*random_inputs((1, 1, 1, 70, 200, 64)))
    assert caught.value.diagnostics[0].code == "CU833"
