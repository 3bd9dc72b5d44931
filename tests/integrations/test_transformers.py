"""Small models of transformers with random weights: the logits of eager attention, on the emulator, without the checks of kernels.
`make integrations` installs transformers and runs this."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cubridge.integrations.transformers import ModelAttention, model_attention, register
from cubridge.ir.diagnostics import CuError
from tests.support.unchecked import unchecked

SMALL = {
    "vocab_size": 64, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 128,
}  # fmt: skip
IDS = torch.randint(3, 64, (2, 20), generator=torch.Generator().manual_seed(0))
PADDED = torch.arange(20) >= torch.tensor([[0], [5]])
PACKED = torch.cat([torch.arange(8), torch.arange(12)]).expand(2, -1)


def llama(transformers):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))


def gemma(transformers):
    """A cap, another scale, and windows in every second layer."""
    options = {"sliding_window": 6, "attn_logit_softcapping": 20.0, "query_pre_attn_scalar": 48}
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SMALL, **options))


@pytest.fixture
def adapted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    return unchecked(monkeypatch, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [llama, gemma])
@torch.no_grad()
def test_a_model_gives_the_logits_of_eager_attention(kind, adapted: list[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="`make integrations` installs transformers")
    torch.manual_seed(0)
    model = kind(transformers).bfloat16().eval()
    register("cubridge", device="emulator")

    def both(visible: Tensor, **given: object) -> None:
        """Rows of padding are left out: eager attention gives the mean of v there."""
        logits = []
        for name in ("eager", "cubridge"):
            model.set_attn_implementation(name)
            logits.append(model(input_ids=IDS, **given).logits.float()[visible])
        torch.testing.assert_close(*logits, rtol=2e-2, atol=2e-2)

    everything = torch.ones_like(PADDED)
    both(everything)
    both(everything, position_ids=PACKED, use_cache=False)
    both(PADDED, attention_mask=PADDED.long())
    logits = []
    for name in ("eager", "cubridge"):
        model.set_attn_implementation(name)
        options = {"max_new_tokens": 5, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        found = model.generate(IDS, attention_mask=PADDED.long(), pad_token_id=0, logits_processor=[chosen], **options)
        logits.append(torch.stack(found.logits).float())
    torch.testing.assert_close(*logits, rtol=2e-2, atol=2e-2)
    assert adapted


def chosen(ids: Tensor, scores: Tensor) -> Tensor:
    """The same next token whatever rounding says."""
    return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([ids.shape[1]]), 0.0)


# ---- what a model gives, without a model -----------------------------------------------------------------------------


def qkv() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, 40, 64, generator=generator).bfloat16() for _ in range(3)]


@pytest.mark.slow
def test_numbers_are_fixed_and_tensors_are_read(adapted: list[str]) -> None:
    attend, mask = ModelAttention(model_attention, "auto", "emulator"), torch.rand(1, 1, 40, 40) > 0.5
    for given in (
        {"scaling": 0.2, "softcap": 9.0, "dropout": 0.0},
        {"attention_mask": mask},
        {"attention_mask": ~mask},
    ):
        out, weights = attend(nn.Module(), *qkv(), **{"attention_mask": None, **given})
        named = {"mask" if n == "attention_mask" else n: x for n, x in given.items() if n != "dropout"}
        named = {"scaling": 0.125, "is_causal": "mask" not in named, **named}
        right = model_attention(*(t.double() for t in qkv()), **named).transpose(1, 2)
        torch.testing.assert_close(out.double(), right, rtol=2e-2, atol=2e-2)
        assert weights is None
    assert adapted == ["model_attention", "model_attention"]


@pytest.mark.slow
def test_models_train_through_it(adapted: list[str]) -> None:
    attend, mask = ModelAttention(model_attention, "auto", "emulator", grad=True), torch.ones(1, 1, 40, 40).tril() > 0
    inputs = [x.requires_grad_() for x in qkv()]
    out, _ = attend(nn.Module(), *inputs, mask, scaling=0.1, softcap=20.0)
    found = torch.autograd.grad(out.float().square().sum(), inputs)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    right = model_attention(*wide, mask, scaling=0.1, softcap=20.0)
    for one, other in zip(found, torch.autograd.grad(right.square().sum(), wide), strict=True):
        assert (one.double() - other).norm() < 2e-2 * other.norm()
    assert adapted == ["model_attention"]


def test_a_library_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CuError, match=r"pip install \"cubridge\[transformers\]\"") as caught:
        register()
    assert caught.value.diagnostics[0].code == "CU820"


def own(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return model_attention(q, k, v, is_causal=True, scaling=0.125)


@pytest.mark.parametrize(
    "given, help",
    [
        ({"dropout": 0.1}, "call model.eval()"),
        ({"output_attentions": True}, "call the model without it"),
        ({"scaling": 0.5}, "let it take `scaling`"),
        ({"softcap": 9.0}, "let it take `softcap`"),
        ({"attention_mask": torch.ones(9, 9)}, "let it take `mask`"),
    ],
)
def test_what_the_reference_does_not_take_is_refused(given: dict[str, object], help: str) -> None:
    with pytest.raises(CuError, match="which the reference does not take") as caught:
        ModelAttention(own, "auto", "emulator")(nn.Module(), *qkv(), **{"attention_mask": None, **given})
    assert caught.value.diagnostics[0].code == "CU821" and help in (caught.value.diagnostics[0].help or "")


@pytest.mark.parametrize("name", ["mask", "slopes"])
def test_what_the_model_does_not_give_is_refused(name: str) -> None:
    """A mask is none where causal order says it all."""

    def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scaling: float) -> Tensor: ...
    def sloped(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, scaling: float) -> Tensor: ...

    attend = ModelAttention(masked if name == "mask" else sloped, "auto", "emulator")
    with pytest.raises(CuError, match=f"takes `{name}`, which the model does not give here") as caught:
        attend(nn.Module(), *qkv(), attention_mask=None)
    assert caught.value.diagnostics[0].code == "CU821"
