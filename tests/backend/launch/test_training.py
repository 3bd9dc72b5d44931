"""Operators that autograd records, of the packaged kernels for full attention on the emulator: gradients within the bound of
PyTorch's own in fp64, in all ways that a model is trained, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cubridge.backend.launch.backward import BackwardLauncher
from cubridge.backend.launch.captured import NoCaptures
from cubridge.backend.launch.extras import ExtraArgument
from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.launch.operator_plan import BackwardPlan, OperatorPlan, operator_key
from cubridge.backend.launch.varlen import VarlenOperator
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.derive.gradient import derive
from cubridge.driver.kernels import BACKWARD, choose_kernel
from cubridge.engine.dense_gradient import Gradients
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.parser import parse_expr
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Precondition, Shape
from cubridge.judge.attention import full_attention
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem

ROWS, PAIRS, LAST = (choose_kernel(name).text for name in BACKWARD)
PLAN: Final = OperatorPlan(choose_kernel("sm90a").text, backward=BackwardPlan((ROWS, PAIRS, LAST), saves_lse=True))
SHAPE: Final = Shape(1, 4, 2, 40, 50, 64)
DEVICE: Final = PtxDevice(ONE_SCHEDULE)
Inputs = tuple[Tensor, Tensor, Tensor]


def operator(plan: OperatorPlan = PLAN) -> AttentionOperator:
    return AttentionOperator(plan, lambda _: DEVICE, say=lambda _: None)


@pytest.fixture(scope="module")
def run() -> AttentionOperator:
    return operator()


@pytest.fixture(scope="module")
def with_lse() -> AttentionOperator:
    return operator(replace(PLAN, gives_lse=True))


@pytest.fixture(scope="module")
def problem() -> GradientProblem:
    attention = full_attention()
    return make_gradient_problem(attention, derive(attention.spec), "index-coded V", SHAPE, 0, "bf16", {})


def leaves(problem: GradientProblem, change: Callable[[Tensor], Tensor] = lambda x: x) -> Inputs:
    q, k, v = (change(x.clone()).requires_grad_() for x in (problem.q, problem.k, problem.v))
    return q, k, v


def loss(problem: GradientProblem, found: tuple[Tensor, Tensor]) -> Tensor:
    """Its gradients by output and LSE are those of the problem."""
    assert problem.dlse is not None
    return (found[0].float() * problem.dout.float()).sum() + (found[1] * problem.dlse).sum()


def code(call: Callable[[], object]) -> str:
    with pytest.raises(CuError) as caught:
        call()
    return caught.value.diagnostics[0].code


# ---- gradients -------------------------------------------------------------------------------------------------------


def by_rows(x: Tensor) -> Tensor:
    """As a model has it: [B, L, H, D] in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("change", [lambda x: x, by_rows, lambda x: x.mT.contiguous().mT])
def test_gradients_are_within_the_bound(with_lse: AttentionOperator, problem: GradientProblem, change) -> None:
    inputs = leaves(problem, change)
    found = torch.autograd.grad(loss(problem, with_lse(*inputs)), inputs)
    assert problem.accepts(Gradients(*found))
    assert all(g.stride() == x.stride() for g, x in zip(found, inputs, strict=True) if x.stride(-1) == 1)


def test_a_wrong_pass_is_outside_of_it(problem: GradientProblem) -> None:
    """The LSE's gradient dropped."""
    source = ROWS.source.data.replace(b"delta[r] - d_lse[r]", b"delta[r]")
    assert source != ROWS.source.data
    rows = replace(ROWS, source=SourceFile("rows.cu", source))
    wrong = operator(replace(PLAN, gives_lse=True, backward=BackwardPlan((rows, PAIRS, LAST), saves_lse=True)))
    inputs = leaves(problem)
    found = torch.autograd.grad(loss(problem, wrong(*inputs)), inputs)
    assert not problem.accepts(Gradients(*found))


def test_an_output_or_an_lse_alone(with_lse: AttentionOperator, problem: GradientProblem) -> None:
    """Gradients are linear: those of both outputs are the sum of those of each."""
    inputs = leaves(problem)
    loss(problem, with_lse(*inputs)).backward()
    both = [x.grad for x in inputs]
    parts = leaves(problem)
    (with_lse(*parts)[0].float() * problem.dout.float()).sum().backward()
    with_lse(*parts)[1].backward(problem.dlse)  # accumulates
    for one, part in zip(both, parts, strict=True):
        assert one is not None and part.grad is not None
        torch.testing.assert_close(part.grad.float(), one.float(), rtol=2e-2, atol=2e-2)


