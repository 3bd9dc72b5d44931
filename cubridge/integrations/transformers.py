"""transformers: an attention by name, for models that are there already.

    register("cubridge")
    model = AutoModelForCausalLM.from_pretrained(.., attn_implementation="cubridge")

The model hands over a mask, which transformers makes of its kind (causal, sliding, chunked), packed positions and padding, and the
numbers of its configuration, which are fixed for each kernel."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor, nn

from cubridge.driver.attention import AttentionFunction
from cubridge.ir.diagnostics import CuError, Diagnostic


def model_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scaling: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    """What eager attention of transformers computes; `mask` says which keys a row sees, or is added."""
    group = q.shape[1] // k.shape[1]
    s = q @ k.repeat_interleave(group, 1).mT * scaling
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if is_causal:
        later = torch.arange(k.shape[2], device=q.device) > torch.arange(q.shape[2], device=q.device)[:, None]
        s = s.masked_fill(later, -torch.inf)
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else s + mask
    return s.softmax(-1, dtype=torch.float32).to(v.dtype) @ v.repeat_interleave(group, 1)


def register(
    name: str = "cubridge",
    reference: Callable[..., Tensor] = model_attention,
    *,
    kernel: str = "auto",
    device: str = "auto",
    grad: bool = False,
) -> None:
    """From now on `attn_implementation=name` is `reference`, adapted as by `cubridge.attention`; with `grad`, models train.

    A reference takes, by name, what it reads of `mask` (a tensor), `is_causal` (where that needs no tensor), `scaling`, `softcap`
    and whatever else the attention of a model is given. One that does not take `is_causal` has a mask of its own. Anything else
    that a model gives and the reference does not take is refused (CU821). Errors: CU820 without transformers."""
    try:
        masks, models = (import_module(f"transformers.{part}") for part in ("masking_utils", "modeling_utils"))
    except ImportError as error:
        message = f"transformers cannot be imported: {error}"
        raise CuError(Diagnostic("CU820", message, help='pip install "cubridge[transformers]"'), exit_code=5) from error
    models.AttentionInterface.register(name, ModelAttention(reference, kernel, device, grad))
    masks.AttentionMaskInterface.register(name, masks.sdpa_mask)


class ModelAttention:
    """Called as transformers calls an attention. `made`: by the numbers that are fixed in each."""

    def __init__(self, reference: Callable[..., Tensor], kernel: str, device: str, grad: bool = False) -> None:
        self.reference, self.kernel, self.device, self.grad = reference, kernel, device, grad
        entry = reference.forward if isinstance(reference, nn.Module) else reference
        taken = list(inspect.signature(entry).parameters.values())[3:]
        self.names = frozenset(p.name for p in taken)
        self.needed = [
            p.name for p in taken if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        self.made: dict[tuple[tuple[str, object], ...], AttentionFunction] = {}

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        is_causal: bool | None = None,
        scaling: float | None = None,
        **others: Any,
    ) -> tuple[Tensor, None]:
        """Errors: CU821 for what the reference does not take, and for what it needs and the model does not give; those of
        `AttentionFunction`."""
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        given = {
            "mask": attention_mask,
            "is_causal": bool(causal) and attention_mask is None and query.shape[2] > 1,
            "scaling": query.shape[3] ** -0.5 if scaling is None else scaling,
            **{name: value for name, value in others.items() if name not in _SAID_BY_THE_MASK},
        }
        given = {name: value for name, value in given.items() if self._takes(name, value, query.shape[3])}
        if lacking := [name for name in self.needed if name not in given]:
            message = f"the reference takes `{lacking[0]}`, which the model does not give here"
            raise CuError(
                Diagnostic("CU821", message, help="give it a default, or keep it in a module that is the reference")
            )
        tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        fixed = tuple((name, value) for name, value in given.items() if name not in tensors)
        out: Tensor = self._attention(fixed)(query, key, value, **tensors)
        return out.transpose(1, 2).contiguous(), None

    def _takes(self, name: str, value: object, head_dim: int) -> bool:
        """Errors: CU821 for what says something and has no parameter."""
        if name in self.names:
            return value is not None
        usual = head_dim**-0.5 if name == "scaling" else 0.0
        is_usual = value is None or (isinstance(value, (bool, int, float)) and math.isclose(value, usual))
        if not is_usual and name != "is_causal":
            message = f"the model gives `{name}`, which the reference does not take"
            raise CuError(Diagnostic("CU821", message, help=_INSTEAD.get(name, f"let it take `{name}`")))
        return False

    def _attention(self, fixed: tuple[tuple[str, object], ...]) -> AttentionFunction:
        if fixed not in self.made:
            bound = partial(self.reference, **dict(fixed))
            vars(bound)["__name__"] = getattr(self.reference, "__name__", type(self.reference).__name__)
            self.made[fixed] = AttentionFunction(bound, self.kernel, self.device, None, self.grad)
        return self.made[fixed]


_SAID_BY_THE_MASK: Final = frozenset(
    ("sliding_window", "position_ids", "cache_position", "use_cache", "output_hidden_states", "return_dict")
)
"""Names of what attentions are given besides, and eager attention does not read."""
_INSTEAD: Final = {
    "dropout": "call model.eval(), or set the dropout of attention to 0 in the model's configuration",
    "output_attentions": "weights are never made: call the model without it",
}
"""What to do about what no kernel gives."""
