"""What a launch hands to a kernel, from the contract alone, recorded by a device that runs nothing."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import Tensor

from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import Precondition
from cubridge.ir.types import DType
from tests.backend.fake_device import FakeDevice
from tests.backend.small_contract import small_contract, text

B, HQ, HK, LQ, LK, D = 2, 6, 3, 5, 13, 64


class Params(ctypes.Structure):
    """The struct of the small kernel, as a C compiler lays it out."""

    _fields_ = (
        ("k_map", ctypes.c_byte * 128),
        ("q", ctypes.c_void_p),
        ("o", ctypes.c_void_p),
        ("lse", ctypes.c_void_p),
        ("o_row", ctypes.c_longlong),
        ("rows", ctypes.c_int),
        ("factor", ctypes.c_float),
        ("weight", ctypes.c_void_p),
        ("counters", ctypes.c_void_p),
    )


class Bench:
    """A launcher of the small kernel with usual inputs, any of which a test may replace."""

    def __init__(self, **contract_changes: object) -> None:
        self.device = FakeDevice()
        self.said: list[str] = []
        self.preconditions: tuple[Precondition, ...] = ()
        self.contract_changes = contract_changes
        self.inputs = {
            "q": torch.randn(B, HQ, LQ, D, dtype=torch.bfloat16),
            "k": torch.randn(B, HK, LK, D, dtype=torch.bfloat16),
            "v": torch.randn(B, HK, LK, D, dtype=torch.bfloat16),
        }
        self.captures: dict[str, Tensor | float | int | bool] = {"cap": 30.0, "weight": torch.rand(HQ, LK)}
        self._launcher: Launcher | None = None

    @property
    def launcher(self) -> Launcher:
        if self._launcher is None:
            kernel = KernelText(text(), small_contract(**self.contract_changes))
            self._launcher = Launcher(self.device, kernel, self.preconditions, self.said.append)
        return self._launcher

    def run(self, *wanted: str) -> dict[str, Tensor]:
        return self.launcher.run(self.inputs, self.captures, wanted or ("o",))

    def params(self) -> Params:
        return Params.from_buffer_copy(self.device.launches[-1].params)

    def fault(self) -> CuError:
        with pytest.raises(CuError) as caught:
            self.run()
        assert not self.device.launches
        return caught.value


@pytest.fixture
def bench() -> Bench:
    return Bench()


# ---- what is launched ------------------------------------------------------------------------------------------------


def test_the_struct_holds_what_the_contract_says(bench: Bench) -> None:
    outputs = bench.run("o", "lse")
    launch, params = bench.device.launches[0], bench.params()
    assert (launch.grid, launch.block, launch.shared_bytes) == (B * HQ, 32, 4096)
    assert len(launch.params) == -(-ctypes.sizeof(Params) // 64) * 64 and bytes(params.k_map) == b"\1" * 128
    assert params.q == bench.inputs["q"].data_ptr()
    assert params.o == outputs["o"].data_ptr() and params.lse == outputs["lse"].data_ptr()
    assert params.o_row == D and params.rows == B * HQ * LQ
    assert params.factor == pytest.approx(30 * D**-0.5)


def test_an_absent_output_is_null(bench: Bench) -> None:
    outputs = bench.run("o")
    assert bench.params().lse is None and set(outputs) == {"o"}
    assert outputs["o"].shape == (B, HQ, LQ, D) and outputs["o"].dtype == torch.bfloat16


def test_lse_is_fp32(bench: Bench) -> None:
    lse = bench.run("o", "lse")["lse"]
    assert lse.shape == (B, HQ, LQ) and lse.dtype == torch.float32


def test_the_grid_may_depend_on_the_device() -> None:
    bench = Bench(grid=parse_expr("minimum(B * Hq * 100, SM_COUNT)"))
    bench.run()
    assert bench.device.launches[0].grid == 132


def test_strides_are_read_from_the_tensors(bench: Bench) -> None:
    rows = torch.empty(B, LQ, HQ, D, dtype=torch.bfloat16)
    bench.launcher.run_into(bench.inputs, bench.captures, {"o": rows.transpose(1, 2)})
    assert bench.params().o_row == HQ * D and bench.said == []


def test_an_output_that_cannot_be_written_in_place_is_refused(bench: Bench) -> None:
    columns = torch.empty(B, HQ, D, LQ, dtype=torch.bfloat16).transpose(2, 3)
    with pytest.raises(CuError, match="output `o`") as caught:
        bench.launcher.run_into(bench.inputs, bench.captures, {"o": columns})
    assert caught.value.diagnostics[0].code == "CU826"


def test_counters_are_zeros_or_null_where_work_is_equal() -> None:
    unequal, equal = Bench(), Bench(equal_work=True)
    unequal.run()
    equal.run()
    assert unequal.params().counters and equal.params().counters is None
    counters = unequal.device.kept[0][-1]
    assert counters.data_ptr() == unequal.params().counters and counters.tolist() == [0, 0]


# ---- TMA descriptors -------------------------------------------------------------------------------------------------


def test_a_tensor_map_has_its_axes_innermost_first(bench: Bench) -> None:
    bench.run()
    (request,) = bench.device.maps
    assert request.extents == (D, LK, HK, B)
    assert request.strides_bytes == (D * 2, LK * D * 2, HK * LK * D * 2)
    assert request.box == (64, 32, 1, 1) and request.swizzle_bytes == 128


def test_a_transposed_view_is_mapped_where_it_lies(bench: Bench) -> None:
    bench.inputs["k"] = torch.randn(B, LK, HK, D, dtype=torch.bfloat16).transpose(1, 2)
    bench.run()
    (request,) = bench.device.maps
    assert request.tensor is bench.inputs["k"] and bench.said == []
    assert request.strides_bytes == (HK * D * 2, D * 2, LK * HK * D * 2)


def test_axes_of_one_element_get_strides_that_the_hardware_takes(bench: Bench) -> None:
    odd = torch.randn(1, HK, LK, D, dtype=torch.bfloat16).as_strided((1, HK, LK, D), (7, LK * D, D, 1))
    bench.inputs = {"q": bench.inputs["q"][:1], "k": odd, "v": bench.inputs["v"][:1]}
    bench.run()
    assert all(s % 16 == 0 and s > 0 for s in bench.device.maps[0].strides_bytes) and bench.said == []


# ---- layouts that do not fit are copied, and said --------------------------------------------------------------------


def _last_axis_strided(k: Tensor) -> Tensor:
    return torch.stack((k, k), -1)[..., 0]


def _odd_rows(k: Tensor) -> Tensor:
    return torch.nn.functional.pad(k, (0, 3))[..., : k.shape[-1]]


def _odd_address(k: Tensor) -> Tensor:
    return torch.cat((k.flatten()[:3], k.flatten()))[3:].view(k.shape)


def _expanded(k: Tensor) -> Tensor:
    return k[:, :1].expand(k.shape)


@pytest.mark.parametrize(
    ("relay", "reason"),
    [(_last_axis_strided, "last axis"), (_odd_rows, "stride of"), (_odd_address, "address"), (_expanded, "stride 0")],
)
def test_what_the_kernel_cannot_take_is_copied_and_said(bench: Bench, relay, reason: str) -> None:
    bench.inputs["k"] = relay(bench.inputs["k"])
    bench.run()
    copied = bench.device.maps[0].tensor
    assert copied.data_ptr() != bench.inputs["k"].data_ptr() and torch.equal(copied, bench.inputs["k"])
    assert len(bench.said) == 1 and "`k` is copied" in bench.said[0] and reason in bench.said[0]


def test_one_buffer_for_q_k_and_v_is_taken_as_it_is(bench: Bench) -> None:
    packed = torch.randn(B, LQ, 3, HQ, D, dtype=torch.bfloat16)
    bench.inputs = {name: packed[:, :, n].transpose(1, 2) for n, name in enumerate("qkv")}
    bench.captures["weight"] = torch.rand(HQ, LQ)
    bench.run()
    assert bench.said == [] and bench.params().q == packed.data_ptr()


def test_a_stride_of_zero_is_taken_where_no_descriptor_is_used(bench: Bench) -> None:
    bench.inputs["q"] = bench.inputs["q"][:, :1].expand(B, HQ, LQ, D)
    bench.run()
    assert bench.said == [] and bench.params().q == bench.inputs["q"].data_ptr()


# ---- captured values -------------------------------------------------------------------------------------------------


def _captured(bench: Bench) -> Tensor:
    """The array that the kernel would read through `p.weight`."""
    return next(t for t in bench.device.kept[-1] if t.data_ptr() == bench.params().weight)


def test_a_captured_tensor_is_padded_with_zeros(bench: Bench) -> None:
    bench.run()
    array = _captured(bench)
    assert array.shape == (HQ, 16) and array.is_contiguous() and array.dtype == torch.float32
    assert torch.equal(array[:, :LK], bench.captures["weight"]) and not array[:, LK:].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_captured_float_is_converted(bench: Bench, dtype: torch.dtype) -> None:
    bench.captures["weight"] = torch.rand(HQ, LK).to(dtype)
    bench.run()
    assert torch.equal(_captured(bench)[:, :LK], bench.captures["weight"].float())


def test_a_captured_view_is_made_contiguous(bench: Bench) -> None:
    bench.captures["weight"] = torch.rand(LK, HQ).T
    bench.run()
    assert torch.equal(_captured(bench)[:, :LK], bench.captures["weight"])


def test_what_a_captured_tensor_holds_is_read_at_every_call(bench: Bench) -> None:
    weight = bench.captures["weight"]
    assert isinstance(weight, Tensor)
    bench.run()
    weight.numpy()[0, 0] = 7.0  # which moves no version counter
    bench.run()
    assert _captured(bench)[0, 0] == 7.0
    bench.captures["weight"] = torch.rand(HQ, LK)
    bench.run()
    assert torch.equal(_captured(bench)[:, :LK], bench.captures["weight"])


def test_a_captured_scalar_reaches_host_formulas(bench: Bench) -> None:
    for cap in (50.0, torch.tensor(20.0)):
        bench.captures["cap"] = cap
        bench.run()
        assert bench.params().factor == pytest.approx(float(cap) * D**-0.5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.rand(HQ, LK + 1), r"shape \[6, 14\].*\[Hq, Lk\] = \[6, 13\]"),
        (torch.rand(LK), r"shape \[13\]"),
        (None, "missing"),
    ],
)
def test_a_captured_value_of_another_shape_is_refused(bench: Bench, value: Tensor | None, message: str) -> None:
    if value is None:
        del bench.captures["weight"]
    else:
        bench.captures["weight"] = value
    error = bench.fault()
    assert error.diagnostics[0].code == "CU824"
    with pytest.raises(CuError, match=message):
        raise error


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("q", torch.zeros(B, HQ, LQ, D), "torch.float32"),
        ("k", torch.zeros(B, HK, LK, D, dtype=torch.float16), "must agree"),
        ("k", torch.zeros(HK, LK, D, dtype=torch.bfloat16), "3 axes"),
        ("v", torch.zeros(B, HK, LK + 1, D, dtype=torch.bfloat16), "Lk = 13 as in `k`, not 14"),
        ("k", torch.zeros(B + 1, HK, LK, D, dtype=torch.bfloat16), "B = 2 as in `q`, not 3"),
        ("v", torch.zeros(B, HK, LK, D, dtype=torch.bfloat16, device="meta"), "is on meta"),
    ],
)
def test_a_wrong_input_is_refused(bench: Bench, name: str, wrong: Tensor, message: str) -> None:
    bench.inputs[name] = wrong
    error = bench.fault()
    assert error.diagnostics[0].code == "CU821" and message in str(error)


@pytest.mark.parametrize("name", ["q", "weight"])
def test_memory_that_holds_negatives_is_refused(bench: Bench, name: str) -> None:
    given = bench.inputs if name == "q" else bench.captures
    given[name] = torch._neg_view(given[name])
    error = bench.fault()
    assert error.diagnostics[0].code == "CU821" and "resolve_neg" in error.diagnostics[0].help


def test_heads_that_do_not_group_are_refused(bench: Bench) -> None:
    bench.inputs["q"] = torch.zeros(B, 7, LQ, D, dtype=torch.bfloat16)
    assert bench.fault().diagnostics[0].code == "CU826"


def test_a_head_dim_that_is_not_listed_is_refused(bench: Bench) -> None:
    bench.inputs = {n: t[..., :32].contiguous() for n, t in bench.inputs.items()}
    error = bench.fault()
    assert error.diagnostics[0].code == "CU809" and error.exit_code == 4


def test_preconditions_are_checked_at_every_call(bench: Bench) -> None:
    bench.preconditions = (Precondition(parse_expr("Lk % 13 == 0")), Precondition(parse_expr("Lq <= cap")))
    bench.run()
    for size, message in ((14, "Lk % 13 == 0; the call has Lk = 14"), (LK, "Lq <= cap")):
        bench.inputs["k"] = bench.inputs["v"] = torch.zeros(B, HK, size, D, dtype=torch.bfloat16)
        bench.captures = {"weight": torch.rand(HQ, size), "cap": 3.0}
        with pytest.raises(CuError, match=message.replace("(", "\\(")) as caught:
            bench.run()
        assert caught.value.diagnostics[0].code == "CU823"


# ---- nothing to do ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, LQ, LK), (B, 0, LK), (B, LQ, 0)])
def test_empty_problems_launch_nothing(bench: Bench, batch: int, queries: int, keys: int) -> None:
    bench.inputs = {
        "q": torch.zeros(batch, HQ, queries, D, dtype=torch.bfloat16),
        "k": torch.zeros(batch, HK, keys, D, dtype=torch.bfloat16),
        "v": torch.zeros(batch, HK, keys, D, dtype=torch.bfloat16),
    }
    outputs = bench.run("o", "lse")
    assert not bench.device.launches
    assert outputs["o"].shape == (batch, HQ, queries, D) and not outputs["o"].any()
    assert outputs["lse"].shape == (batch, HQ, queries) and (outputs["lse"] == -torch.inf).all()


# ---- forms -----------------------------------------------------------------------------------------------------------


def test_another_length_is_served_and_another_type_compiled(bench: Bench) -> None:
    bench.run()
    bench.inputs = {n: t[:, :, :4] for n, t in bench.inputs.items()}
    bench.captures["weight"] = torch.rand(HQ, 4)
    bench.run()
    assert bench.device.loads == [(DType.BF16, 64)] and bench.said == []
    bench.inputs = {n: t.half() for n, t in bench.inputs.items()}
    bench.run()
    assert bench.device.loads[1:] == [(DType.F16, 64)]
    assert any("compiled again for f16 and head dim 64" in s for s in bench.said)


def test_a_form_is_checked_before_its_first_result(bench: Bench) -> None:
    seen: list[DType] = []

    def checked(launcher: Launcher, kernel: object, head_dim: int) -> None:
        assert head_dim == D
        seen.append(kernel.instantiation.dtype)  # type: ignore[attr-defined]
        launcher.run(bench.inputs, bench.captures, ("o",))
        if len(seen) > 1:
            raise CuError()

    kernel = KernelText(text(), small_contract())
    launcher = Launcher(bench.device, kernel, checked=checked)
    for _ in range(2):
        launcher.run(bench.inputs, bench.captures, ("o",))
    assert seen == [DType.BF16]
    bench.inputs = {n: t.half() for n, t in bench.inputs.items()}
    for _ in range(2):
        with pytest.raises(CuError):
            launcher.run(bench.inputs, bench.captures, ("o",))
    assert seen == [DType.BF16, DType.F16, DType.F16]