def expected(problem: GradientProblem, dout: Tensor) -> list[Tensor]:
    """PyTorch's gradients of the output, in fp64."""
    wide = [x.double().requires_grad_() for x in (problem.q, problem.k, problem.v)]
    out = torch.nn.functional.scaled_dot_product_attention(*wide, enable_gqa=True)
    return [*torch.autograd.grad(out, wide, dout.double())]


def close(found: tuple[Tensor, ...], right: list[Tensor]) -> None:
    for one, other in zip(found, right, strict=True):
        assert (one.double() - other).norm() < 1e-2 * other.norm()


@pytest.mark.parametrize(
    "dout",
    [
        lambda p: torch.ones((), dtype=torch.bfloat16).expand(p.q.shape),
        lambda p: p.dout.mT.contiguous().mT,
        lambda p: torch.cat([p.dout, p.dout], -1)[..., 1:65],
    ],
    ids=["of a sum", "of a transpose", "of a part"],
)
def test_gradients_of_the_output_of_any_layout(run: AttentionOperator, problem: GradientProblem, dout) -> None:
    inputs = leaves(problem)
    close(torch.autograd.grad(run(*inputs), inputs, dout(problem)), expected(problem, dout(problem)))


def test_one_input_may_learn_alone(run: AttentionOperator, problem: GradientProblem) -> None:
    q, k, v = leaves(problem)
    (found,) = torch.autograd.grad(run(q.detach(), k, v.detach()), k, problem.dout)
    close((found,), expected(problem, problem.dout)[1:2])


@pytest.mark.parametrize("shape", [(0, 50), (40, 0)])
def test_without_rows_or_keys_gradients_are_0(run: AttentionOperator, shape: tuple[int, int]) -> None:
    q, k, v = (torch.randn(1, h, n, 64).bfloat16().requires_grad_() for h, n in ((4, shape[0]), *[(2, shape[1])] * 2))
    found = torch.autograd.grad(run(q, k, v).sum(), (q, k, v))
    assert [g.shape for g in found] == [x.shape for x in (q, k, v)] and not any(g.any() for g in found)


# ---- in training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpoints(run: AttentionOperator, problem: GradientProblem, reentrant: bool) -> None:
    inputs = leaves(problem)
    out = checkpoint(lambda q, k, v: run(q * 1, k, v), *inputs, use_reentrant=reentrant)
    assert isinstance(out, Tensor)
    out.backward(problem.dout)
    close(tuple(x.grad for x in inputs if x.grad is not None), expected(problem, problem.dout))


def test_autocast(run: AttentionOperator, problem: GradientProblem) -> None:
    inputs = leaves(problem, lambda x: x.float())
    with torch.autocast("cpu", torch.bfloat16):
        out = run(*inputs)
    assert out.dtype is torch.bfloat16
    found = torch.autograd.grad(out, inputs, problem.dout)
    assert {g.dtype for g in found} == {torch.float32}
    close(found, expected(problem, problem.dout))


@pytest.mark.parametrize("dynamic", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_one_graph_forward_and_one_backward(with_lse: AttentionOperator, problem: GradientProblem, dynamic) -> None:
    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return loss(problem, with_lse(q + 0, k, v))

    inputs = leaves(problem, by_rows)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    assert problem.accepts(Gradients(*torch.autograd.grad(compiled(*inputs), inputs)))


@pytest.mark.slow
def test_torch_finds_no_fault_with_the_operators(with_lse: AttentionOperator, problem: GradientProblem) -> None:
    assert with_lse.training is not None
    bare = getattr(torch.ops.cubridge, with_lse.name.split("::")[1] + "_training").default
    torch.library.opcheck(bare, (*leaves(problem), [], [], []))


def test_without_gradients_nothing_is_saved(run: AttentionOperator, problem: GradientProblem) -> None:
    with torch.no_grad():
        assert not run(*leaves(problem)).requires_grad
    assert torch.equal(run(problem.q, problem.k, problem.v), run(*leaves(problem)))


def test_a_change_between_the_passes_is_noticed(run: AttentionOperator, problem: GradientProblem) -> None:
    q, k, v = leaves(problem)
    changed = k * 1
    out = run(q, changed, v)
    changed.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_gradients_of_gradients_are_refused(run: AttentionOperator, problem: GradientProblem) -> None:
    inputs = leaves(problem)
    (first,) = torch.autograd.grad(run(*inputs).float().square().sum(), inputs[0], create_graph=True)
    assert code(lambda: first.sum().backward()) == "CU822"


def test_deterministic_algorithms_are_refused_in_both_passes(run: AttentionOperator, problem: GradientProblem) -> None:
    inputs = leaves(problem)
    out = run(*inputs)
    try:
        torch.use_deterministic_algorithms(True)
        assert code(lambda: run(*inputs)) == code(lambda: out.sum().backward()) == "CU847"
        assert not run(problem.q, problem.k, problem.v).requires_grad
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="added in no fixed order"):
            out.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_function_transforms_are_refused(run: AttentionOperator, problem: GradientProblem) -> None:
    p = problem
    assert code(lambda: torch.func.grad(lambda q: run(q, p.k, p.v).float().sum())(p.q)) == "CU822"


