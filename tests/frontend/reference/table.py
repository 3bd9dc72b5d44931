"""The table of references: each with what must be found in it, or with why it must be refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cubridge.frontend.reference.load import Reference
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from cubridge.frontend.reference.load import ExtraInputs

Function = Callable[..., object]

SCALE: Final = "s * D ** -0.5"
CAUSAL: Final = "j <= i"
BOTTOM_RIGHT: Final = "j <= i + Lk - Lq"
GROUPED: Final = "h // (Hq // Hk)"


@dataclass(frozen=True, slots=True)
class Normalizer:
    """The text of the normalizer's parts; `rows` as `name = kind body`, with `over condition` where it differs from the mask."""

    weight: str
    rows: tuple[str, ...]
    out: str
    lse: str | None
    shift: bool


SOFTMAX: Final = Normalizer("exp(x - m)", ("R1 = sum exp(x - m)",), "acc / R1", "m + log(R1)", True)
SIGMOID: Final = Normalizer("1 / (1 + exp(-x))", (), "acc", None, False)
RELU: Final = Normalizer("maximum(x, 0)", (), "acc / Lk", None, False)


def sink(logit: str) -> Normalizer:
    """Softmax with one more term in its denominator."""
    total = f"R1 + exp({logit})"
    return Normalizer("exp(x - m)", SOFTMAX.rows, f"acc / ({total})", f"m + log({total})", True)


@dataclass(frozen=True, slots=True)
class Accepted:
    """`captures` as `name[extents] kind dtype`; `warns`: parts of the warnings, in order, and no other may be given. `since`: the
    torch that can run it on symbolic sizes; an earlier one fails, and the reference is refused. `no_gradient`: with which code its
    gradient is refused."""

    function: Function
    extra: ExtraInputs | None = None
    shape: Shape | None = None
    score: str = SCALE
    mask: str = "True"
    normalizer: Normalizer = SOFTMAX
    kv: str = GROUPED
    captures: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()
    since: str = ""
    no_gradient: str = ""

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def reference(self) -> Reference:
        return Reference.of(self.function, self.extra)


@dataclass(frozen=True, slots=True)
class Refusal:
    """`code` and a part of the message; `line`: a part of the line of source that the message must point at."""

    function: Function
    code: str
    message: str
    line: str
    extra: ExtraInputs | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def reference(self) -> Reference:
        return Reference.of(self.function, self.extra)


ACCEPTED: Final[list[Accepted]] = []
REFUSED: Final[list[Refusal]] = []


def accepts(**expected: object) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        ACCEPTED.append(Accepted(function, **expected))  # pyright: ignore[reportArgumentType]
        return function

    return register


def refuses(code: str, message: str, line: str, extra: ExtraInputs | None = None) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        REFUSED.append(Refusal(function, code, message, line, extra))
        return function

    return register
