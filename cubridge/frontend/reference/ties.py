"""What PyTorch passes on of a gradient where a score is exactly at a bound. A ReLU, a maximum and a clamp compute the same values
and differ there, so that the operations say it, not the formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torch import Tensor
from torch.utils import _pytree as pytree

from cubridge.frontend.reference.algebra.terms import Size, walk
from cubridge.frontend.reference.lift import Lifter
from cubridge.frontend.reference.record import Call, Recording

_NONE: Final = ("relu", "relu_", "relu6", "hardtanh", "hardtanh_", "threshold", "threshold_")
_HALF: Final = ("maximum", "minimum", "fmax", "fmin")
_WHOLE: Final = ("clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_")
_TIES: Final = {**dict.fromkeys(_NONE, 0.0), **dict.fromkeys(_HALF, 0.5), **dict.fromkeys(_WHOLE, 1.0)}
_PAIR: Final = frozenset(("Lq", "Lk"))


def tie(recording: Recording, lifter: Lifter) -> float | None:
    """As `AttentionSpec.tie`, of the calls on scores; of all calls where sizes that are numbers hide which those are."""
    calls = [c for c in _of_scores(recording) if c.name in _TIES]
    of_pairs = [c for c in calls if _has_pairs(lifter, c, len(_PAIR - recording.static))]
    found = {_TIES[c.name] for c in of_pairs}
    return 0.5 if not found else found.pop() if len(found) == 1 else None


def _has_pairs(lifter: Lifter, call: Call, lengths: int) -> bool:
    """Has its result an element of each query and key? `lengths`: how many of the two are no numbers; they may be equal."""
    axes = [{x.name for x in walk(n) if isinstance(x, Size)} & _PAIR for n in lifter.shape(call.out)]
    return sum(max(len(axis), 1) for axis in axes if axis) >= lengths


def _of_scores(recording: Recording) -> Iterator[Call]:
    """Calls whose results depend on q and k."""
    reads: dict[int, frozenset[str]] = {
        id(t): frozenset((name,)) for name, t in recording.inputs.items() if name in ("q", "k")
    }
    for call in recording.calls:
        tensors = (a for a in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(a, Tensor))
        read = frozenset[str]().union(*(reads.get(id(t), frozenset()) for t in tensors))
        reads |= {id(t): read for t in call.outputs() if isinstance(t, Tensor)}
        if len(read) == 2:
            yield call