class Bias(NoCaptures):
    def __init__(self) -> None:
        super().__init__(handed={"bias": "bias"})


def test_what_is_captured_gets_no_gradient_and_is_refused_by_name(problem: GradientProblem) -> None:
    plan = replace(PLAN, captures=Bias(), arguments=(ExtraArgument("bias"),))
    run, bias = operator(plan), torch.zeros(4, requires_grad=True)
    q, k, v = leaves(problem)
    with pytest.raises(CuError, match="`bias` requires a gradient") as caught:
        run(q, k, v, bias)
    assert "q, k and v get gradients" in str(caught.value)
    close(torch.autograd.grad(run(q, k, v, bias.detach()), (q, k, v), problem.dout), expected(problem, problem.dout))
    bare = getattr(torch.ops.cubridge, run.name.split("::")[1] + "_training")
    assert code(lambda: bare(q, k, v, [bias], [], [True])) == "CU822"


def test_sizes_that_the_backward_pass_does_not_take(problem: GradientProblem) -> None:
    assert PLAN.backward is not None
    narrow = replace(PLAN.backward, preconditions=(Precondition(parse_expr("Lk <= 49")),))
    run = operator(replace(PLAN, backward=narrow))
    assert code(lambda: run(*leaves(problem))) == "CU823"
    run(problem.q, problem.k, problem.v)


def test_documents_in_one_row(run: AttentionOperator, problem: GradientProblem) -> None:
    """Each trains alone."""
    packed = [x[0].transpose(0, 1)[:40].contiguous().requires_grad_() for x in (problem.q, problem.k, problem.v)]
    bounds = torch.tensor([0, 25, 25, 40])
    out = VarlenOperator(run)(*packed, cu_seqlens_q=bounds)
    dout = problem.dout[0].transpose(0, 1)
    found = torch.autograd.grad(out, packed, dout)
    for first, last in ((0, 25), (25, 40)):
        alone = [x.detach()[first:last].transpose(0, 1)[None].double().requires_grad_() for x in packed]
        right = torch.nn.functional.scaled_dot_product_attention(*alone, enable_gqa=True)
        grads = torch.autograd.grad(right, alone, dout[first:last].transpose(0, 1)[None].double())
        close(tuple(g[first:last].transpose(0, 1)[None] for g in found), [*grads])


def test_the_backward_pass_is_judged_before_the_first_output(problem: GradientProblem) -> None:
    forms: list[object] = []

    def checked(launcher: BackwardLauncher, dtype: object, head_dim: int) -> None:
        forms.append((str(dtype), head_dim, launcher.pairs.text.source.name))
        raise CuError(Diagnostic("CU828", "the compiled backward pass is wrong"))

    run = AttentionOperator(PLAN, lambda _: DEVICE, checked_pass=checked)
    run(problem.q, problem.k, problem.v)
    for _ in range(2):
        assert code(lambda: run(*leaves(problem))) == "CU828"
    assert forms == [("bf16", 64, PAIRS.source.name)] * 2


def test_operators_are_told_by_their_backward_pass() -> None:
    assert PLAN.backward is not None
    asked = replace(PLAN.backward, preconditions=(Precondition(parse_expr("Lq <= 64")),))
    plans = [PLAN, replace(PLAN, backward=None), replace(PLAN, backward=asked)]
    plans.append(replace(PLAN, backward=replace(PLAN.backward, saves_lse=False)))
    assert len({operator_key(plan) for plan in plans}) == len(plans)
