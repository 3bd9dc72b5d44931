"""The arguments of a reference besides q, k, v, and what a call gives for them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cubridge.backend.launch.kinds import Kind
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.numbers import plain

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class ExtraArgument:
    """An argument of the reference besides q, k, v. `kind`: what a call may give; None where it is `fixed`, and the adaptation
    holds for the value `adapted` alone (a flag, a string, a number that the reference turns into something else)."""

    name: str
    default: object = inspect.Parameter.empty
    kind: Kind | None = None
    fixed: bool = False
    adapted: object = None

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def bind_inputs(names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """q, k, v of a call that gives some of them by name; they are taken out of `kwargs`. Errors: CU821 for a missing one."""
    found = list(args)
    for name in names[len(args) :]:
        if name not in kwargs:
            raise _bad_call(f"the argument `{name}` is missing")
        found.append(kwargs.pop(name))
    return found


def check_tensors(inputs: Mapping[str, object]) -> None:
    """Errors: CU821 for an input that is no tensor."""
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor):
            raise _bad_call(f"`{name}` is a {type(value).__name__}, not a tensor")


def without_data(values: Sequence[object]) -> CuError:
    """What to say of values one of which has no memory that a kernel could read."""
    kinds = (str(v.layout).removeprefix("torch.") for v in values if isinstance(v, torch.Tensor))
    strange = next((kind for kind in kinds if kind != "strided"), None)
    what = "tensors without memory of their own" if strange is None else f"{strange} tensors"
    return _bad_call(f"kernels read no {what}", "pass dense tensors")


def bind_extras(
    arguments: Sequence[ExtraArgument], args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[object, ...]:
    """The values of the extra arguments in order, as Python binds them, without the fixed ones.
    Errors: CU821 for a missing, unknown or repeated one, and for another value of a fixed one."""
    if not arguments and not args and not kwargs:
        return ()
    given = _given_extras(arguments, args, kwargs)
    bound: list[object] = []
    for argument in arguments:
        if argument.name not in given and argument.required:
            raise _bad_call(f"the argument `{argument.name}` is missing")
        value = plain(given.get(argument.name, argument.default))
        if not argument.fixed:
            bound.append(value)
        elif not _is_same(value, argument.adapted):
            what = f"`{argument.name}` is {_said(value)}; the kernel was adapted with"
            if isinstance(argument.adapted, (torch.Tensor, type(None))) and isinstance(value, torch.Tensor):
                raise _bad_call(f"{what} its default alone", "let `extra_inputs` give an example of it")
            raise _bad_call(f"{what} {_said(argument.adapted)}", "adapt the reference with this value")
    return tuple(bound)


def takes(arguments: Sequence[ExtraArgument], given: Mapping[str, object]) -> bool:
    """Are fixed arguments given as they are fixed?"""
    fixed = (a for a in arguments if a.fixed)
    return all(_is_same(given.get(a.name, a.default), a.adapted) for a in fixed)


def _is_same(value: object, adapted: object) -> bool:
    """1 and 1.0 are not: integers divide otherwise than floats."""
    if value is adapted:
        return True
    whole = isinstance(value, (bool, int)) and isinstance(adapted, (bool, int))
    try:
        return (whole or type(value) is type(adapted)) and bool(value == adapted)
    except (TypeError, ValueError, RuntimeError):  # tensors and arrays of several elements
        return False


def _said(value: object) -> str:
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"


def _given_extras(
    arguments: Sequence[ExtraArgument], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """What a call gives, by name. Errors: CU821 for an unknown or repeated argument."""
    if len(args) > len(arguments):
        raise _bad_call(f"{len(args)} arguments after q, k, v; the reference takes {len(arguments)}")
    given = {a.name: value for a, value in zip(arguments, args, strict=False)}
    for name, value in kwargs.items():
        if name in given:
            raise _bad_call(f"two values for the argument `{name}`")
        if all(a.name != name for a in arguments):
            raise _bad_call(f"the reference has no argument `{name}`")
        given[name] = value
    return given


def check_value(name: str, value: object) -> None:
    """Errors: CU821 for what is neither a tensor nor a number."""
    if not isinstance(value, (torch.Tensor, bool, int, float)):
        raise _bad_call(f"`{name}` is a {type(value).__name__}; a tensor or a number is expected")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise _bad_call(f"`{name}` is an integer of more than 64 bits")
    if isinstance(value, torch.Tensor) and value.is_complex():
        raise _bad_call(f"`{name}` holds complex numbers, which no kernel reads")


def split_values(values: Sequence[object], names: Sequence[str]) -> tuple[list[Tensor], list[Number], list[bool]]:
    """Values of a call as the lists of an operator of PyTorch: the tensors, the numbers, and of each value whether it is a tensor.
    A list of tensors holds no None: with one, PyTorch loses the gradients of the others. Errors: CU821."""
    for name, value in zip(names, values, strict=True):
        check_value(name, value)
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    numbers = [v for v in values if isinstance(v, (bool, int, float))]
    return tensors, numbers, [isinstance(v, torch.Tensor) for v in values]


def joined_values(
    tensors: Sequence[Tensor], numbers: Sequence[Number], are_tensors: Sequence[bool]
) -> tuple[object, ...]:
    """The values that `split_values` split."""
    of_tensors, of_numbers = iter(tensors), iter(numbers)
    return tuple(next(of_tensors) if is_tensor else next(of_numbers) for is_tensor in are_tensors)


def _bad_call(message: str, help_: str | None = None) -> CuError:
    return CuError(Diagnostic("CU821", message, help=help_))
