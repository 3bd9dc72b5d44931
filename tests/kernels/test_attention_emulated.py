"""Both kernels as they are, run on the emulator against the fp64 oracle."""

from __future__ import annotations

import pytest
import torch

from cubridge.backend.ptx.device import SCHEDULES
from tests.kernels.emulated import ARCHS, faults, kernel_text, launcher, random_inputs, region_edit, steep_inputs

Shape = tuple[int, int, int, int, int, int]  # B, Hq, Hk, Lq, Lk, D
LENGTHS = [(1, 1), (1, 257), (63, 65), (129, 64), (128, 128), (192, 330)]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_lengths(arch: str, lengths: tuple[int, int]) -> None:
    inputs = random_inputs((1, 2, 1, *lengths, 64))
    assert faults(*launcher(kernel_text(arch))(*inputs, lse=True), *inputs) == []


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("dtype", "d"), [(torch.float16, 64), (torch.bfloat16, 128), (torch.float16, 128)])
def test_element_types_and_head_dims(arch: str, dtype: torch.dtype, d: int) -> None:
    inputs = random_inputs((1, 2, 1, 130, 200, d), dtype)
    assert faults(*launcher(kernel_text(arch))(*inputs, lse=True), *inputs) == []


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("equal_work", [True, False])
def test_grouped_heads_rising_maxima_and_both_schedulers(arch: str, equal_work: bool) -> None:
    inputs = steep_inputs((1, 6, 2, 150, 300, 64))
    assert (
        faults(*launcher(kernel_text(arch, equal_work=equal_work), schedules=SCHEDULES)(*inputs, lse=True), *inputs)
        == []
    )


@pytest.mark.parametrize("arch", ARCHS)
def test_each_row_reads_its_own_key(arch: str) -> None:
    """One-hot attention over index-coded values: row i sees key 7 i mod Lk alone and must give back exactly its number."""
    lq, lk = 140, 250
    chosen = (7 * torch.arange(lq)) % lk
    codes = torch.randn(
        lk, 64, generator=torch.Generator().manual_seed(5)
    ).sign()  # independent enough at these lengths
    q, k = (codes[chosen] * 16)[None, None].bfloat16(), (codes * 16)[None, None].bfloat16()
    v = torch.stack((torch.arange(lk) // 16, torch.arange(lk) % 16), -1).repeat(1, 32)[None, None].bfloat16()
    out = launcher(kernel_text(arch))(q, k, v)
    assert torch.equal(out, v[:, :, chosen])


@pytest.mark.parametrize("arch", ARCHS)
def test_gaps_between_rows_are_never_read(arch: str) -> None:
    """The emulator fills what lies between the elements of an input with NaN."""
    shape = (2, 2, 2, 70, 140, 64)
    inputs = [torch.cat((x, torch.full_like(x, torch.nan)), -1)[..., :64] for x in random_inputs(shape)]
    assert faults(*launcher(kernel_text(arch), schedules=SCHEDULES)(*inputs, lse=True), *inputs) == []


CAUSAL_RANGE = """\
struct KeySequence { int lo, hi, full_lo, full_hi; };
DEVICE KeySequence key_sequence(const WorkTile& tile, const Params& p) {
    const int last = tile.q_start + BLOCK_Q + p.len_kv - p.len_q;
    const int hi = ceil_div(imin(p.len_kv, last), BLOCK_KV);
    return KeySequence{0, hi, 0, imin(p.len_kv, last - BLOCK_Q + 1) / BLOCK_KV};
}
DEVICE int key_count(const KeySequence& keys, const Params& p) { return imax(keys.hi - keys.lo, 0); }
DEVICE int key_tile(const KeySequence& keys, int t, const Params& p) { return keys.hi - 1 - t; }
DEVICE bool key_masked(const KeySequence& keys, int t, const Params& p) {
    const int n = keys.hi - 1 - t;
    return (n < keys.full_lo) | (n >= keys.full_hi);
}
"""
CAUSAL_MASK = ("j < p.len_kv ?", "(j < p.len_kv) & (j <= tile.q_start + frag_row(r) + p.len_kv - p.len_q) ?")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("lengths", [(300, 300), (290, 100)], ids=str)
def test_rows_without_keys_and_tiles_without_keys(arch: str, lengths: tuple[int, int]) -> None:
    """Bottom-right causal attention: with Lq > Lk whole query tiles visit no key tile, and rows give 0 and -inf."""
    lq, lk = lengths
    text = kernel_text(arch, region_edit(arch, "kv_range", CAUSAL_RANGE), CAUSAL_MASK)
    assert not text.contract.equal_work
    inputs = random_inputs((1, 3, 1, lq, lk, 64))
    keep = torch.arange(lk) <= torch.arange(lq)[:, None] + lk - lq
    out, lse = launcher(text)(*inputs, lse=True)
    assert faults(out, lse, *inputs, keep) == []
    if lq > lk:
        assert not out[:, :, : lq - lk].any() and bool((lse[:, :, : lq - lk] == -torch.inf).all())


BIAS = """\
DEVICE void score(float (&s)[ROWS][S_COLS], int kv_start, const WorkTile& tile, const Params& p) {
    for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < S_COLS; ++c) {
            const float j = frag_col_f32(kv_start, c);
            s[r][c] = kv_start + frag_col(c) == p.probe ? 1000.f * (tile.q_start + frag_row(r)) + j : -INFINITY;
        }
    }
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_fragment_maps_are_exact(arch: str) -> None:
    """bias[i, j] = 1000 i + j, read back through the LSE one key at a time: every column of a fragment, every row of a tile."""
    text = kernel_text(
        arch,
        region_edit(
            arch, "params", "    int probe;             // @host probe\n    float exponent_scale;  // @host 1.0\n    "
        ),
        region_edit(arch, "score", BIAS),
        ("(row.m[r] * p.exponent_scale + log2_approx(l)) * LN2", "row.m[r]"),
    )
    q, k, v = (torch.zeros(1, 1, n, 64).bfloat16() for n in (129, 140, 140))
    run = launcher(text)
    for probe in (*range(0, 128, 9), 139):
        _, lse = run(q, k, v, {"probe": probe}, lse=True)
        assert torch.equal(lse[0, 0], 1000.0 * torch.arange(129) + probe)
