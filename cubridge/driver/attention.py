"""`@cubridge.attention`: a reference that is adapted where it is first called. Read `AttentionFunction.__call__` first."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from cubridge.backend.launch.extras import bind_inputs, check_tensors, takes
from cubridge.backend.launch.operator import as_autocast
from cubridge.driver.examples import Example, kind_of
from cubridge.driver.kept import adapted_or_kept
from cubridge.driver.place import place_of
from cubridge.engine.plainly import plainly
from cubridge.frontend.reference.fixed import FixedValue, fixed_values
from cubridge.frontend.reference.load import POSITIONAL, Reference
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.numbers import plain
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from cubridge.backend.launch.operator import AttentionOperator

    Inputs = tuple[Tensor, Tensor, Tensor]
    Extras = Mapping[str, object]


def attention(
    reference: Callable[..., Any] | None = None,
    *,
    kernel: str = "auto",
    device: str = "auto",
    extra_inputs: Callable[..., object] | None = None,
    grad: bool = False,
) -> Any:
    """A function or module that is called like `reference` and answered by a kernel, never by anything else: it is adapted
    and checked at the first call, and kept on disk for the next process.

    `kernel`: as for `adapt`; "auto" takes the one for the GPU of the tensors. `device`: "auto", the GPU of the tensors, or
    "emulator". `extra_inputs`: as for `adapt`; without it, what a call gives besides q, k, v is its example. `grad`: with its
    backward pass, so that calls may be trained through.
    Errors: CU472 for what is no attention; those of a call are in `AttentionFunction`."""
    if reference is None:
        return functools.partial(attention, kernel=kernel, device=device, extra_inputs=extra_inputs, grad=grad)
    _check_bound(reference)
    made = AttentionFunction(reference, kernel, device, extra_inputs, grad)
    return AttentionModule(made) if isinstance(made.reference, nn.Module) else made


def _check_bound(reference: Callable[..., Any]) -> None:
    """Errors: CU472 for a class, and for a function that is a method of one: neither has the attributes that a call reads."""
    if inspect.isclass(reference) or _takes_self(reference):
        message = f"`{reference.__qualname__}` has no instance whose attributes it could read"
        raise CuError(Diagnostic("CU472", message, help="give an instance: fast = cubridge.attention(Module())"))


def _takes_self(reference: Callable[..., Any]) -> bool:
    try:
        return next(iter(inspect.signature(reference).parameters), "") == "self"
    except (TypeError, ValueError):  # `Reference.of` says why
        return False


class AttentionFunction:
    """A decorated reference. Errors of a call: CU820 for tensors where no kernel runs; of reading the reference and of adapting and
    checking the kernel; those of the operator."""

    def __init__(
        self,
        reference: Callable[..., Any],
        kernel: str,
        device: str,
        extra_inputs: Callable[..., object] | None,
        grad: bool = False,
    ) -> None:
        read = Reference.of(reference, extra_inputs)  # pyright: ignore[reportArgumentType]
        self.reference = read.function
        self.kernel, self.device, self.extra_inputs, self.grad = kernel, device, extra_inputs, grad
        parameters = read.signature().parameters.values()
        self._positional = tuple(p.name for p in parameters if p.kind in POSITIONAL)
        self._defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        self._operators: dict[object, list[AttentionOperator]] = {}
        self._fixed: tuple[FixedValue, ...] | None = None
        functools.update_wrapper(self, self.reference, updated=())
        self._torchdynamo_orig_callable = self.reference  # what is read when this is adapted

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs, extras = self._given(args, dict(kwargs))
        refused: CuError | None = None
        for operator in self._able(inputs, extras):
            try:
                return operator(*args, **kwargs)
            except CuError as error:
                if error.diagnostics[0].code != _OTHER_SIZES:
                    raise
                refused = error
        assert refused is not None
        raise refused

    def _able(self, inputs: Inputs, extras: Extras) -> Iterator[AttentionOperator]:
        """Operators for a call of this form: those that are there, one for all sizes that the reference takes, and one for the
        sizes of the call. Of another form is a call after a number was changed that the reference keeps."""
        if self._fixed is None:
            _check_not_compiled()
            self._fixed = tuple(f for f in fixed_values(self.reference) if isinstance(f, FixedValue))
        q, fixed = inputs[0], tuple([value.key() for value in self._fixed])
        flags = frozenset((name, value if isinstance(value, bool) else None) for name, value in extras.items())
        forms = self._operators.setdefault((q.device, q.dtype, flags, fixed), [])
        known = [operator for operator in forms if takes(operator.plan.arguments, extras)]
        yield from known
        _check_not_compiled()
        for shape in (None, _shape(inputs)):
            if shape is not None or not known:
                forms.append(self._adapted(inputs, extras, shape))
                yield forms[-1]

    def _adapted(self, inputs: Inputs, extras: Extras, shape: Shape | None) -> AttentionOperator:
        place = place_of(self.device, self.kernel, inputs[0].device, self.grad)
        given = self.extra_inputs if self.extra_inputs is not None or not extras else _examples(extras, _shape(inputs))
        reference = Reference.of(self.reference, given)  # pyright: ignore[reportArgumentType]
        with plainly():
            return adapted_or_kept(reference, place, shape, inputs[0].dtype)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Inputs, Extras]:
        """q, k, v as a kernel gets them, and what else is given, but for what is left at its default. Errors: CU821."""
        q, k, v, *rest = args if len(args) >= 3 else bind_inputs(self._positional[:3], args, kwargs)
        check_tensors({"q": q, "k": k, "v": v})
        given = {**dict(zip(self._positional[3:], rest, strict=False)), **kwargs}
        extras = {name: plain(value) for name, value in given.items() if not self._is_default(name, value)}
        for name, value in extras.items():
            if not isinstance(value, (Tensor, bool, int, float)):
                help_ = f"bind it before it is decorated: functools.partial(.., {name}=..)"
                message = f"`{name}` is a {type(value).__name__}; a tensor or a number is expected"
                raise CuError(Diagnostic("CU821", message, help=help_))
        return as_autocast((q, k, v)), extras

    def _is_default(self, name: str, value: object) -> bool:
        default = self._defaults.get(name, inspect.Parameter.empty)
        return value is default or (
            isinstance(value, (bool, str)) and type(value) is type(default) and value == default
        )

    def __reduce__(self) -> Any:
        """By its name, where it stands there; else anew of its reference."""
        name = getattr(self.reference, "__qualname__", "")
        found: object = sys.modules.get(getattr(self.reference, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return (
            name
            if found is self
            else (AttentionFunction, (self.reference, self.kernel, self.device, self.extra_inputs, self.grad))
        )


class AttentionModule(nn.Module):
    """A decorated module; the module itself is `reference`, with its parameters."""

    def __init__(self, call: AttentionFunction) -> None:
        super().__init__()
        self.reference = call.reference
        self.call = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


def _check_not_compiled() -> None:
    """Errors: CU829."""
    if torch.compiler.is_compiling():
        message = "a call is compiled whose kernel is not adapted yet"
        raise CuError(Diagnostic("CU829", message, help="call it once like this outside of torch.compile"))


_OTHER_SIZES: Final = "CU823"


def _shape(inputs: Inputs) -> Shape:
    """Errors: CU821 for another rank."""
    q, k, _ = inputs
    if q.dim() != 4 or k.dim() != 4:
        raise CuError(Diagnostic("CU821", f"q has {q.dim()} axes and k {k.dim()}; [B, H, L, D] is expected"))
    return Shape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])


def _examples(extras: Extras, here: Shape) -> Callable[[Shape, str], dict[str, object]]:
    """What a call gives as `extra_inputs`: extents follow the sizes that they are equal to."""
    examples = {name: Example(value, kind_of(value, None, here.sizes())) for name, value in extras.items()}

    def extra_inputs(shape: Shape, device: str) -> dict[str, object]:
        del device
        return {name: example.at(shape) for name, example in examples.items()}

    return extra_inputs
