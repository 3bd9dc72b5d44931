"""The operator: called like its reference, traceable with fake tensors, refusing what it cannot answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.launch.captured import NoCaptures
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.extras import ExtraArgument, bind_extras
from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.launch.operator_plan import OperatorPlan
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import Precondition
from tests.backend.fake_device import FakeDevice
from tests.backend.small_contract import small_contract, text

B, HQ, HK, LQ, LK, D = 2, 6, 3, 5, 13, 64


class Captures(NoCaptures):
    """`weight` is handed on, `cap` a number."""

    def __init__(self) -> None:
        super().__init__(handed={"cap": "cap", "weight": "weight"})


PLAN = OperatorPlan(
    KernelText(text(), small_contract()),
    Captures(),
    (ExtraArgument("weight"), ExtraArgument("cap", 30.0), ExtraArgument("causal", True, fixed=True, adapted=True)),
)
WEIGHT = torch.rand(HQ, LK)


def copies_q(tensors) -> None:
    """Stands for a kernel: q, k, v, outputs in order."""
    q, _, _, o = tensors[:4]
    o.copy_(q)
    if len(tensors) > 4 and tensors[4].shape == q.shape[:3] and tensors[4].dtype == torch.float32:
        tensors[4].copy_(q.float().sum(-1))


def make(plan: OperatorPlan = PLAN) -> tuple[AttentionOperator, FakeDevice]:
    device = FakeDevice(effect=copies_q)
    return AttentionOperator(plan, lambda _: device), device


def qkv(dtype: torch.dtype = torch.bfloat16, length: int = LK) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(B, HQ, LQ, D, dtype=dtype),
        torch.randn(B, HK, length, D, dtype=dtype),
        torch.randn(B, HK, length, D, dtype=dtype),
    )


def code(call) -> str:
    with pytest.raises(CuError) as caught:
        call()
    return caught.value.diagnostics[0].code


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_it_is_called_like_the_reference() -> None:
    operator, device = make()
    q, k, v = qkv()
    for out in (
        operator(q, k, v, WEIGHT),
        operator(q, k, v, weight=WEIGHT, cap=30),
        operator(q, k, v, WEIGHT, 30, True),
    ):
        assert torch.equal(out, q)
    assert len(device.launches) == 3


def test_out_and_lse_where_the_reference_gives_both() -> None:
    operator, _ = make(replace(PLAN, gives_lse=True))
    q, k, v = qkv()
    out, lse = operator(q, k, v, WEIGHT)
    assert torch.equal(out, q) and torch.equal(lse, q.float().sum(-1))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "`weight` is missing"),
        ((WEIGHT, 30.0, True, 1), {}, "4 arguments after q, k, v; the reference takes 3"),
        ((WEIGHT,), {"weight": WEIGHT}, "two values for the argument `weight`"),
        ((WEIGHT,), {"slope": 1.0}, "no argument `slope`"),
        ((WEIGHT,), {"causal": False}, "`causal` is False; the kernel was adapted with True"),
        (("table",), {}, "`weight` is a str"),
    ],
)
def test_a_wrong_call_is_refused(args, kwargs, message: str) -> None:
    operator, device = make()
    with pytest.raises(CuError) as caught:
        operator(*qkv(), *args, **kwargs)
    assert message in str(caught.value) and caught.value.diagnostics[0].code == "CU821"
    assert not device.launches


@pytest.mark.parametrize("default", [None, torch.ones(2)])
def test_a_tensor_where_the_adaptation_saw_a_default_needs_an_example(default: object) -> None:
    argument = ExtraArgument("bias", default, fixed=True, adapted=default)
    assert bind_extras((argument,), (), {}) == ()
    with pytest.raises(CuError, match="adapted with its default alone") as caught:
        bind_extras((argument,), (torch.zeros(2),), {})
    assert "let `extra_inputs` give an example" in str(caught.value)


def test_a_default_that_is_not_the_adapted_value_is_refused() -> None:
    """The reference would use its default; the kernel was made for another value."""
    arguments = (ExtraArgument("window", 64, fixed=True, adapted=40),)
    with pytest.raises(CuError, match="`window` is 64; the kernel was adapted with 40"):
        bind_extras(arguments, (), {})
    assert bind_extras(arguments, (40,), {}) == ()


def test_arguments_bind_as_python_binds_them() -> None:
    def reference(weight, cap=30.0):
        return weight, cap

    for args, kwargs in [((1.0,), {}), ((1.0, 2.0), {}), ((), {"cap": 3.0, "weight": 1.0}), ((1.0,), {"cap": 4.0})]:
        assert bind_extras(PLAN.arguments[:2], args, kwargs) == reference(*args, **kwargs)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["q", "k", "v", "weight"])
def test_inputs_that_require_a_gradient_are_refused(which: str) -> None:
    operator, device = make()
    values = dict(zip("qkv", qkv(), strict=True)) | {"weight": WEIGHT.clone()}
    values[which].requires_grad_()
    assert code(lambda: operator(**values)) == "CU822"
    assert not device.launches
    with torch.no_grad():
        assert not operator(**values).requires_grad


@pytest.mark.parametrize("which", ["q", "weight"])
def test_inputs_that_have_a_tangent_are_refused(which: str) -> None:
    operator, device = make()
    values = dict(zip("qkv", qkv(), strict=True)) | {"weight": WEIGHT.clone()}
    other = {n: x for n, x in values.items() if n != which}
    given = values[which]
    assert code(lambda: torch.func.jvp(lambda x: operator(**other, **{which: x}), (given,), (given,))) == "CU822"
    with torch.no_grad(), forward_ad.dual_level():
        assert code(lambda: operator(**other, **{which: forward_ad.make_dual(given, given)})) == "CU822"
        assert not device.launches
        operator(**values)


def test_the_bare_operator_refuses_gradients_too() -> None:
    operator, _ = make()
    q, k, v = qkv()
    bare = getattr(torch.ops.cubridge, operator.name.split("::")[1])
    assert torch.equal(bare(q, k, v, [WEIGHT], [30.0], [True, False]), q)
    assert code(lambda: bare(q.requires_grad_(), k, v, [WEIGHT], [30.0], [True, False])) == "CU822"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda q, k, v: (q.float(), k, v), "CU821"),
        (lambda q, k, v: (q[0], k, v), "CU821"),
        (lambda q, k, v: (q, k[:, :, :4], v), "CU821"),
        (lambda q, k, v: (q[:, :4], k, v), "CU826"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_on_real_and_on_fake_tensors(change, expected: str) -> None:
    operator, _ = make()
    assert code(lambda: operator(*change(*qkv()), WEIGHT)) == expected
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert code(lambda: operator(*change(*qkv()), torch.rand(HQ, LK))) == expected


def test_preconditions_are_checked_at_every_call() -> None:
    operator, _ = make(replace(PLAN, preconditions=(Precondition(parse_expr("Lk == 13")),)))
    operator(*qkv(), WEIGHT)
    assert code(lambda: operator(*qkv(length=14), torch.rand(HQ, 14))) == "CU823"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_a_tool_is_missing() -> None:
    operator = AttentionOperator(PLAN, find_gpu)
    with pytest.raises(CuError) as caught:
        operator(*qkv(), WEIGHT)
    assert caught.value.exit_code == 5 and caught.value.diagnostics[0].code == "CU820"
    assert code(find_gpu) == "CU820"


# ---- tracing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gives_lse", [False, True])
def test_fake_tensors_give_shapes_and_launch_nothing(gives_lse: bool) -> None:
    operator, device = make(replace(PLAN, gives_lse=gives_lse))
    with FakeTensorMode():
        result = operator(*qkv(torch.float16), torch.rand(HQ, LK))
    outputs = result if isinstance(result, tuple) else (result,)
    assert [(tuple(o.shape), o.dtype) for o in outputs] == [
        ((B, HQ, LQ, D), torch.float16),
        ((B, HQ, LQ), torch.float32),
    ][: 1 + gives_lse]
    assert not device.launches


@pytest.mark.parametrize("dynamic", [False, True])
def test_it_is_one_node_of_a_compiled_graph(dynamic: bool) -> None:
    operator, device = make()

    def model(q: Tensor, k: Tensor, v: Tensor, weight: Tensor) -> Tensor:
        return operator(q * 2, k, v, weight) + 1

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for length in (LK, LK + 3):
        q, k, v = qkv(length=length)
        assert torch.equal(compiled(q, k, v, torch.rand(HQ, length)), q * 2 + 1)
    assert len(device.launches) == 2


class Kept(NoCaptures):
    """`weight` is what the reference keeps as `table`."""

    def __init__(self) -> None:
        super().__init__(handed={"cap": "cap", "weight": "table"})

    def state(self) -> dict[str, Tensor]:
        return {"table": WEIGHT}


def test_what_the_reference_keeps_is_an_input_of_the_node() -> None:
    graphs: list[torch.fx.GraphModule] = []
    operator, device = make(replace(PLAN, captures=Kept(), arguments=PLAN.arguments[1:]))

    def seen(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch.compile(lambda q, k, v: operator(q, k, v), backend=seen, fullgraph=True)(*qkv())
    (node,) = (n for n in graphs[0].graph.nodes if operator.name.split("::")[1] in str(n.target))
    tensors, numbers, are_tensors = node.args[3:]
    assert [n.op for n in tensors] == ["placeholder"] and (numbers, are_tensors) == ([30.0], [False, True])
    assert torch.equal(device.kept[0][4][:, :LK], WEIGHT)


def test_a_compiled_graph_refuses_gradients_too() -> None:
    operator, device = make()
    compiled = torch.compile(lambda q, k, v: operator(q, k, v, WEIGHT), backend="aot_eager")
    q, k, v = qkv()
    with pytest.raises(Exception, match="requires a gradient"):
        compiled(q.requires_grad_(), k, v)
    assert not device.launches


def test_torch_finds_no_fault_with_the_operator() -> None:
    operator, _ = make()
    q, k, v = qkv()
    bare = getattr(torch.ops.cubridge, operator.name.split("::")[1]).default
    given = (q, k, v, [WEIGHT], [30.0], [True, False])
    torch.library.opcheck(bare, given, test_utils=("test_schema", "test_faketensor"))


# ---- identity --------------------------------------------------------------------------------------------------------


def test_references_that_differ_in_a_constant_never_share_an_operator() -> None:
    plans = [
        PLAN,
        replace(PLAN, constants={"scale": 0.125}),
        replace(PLAN, constants={"scale": 0.25}),
        replace(PLAN, constants={"table": torch.zeros(4)}),
        replace(PLAN, constants={"table": torch.tensor([0.0, 0.0, 0.0, 1.0])}),
        replace(PLAN, constants={"table": torch.zeros(2, 2)}),
        replace(PLAN, constants={"table": torch.zeros(4, dtype=torch.int32)}),
        replace(PLAN, preconditions=(Precondition(parse_expr("Lq == Lk")),)),
        replace(PLAN, arguments=PLAN.arguments[:2]),
        replace(PLAN, gives_lse=True),
        replace(PLAN, text=replace(PLAN.text, contract=small_contract(equal_work=True))),
    ]
    keys = [AttentionOperator(p, find_gpu).key for p in plans]
    assert len(set(keys)) == len(keys)
    again = AttentionOperator(replace(PLAN, constants={"table": torch.zeros(4)}), find_gpu)
    assert again.key == keys[3]


def test_equal_plans_still_run_their_own_captures() -> None:
    first, _ = make()
    second, _ = make(replace(PLAN, captures=NoCaptures()))
    assert first.key == second.key and first.name != second.name
