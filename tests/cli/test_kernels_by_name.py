"""Commands over CuIR take kernels by name too; verify says by its exit code what kind of fault a kernel has."""

from __future__ import annotations

from pathlib import Path

import pytest

import cubridge
from tests.support.command import cuirc, fails
from tests.support.variants import EXAMPLES

CAUSAL = 'rewrite-mask{keep="j <= i"},infer-kv-range'


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sm80 kernel of head dim 64, causal."""
    path = tmp_path_factory.mktemp("kernels") / "causal.cuir"
    assert cuirc("opt", "sm80", "--head-dim", "64", "-p", CAUSAL, "-o", path).code == 0
    return path


def test_passes_over_a_kernel_by_name(causal: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.cuir"
    assert cuirc("lift", "sm80", "--head-dim", "64", "-o", source).code == 0
    assert cuirc("opt", source, "-p", CAUSAL).out == causal.read_bytes()


def test_the_form_of_the_cuir_beside_a_text(causal: Path) -> None:
    shown = cuirc("diff", "sm80", causal)
    assert shown.code == 1 and b"@@ mask @@" in shown.out and b"HEAD_DIM" not in shown.out
    assert b"imin(p.len_kv, tile.q_start + BLOCK_Q)" in cuirc("lower", "sm80", causal).out
    assert cuirc("lower", "sm80", causal, "--head-dim", "128").code == 1


def test_what_a_kernel_should_compute(causal: Path) -> None:
    assert cuirc("verify", causal, "--reference", EXAMPLES / "causal_top_left.py").code == 0
    fails(["verify", causal], "CU844", 3)


def test_a_target_is_verified_against_what_its_folder_claims(tmp_path: Path) -> None:
    made = cubridge.adapt(EXAMPLES / "causal_top_left.py", shape=cubridge.Shape(1, 2, 1, 70, 70, 64))
    made.write(tmp_path)
    assert cuirc("verify", tmp_path / "target.cuir").code == 0


def test_a_text_outside_the_dialect_is_told_all_that_it_lacks_at_once(tmp_path: Path) -> None:
    path = tmp_path / "foreign.cu"
    path.write_text("// @region mask\n__global__ void attention(float* o) {}\n")
    ended = fails(["verify", path], "CU841", 1)
    assert len(ended.places) == 1
    for lacking in ("foreign.toml", "common/tile_sm80.cuh", "of params, tile_state", "docs/kernels.md"):
        assert lacking in ended.err
    assert "score, mask" not in ended.err


def test_the_library_shows_its_names_and_kernels_their_text(causal: Path) -> None:
    assert set(cubridge.__all__) == set(dir(cubridge))
    text = causal.read_text()
    assert str(cubridge.parse(text)) == cubridge.to_text(cubridge.parse(text)) == text
