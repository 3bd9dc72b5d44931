"""Foreign kernels are lifted from what they do: the right ones to CuIR that does the same, the wrong ones are refused at a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cubridge.driver.foreign.lift import lift_foreign
from cubridge.driver.verify import examine_ir, not_proved
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text
from cubridge.judge.attention import Attention
from tests.driver.foreign.kernels import FOLDER, changed, lifted
from tests.support.command import fails
from tests.support.readings import reading


@pytest.mark.parametrize("name", ["plain", "pipelined", "peeled"])
def test_a_kernel_as_cuir(name: str, request: pytest.FixtureRequest) -> None:
    """Events and values of the CuIR are those of all runs, or it would not be here."""
    path, found = FOLDER / f"{name}.cuir", to_text(lifted(name).kernel)
    if request.config.getoption("--update-cases"):
        path.write_text(found)
    assert found == path.read_text()


def causal() -> Attention:
    return reading("causal_top_left").attention


@pytest.mark.parametrize(
    ("name", "is_causal"), [("plain", False), pytest.param("pipelined", True, marks=pytest.mark.slow)]
)
def test_what_it_computes(name: str, is_causal: bool) -> None:
    """Each is proved for all sizes but for its schedule, of which runs speak."""
    attention = causal() if is_causal else None
    kernel = lifted(name).kernel
    assert examine_ir(kernel, attention) == ()
    assert [part.partition(":")[0] for part in not_proved(kernel, attention)] == ["schedule"]


def test_what_another_grid_computes() -> None:
    """Batches along y and heads along z. The output is proved; the log-sum-exp of a row without keys is inf in this kernel."""
    attention = reading("causal_bottom_right").attention
    kernel = parse((FOLDER / "peeled.cuir").read_text())
    (found,) = examine_ir(kernel, attention)
    assert found.code == "CU844" and "the output is right, the LSE is not" in found.message
    assert [part.partition(":")[0] for part in not_proved(kernel, attention)] == ["LSE", "schedule"]


def test_what_no_run_showed() -> None:
    """Each loop over key tiles had one to visit; copies of the first rows of a tile were always inside. What a row without keys
    gives is shown: both ways of that branch are in the formula."""
    lines = {remark.span.text.split(";")[0] for remark in lifted("plain").remarks}
    assert any(line.startswith("for (int start = 0") for line in lines)
    assert not any("inverse" in line for line in lines)
    choices = {r.span.text for r in lifted("pipelined").remarks if "a choice here" in r.message}
    assert "const int bytes = first + row < length ? 16 : 0;" in choices


@dataclass(frozen=True, slots=True)
class Wrong:
    """An edit of a kernel, and how it is refused: `at` is in the line, `says` in the message."""

    name: str
    kernel: str
    old: str
    new: str
    code: str
    at: str
    says: str


_BARRIER = """        __syncthreads();
        float s[KEYS];"""

WRONG = (
    Wrong("a_missing_barrier", "plain", _BARRIER, "        float s[KEYS];", "CU833", "queries[thread][d]", "without a wait"),
    Wrong(
        "a_sum_that_is_not_scaled", "plain", "sum = sum * shrink + total;", "sum = sum + total;", "CU854",
        "sum = sum + total;", "not scaled as the output is",
    ),
    Wrong(
        "a_missing_wait", "pipelined", "        wait_for_copies<0>();\n        __syncthreads();\n        vs.fetch",
        "        __syncthreads();\n        vs.fetch", "CU833", "qs.data[warp * 16", "while a copy into it",
    ),
    Wrong(
        "a_mask_of_its_own_for_a_row", "pipelined", "j < len_kv && j <= i ?", "j < len_kv && j <= i + r ?", "CU854",
        "x = j < len_kv && j <= i + r", "no formula of i, j and sizes",
    ),
    Wrong(
        "the_maximum_of_another_row", "pipelined", "float larger = most[r];", "float larger = most[0];", "CU854",
        "x = j < len_kv && j <= i", "takes in scores of another row",
    ),
    Wrong(
        "a_column_of_another", "plain", "s[j] * __bfloat162float(values[j][e])", "s[j] * __bfloat162float(values[j][e ^ 1])",
        "CU854", "values[j][e ^ 1]", "column 0 of the output adds up column 1",
    ),
    Wrong(
        "values_of_the_first_head", "pipelined", "    v += head_kv * len_kv * WIDTH;\n", "", "CU853", "vs.data[",
        "where values lie is of another tile",
    ),
    Wrong(
        "a_mask_that_is_not_in_the_first_tile", "peeled", "if (j >= min(keys", "if (step > 0 && j >= min(keys", "CU854",
        "if (step > 0 && j >=", "in some key tiles alone, and not in the first ones",
    ),
    Wrong(
        "a_first_tile_that_begins_with_one", "peeled", "sum[r] = 0.f;", "sum[r] = 1.f;", "CU854", "sum[r] += x;",
        "adds up other weights than its share",
    ),
    Wrong(
        "a_first_tile_of_other_weights", "peeled", "x = exp2f(x * scale_log2 -", "x = exp2f(x * (FIRST ? 2.f : 1.f) * scale_log2 -",
        "CU854", "x = exp2f(", "computed in several ways",
    ),
    Wrong(
        "a_copy_of_the_same_tile_in_the_loop", "peeled",
        "vs, v + tile * T::KEYS * params.of_keys.row, params.of_keys.row, T::KEYS);\n        close_group();\n        scores",
        "vs, v, params.of_keys.row, T::KEYS);\n        close_group();\n        scores", "CU853",
        "address(from)", "a tile of values, by its keys",
    ),
    Wrong(
        "a_missing_barrier_in_the_loop", "peeled", "__syncthreads();\n        fetch<T::KEYS, T::DIM, false>(vs, v +",
        "fetch<T::KEYS, T::DIM, false>(vs, v +", "CU833", "from + row * stride", "overwritten without a wait",
    ),
    Wrong(
        "an_output_that_is_not_scaled", "peeled", "o[n / 2][2 * r + n % 2] *= shrink;", "o[n / 2][2 * r + n % 2] *= 0.5f;", "CU854",
        '"r"(a[0])', "not scaled and added to alike",
    ),
    Wrong(
        "a_maximum_of_half_the_row", "peeled", "            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 2));\n", "",
        "CU854", "larger = fmaxf(larger,", "other keys than its weights",
    ),
    Wrong(
        "a_sum_of_half_the_row", "peeled", "        total[r] += __shfl_xor_sync(~0u, total[r], 1);\n", "", "CU854",
        "cvt.rn.bf16x2.f32", "made of no one accumulator",
    ),
    Wrong(
        "a_row_put_where_another_belongs", "peeled", "lane / 4 + 8 * r) * T::DIM + d", "lane / 4 + 8 - 8 * r) * T::DIM + d",
        "CU854", '"r"(a[0])', "takes in scores of another row",
    ),
    Wrong(
        "a_missing_barrier_before_the_output", "peeled",
        "    __syncthreads();\n    #pragma unroll\n    for (int r = 0; r < 2; ++r) {\n        const int i",
        "    #pragma unroll\n    for (int r = 0; r < 2; ++r) {\n        const int i", "CU833", "reinterpret_cast<const uint4*>",
        "read without a wait",
    ),
    Wrong(
        "a_wait_of_another_kind", "pipelined", 'cp.async.wait_group %0;" ::"n"(N)', 'cp.async.wait_all;" ::', "CU851",
        "cp.async.wait_all", "`cp.async.wait_all` has no statement",
    ),
    Wrong(
        "values_of_another_tile", "plain", "v[(start + row) * WIDTH + column]", "v[row * WIDTH + column]", "CU853",
        "v[row * WIDTH + column]", "no tile of whole rows",
    ),
)  # fmt: skip


SLOW = {
    "a_column_of_another", "values_of_another_tile", "a_first_tile_of_other_weights", "a_copy_of_the_same_tile_in_the_loop",
    "a_missing_barrier_in_the_loop", "an_output_that_is_not_scaled", "a_sum_of_half_the_row", "a_row_put_where_another_belongs",
    "a_missing_barrier_before_the_output",
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [pytest.param(w, id=w.name, marks=pytest.mark.slow if w.name in SLOW else ()) for w in WRONG]
)
def test_a_wrong_kernel_is_refused_at_its_line(wrong: Wrong, tmp_path: Path) -> None:
    path = changed(wrong.kernel, wrong.old, wrong.new, tmp_path)
    with pytest.raises(CuError) as caught:
        lift_foreign(path, path.with_suffix(".toml"))
    first = caught.value.diagnostics[0]
    assert first.code == wrong.code, first
    assert first.span.file.name == str(path)
    assert wrong.at in first.span.text and wrong.says in first.message


def test_a_kernel_that_computes_something_else_is_lifted_and_not_accepted(tmp_path: Path) -> None:
    path = changed("pipelined", "x = j < len_kv && j <= i ?", "x = j < len_kv && j < i ?", tmp_path)
    kernel = lift_foreign(path, path.with_suffix(".toml")).kernel
    assert "where((j < Lk) & (j < i), s, -inf)" in to_text(kernel)
    (found,) = examine_ir(kernel, causal())
    assert found.code == "CU844" and "j < i ? x : -INFINITY" in found.span.text


def test_a_contract_that_does_not_fit(tmp_path: Path) -> None:
    """Each is found before anything runs, at its line of the contract."""
    contract = (FOLDER / "pipelined.toml").read_text()
    for old, new, code, says in (
        ('group = "int Hq // Hk"\n', "", "CU852", "has 10 parameters, and its contract 9"),
        ('"int Lk"', '"long Lk"', "CU852", "`len_kv` has 4 bytes in the kernel, not those of `long`"),
        ("pipelined<16, 32>", "piped<16, 32>", "CU808", "no one kernel `piped<16, 32>`: identifier"),
        ("head_dim = 32", 'head_dim = "???"', "CU451", "`head_dim` is not an integer"),
        ('"int Lq"', '"int ???"', "CU101", ""),
        ('out = "tensor o"', 'out = "tensor p"', "CU451", "there is no tensor `p`"),
    ):
        assert contract.count(old) == 1
        path = tmp_path / "wrong.toml"
        path.write_text(contract.replace(old, new))
        with pytest.raises(CuError) as caught:
            lift_foreign(FOLDER / "pipelined.cu", path)
        first = caught.value.diagnostics[0]
        assert (first.code, first.span.file.name) == (code, str(path)) and says in first.message, first


def test_a_foreign_contract_beside_a_kernel_says_which_command_reads_it() -> None:
    ended = fails(["verify", FOLDER / "plain.cu"], "CU841", 1)
    assert "cuirc lift FILE.cu --contract plain.toml" in ended.err
