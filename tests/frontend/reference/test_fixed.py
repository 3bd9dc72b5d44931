"""Whatever a reference can read besides its arguments is seen to change, in whatever way its code reads it."""
# pyright: basic

from __future__ import annotations

import array
import collections
import contextvars
import enum
import functools
import operator
import os
import random
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from cubridge.frontend.reference.fixed import fixed_values
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.trace import trace
from cubridge.frontend.reference.traced import Traced
from cubridge.frontend.reference.unchanged import settings_unchanged
from cubridge.ir.diagnostics import CuError
from tests.frontend.reference.references.helpers import repeated

SCALE, STEP = 1.0, 3


class Mode(enum.Enum):
    PLAIN = 1
    CAUSAL = 2


class Fixed:
    """A descriptor."""

    def __init__(self) -> None:
        self.kept = 1.0

    def __get__(self, instance, owner):
        return self.kept


class Holder:
    """Has a bit of everything; a method and a property are replaced as well."""

    def __init__(self) -> None:
        self.scale = 1.0
        self.name = "scale"
        self.members, self.frozen = {1, 2}, frozenset((1, 2))
        self.mode, self.complex, self.bytes = Mode.PLAIN, 1j, b"ab"
        self.numpy, self.table = np.float32(1), np.ones(3)
        self.bytearray, self.array = bytearray(b"ab"), array.array("d", (1, 2))
        self.mapping, self.inner = {"scale": 1.0}, {"scale": 1.0}
        self.proxy, self.user = types.MappingProxyType(self.inner), collections.UserDict(scale=1.0)
        self.part: nn.Module = nn.Linear(1, 1)
        self.context = contextvars.ContextVar("context", default=1.0)
        self.kind: type = dict
        self.tensor = torch.ones(3)
        setattr(self.tensor, "tag", 1.0)  # noqa: B010

    described = Fixed()

    def method(self):
        return 1.0

    @functools.cached_property
    def cached(self):
        return self.scale

    @property
    def read(self):
        return 1.0


HELD = Holder()


def _set(name, value):
    return lambda held: setattr(held, name, value)


def _counted():
    return _counted.scale


_counted.scale = 1.0


def _module():
    import tests.frontend.reference.test_fixed as here

    return here.STEP


# A reading, and a change that it must see. Readings name `HELD`, whose attributes the changes write.
CASES = {
    "globals()": (lambda: globals()["SCALE"], lambda _: globals().update(SCALE=2.0)),
    "eval": (lambda: eval("SCALE + 1"), lambda _: globals().update(SCALE=2.0)),
    "sys.modules": (lambda: sys.modules[__name__].SCALE, lambda _: globals().update(SCALE=2.0)),
    "an import inside": (_module, lambda _: globals().update(STEP=4)),
    "vars": (lambda: vars(HELD)["scale"], _set("scale", 2.0)),
    "__dict__": (lambda: HELD.__dict__["scale"], _set("scale", 2.0)),
    "attrgetter": (lambda: operator.attrgetter("scale")(HELD), _set("scale", 2.0)),
    "getattr of a variable": (lambda: getattr(HELD, HELD.name), _set("scale", 2.0)),
    "a member of a set": (lambda: 2 in HELD.members, lambda held: (held.members.remove(2), held.members.add(3))),
    "a frozen set": (lambda: 2 in HELD.frozen, _set("frozen", frozenset((1, 3)))),
    "an enumeration": (lambda: HELD.mode is Mode.PLAIN, _set("mode", Mode.CAUSAL)),
    "a complex number": (lambda: HELD.complex.imag, _set("complex", 2j)),
    "bytes": (lambda: HELD.bytes[1], _set("bytes", b"ac")),
    "a number of numpy": (lambda: float(HELD.numpy), _set("numpy", np.float32(2))),
    "an element of an array": (lambda: HELD.table[1], lambda held: held.table.put(1, 2.0)),
    "a sum of an array": (lambda: HELD.table.sum(), _set("table", np.ones(4))),
    "a bytearray": (lambda: HELD.bytearray[1], lambda held: held.bytearray.__setitem__(1, 7)),
    "array.array": (lambda: HELD.array[1], lambda held: held.array.__setitem__(1, 7.0)),
    "a mapping proxy": (lambda: HELD.proxy["scale"], lambda held: held.inner.update(scale=2.0)),
    "a UserDict": (lambda: HELD.user["scale"], lambda held: held.user.update(scale=2.0)),
    "an instance's class": (lambda: isinstance(HELD.part, nn.Linear), _set("part", nn.Identity())),
    "a class in a variable": (lambda: HELD.kind is dict, _set("kind", list)),
    "a variable of the context": (lambda: HELD.context.get(), lambda held: held.context.set(2.0)),
    "an attribute of a tensor": (lambda: vars(HELD.tensor)["tag"], lambda held: setattr(held.tensor, "tag", 2.0)),
    "the environment": (lambda: os.environ["CUBRIDGE_TEST"], lambda _: os.environ.update(CUBRIDGE_TEST="2")),
    "os.getenv": (lambda: os.getenv("CUBRIDGE_TEST"), lambda _: os.environ.pop("CUBRIDGE_TEST")),
    "torch's settings": (lambda: torch.get_default_dtype(), lambda _: torch.set_default_dtype(torch.float64)),
    "a descriptor": (lambda: HELD.described, lambda _: setattr(vars(Holder)["described"], "kept", 2.0)),
    "a cached property": (lambda: HELD.cached, _set("scale", 2.0)),
    "an attribute of a function": (lambda: _counted(), lambda _: setattr(_counted, "scale", 2.0)),
    "a parameter that is None": (lambda: HELD.part.bias is None, lambda held: setattr(held.part, "bias", None)),
    "how many parameters": (
        lambda: len(list(HELD.part.parameters())),
        lambda held: setattr(held.part, "more", nn.Linear(1, 1)),
    ),
    "a method of an instance": (lambda: HELD.method(), _set("method", lambda: 2.0)),
    "a method of a class": (lambda: HELD.method(), lambda _: setattr(Holder, "method", lambda self: 2.0)),
    "a property": (lambda: HELD.read, lambda _: setattr(Holder, "read", property(lambda self: 2.0))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, change = CASES[name]
    held = Holder()
    for variable in ("SCALE", "STEP"):
        monkeypatch.setitem(globals(), variable, globals()[variable])
    monkeypatch.setitem(globals(), "HELD", held)
    monkeypatch.setenv("CUBRIDGE_TEST", "1")
    monkeypatch.setattr(_counted, "scale", 1.0)
    monkeypatch.setattr(vars(Holder)["described"], "kept", 1.0)
    for attribute in ("method", "read"):
        monkeypatch.setattr(Holder, attribute, vars(Holder)[attribute])
    with settings_unchanged():
        _check_seen(reading, change, held)


def _check_seen(reading, change, held) -> None:
    fixed = list(fixed_values(reading))
    assert fixed
    assert all(f.holds() for f in fixed)
    change(held)
    changed = [f.change() for f in fixed if not f.holds()]
    assert changed
    assert all(text.startswith("`") for text in changed)
    assert [f for f in fixed_values(reading) if not f.holds()] == []


def attend(q, k, v, scale):
    return (q @ repeated(k, q).mT * scale).softmax(-1) @ repeated(v, q)


def _read(function) -> Traced:
    return trace(Reference.of(function))


def test_what_a_tensor_says_of_itself_is_fixed() -> None:
    held = types.SimpleNamespace(table=torch.zeros(4))

    def attention(q, k, v):
        return attend(q, k, v, held.table.shape[0] * (2 if held.table.dtype is torch.float32 else 1) / 8)

    traced = _read(attention)
    held.table = torch.ones(4)
    traced.state()
    for other, says in ((torch.zeros(5), r"`held.table.shape` is \(5,\)"), (torch.zeros(4).double(), "float64")):
        held.table = other
        with pytest.raises(CuError, match=says):
            traced.state()


@pytest.mark.parametrize("number", [False, True])
def test_an_array_that_is_read_as_a_tensor_is_fixed_where_numbers_are_read_too(number: bool) -> None:
    table = np.ones(1, np.float32)

    def attention(q, k, v):
        return attend(q, k, v, torch.from_numpy(table) * (float(table[0]) if number else 1.0))

    traced = _read(attention)
    table[0] = 3
    if number:
        with pytest.raises(CuError, match=r"`table` holds other elements, float32 \[1\]"):
            traced.state()
    else:
        assert traced.state()["table"][0] == 3
        assert not traced.accepted


CONTEXT = contextvars.ContextVar("CONTEXT", default=1.0)


def test_reading_again_sees_the_context_of_the_call() -> None:
    """What changes nothing is accepted."""

    def attention(q, k, v):
        return attend(q, k, v, 0.5 if CONTEXT.get() > 0 else 2.0)

    traced = _read(attention)
    before = CONTEXT.set(3.0)
    traced.state()
    CONTEXT.set(-1.0)
    with pytest.raises(CuError, match=r"`CONTEXT.get\(\)` is -1.0, and was 1.0"):
        traced.state()
    CONTEXT.reset(before)


class Activation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Identity()

    def forward(self, q, k, v):
        return self.act(attend(q, k, v, 0.5))


def test_a_hook_of_all_modules_is_seen() -> None:
    traced = _read(Activation())
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 2)
    try:
        with pytest.raises(CuError, match="other hooks"):
            traced.state()
    finally:
        handle.remove()
    traced.state()


@pytest.mark.parametrize("draw", [lambda: np.random.rand(), lambda: random.random()])
def test_random_numbers_are_refused(draw) -> None:
    def attention(q, k, v):
        return attend(q, k, v, draw())

    with pytest.raises(CuError, match="random numbers") as caught:
        _read(attention)
    assert caught.value.diagnostics[0].code == "CU487"


def test_a_branch_on_gradients_is_refused() -> None:
    def attention(q, k, v):
        return attend(q, k, v, 2.0 if q.requires_grad else 0.5)

    with pytest.raises(CuError, match="require a gradient"):
        _read(attention)
