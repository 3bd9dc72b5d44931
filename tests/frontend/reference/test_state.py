"""What a reference keeps: tensors are read at each call where they lie then, whatever they held; numbers are fixed, and named."""
# pyright: basic

from __future__ import annotations

import math
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
import torch
from torch import nn

from cubridge.frontend.reference.fixed import FixedValue, fixed_values
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.reach import is_foreign
from cubridge.frontend.reference.trace import Traced, trace
from cubridge.ir.diagnostics import CuError
from tests.frontend.reference.references.helpers import repeated

SIZES = {"B": 1, "Hq": 4, "Hk": 2, "Lq": 7, "Lk": 9, "D": 8}


def read(function) -> Traced:
    return trace(Reference.of(function))


def biased(q, k, v, bias):
    return ((q @ repeated(k, q).mT).float() + bias * torch.arange(k.shape[2])).softmax(-1).to(v.dtype) @ repeated(v, q)


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.register_buffer("ones", torch.ones(4))
        self.rest = nn.ModuleList([nn.Linear(2, 2)])

    def forward(self, q, k, v):
        return biased(q, k, v, self.bias * self.rest[0].weight[0, 0] * self.ones[:1])


ZERO = torch.zeros(1)
TABLES = {"a": [torch.zeros(1)]}
ARRAY = np.zeros(1, dtype="float32")


class Config:
    table = torch.zeros(1)


DEFAULT = torch.zeros(1)


def kept_in():
    closed = torch.zeros(1)
    config = Config()
    return {
        "closure": (lambda q, k, v: biased(q, k, v, closed), "closed", closed),
        "global": (lambda q, k, v: biased(q, k, v, ZERO), "ZERO", ZERO),
        "items": (lambda q, k, v: biased(q, k, v, TABLES["a"][0]), "TABLES['a'][0]", TABLES["a"][0]),
        "class attribute": (lambda q, k, v: biased(q, k, v, Config.table), "Config.table", Config.table),
        "attribute of an object": (lambda q, k, v: biased(q, k, v, config.table), "config.table", Config.table),
        "array": (lambda q, k, v: biased(q, k, v, torch.from_numpy(ARRAY)), "ARRAY", torch.from_numpy(ARRAY)),
        "data": (lambda q, k, v: biased(q, k, v, closed.data), "closed", closed),
        "default": (lambda q, k, v, given=DEFAULT: biased(q, k, v, given), "given", DEFAULT),
        "decorated": (torch.no_grad()(lambda q, k, v: biased(q, k, v, ZERO)), "ZERO", ZERO),
        "property": (Derived(), "ZERO", ZERO),
        "method": (Held().attention, "self.bias", None),
        "instance": (Held(), "self.bias", None),
    }  # fmt: skip


class Held:
    def __init__(self) -> None:
        self.bias = torch.zeros(1)

    def attention(self, q, k, v):
        return biased(q, k, v, self.bias)

    __call__ = attention


class Derived:
    @property
    def bias(self):
        return ZERO

    def __call__(self, q, k, v):
        return biased(q, k, v, self.bias)


@pytest.mark.parametrize("where", kept_in())
def test_a_tensor_of_zeros_is_read_where_it_lies(where: str) -> None:
    function, path, tensor = kept_in()[where]
    traced = read(function)
    (capture,) = traced.spec.captures
    assert (capture.kind, capture.path) == ("state", path)
    assert float(traced.captures(SIZES, {})[capture.name]) == 0
    tensor = traced.state()[path] if tensor is None else tensor
    try:
        tensor.fill_(3.0)
        assert float(traced.captures(SIZES, {})[capture.name]) == 3
    finally:
        tensor.zero_()


def test_parameters_are_found_again_after_they_were_replaced() -> None:
    module = Learned()
    traced = read(module)
    assert {c.path for c in traced.spec.captures} == {"self.bias", "self.rest.0.weight", "self.ones"}
    module.bias = nn.Parameter(torch.full((1,), 2.0))
    state = {n: torch.full_like(t, 5.0) for n, t in module.state_dict().items() if n != "bias"}
    module.load_state_dict({**state, "bias": torch.full((1,), 7.0)}, assign=True)
    values = {c.path: traced.captures(SIZES, {})[c.name].unique().tolist() for c in traced.spec.captures}
    assert values == {"self.bias": [7.0], "self.rest.0.weight": [5.0], "self.ones": [5.0]}
    assert traced.state()["self.bias"] is module.bias  # so that a call sees whether it wants a gradient


def test_the_oracle_reads_what_is_there_now() -> None:
    module = Learned()
    traced = read(module)
    q, k, v = (torch.randn(1, h, n, 8, dtype=torch.float64) for h, n in ((4, 7), (2, 9), (2, 9)))
    before = traced.oracle(q, k, v, {})[0]
    with torch.no_grad():
        module.bias.fill_(0.5)
    after = traced.oracle(q, k, v, {})[0]
    assert float((after - before).abs().max()) > 1e-3
    torch.testing.assert_close(after, module.double()(q, k, v).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: setattr(m, "bias", None), "is NoneType"),
        (lambda m: delattr(m, "bias"), "is there no more"),
        (lambda m: setattr(m, "bias", nn.Parameter(torch.zeros(2))), r"is float32 \[2\], and was float32 \[1\]"),
        (lambda m: setattr(m, "bias", nn.Parameter(torch.zeros(1).long(), requires_grad=False)), "is int64 "),
    ],
)
def test_state_of_another_kind_is_refused(change, says: str) -> None:
    module = Learned()
    traced = read(module)
    change(module)
    with pytest.raises(CuError, match=says) as caught:
        traced.captures(SIZES, {})
    assert caught.value.diagnostics[0].code == "CU490"


@pytest.mark.parametrize("width", ["half", "bfloat16", "double"])
def test_floats_of_another_width_are_read(width: str) -> None:
    module = Learned()
    traced = read(module)
    module.bias.data.fill_(0.5)
    getattr(module, width)()
    assert {float(traced.captures(SIZES, {})[c.name].flatten()[0]) for c in traced.spec.captures} >= {0.5, 1.0}


class Calling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rest = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])

    def forward(self, q, k, v):
        return biased(q, k, v, self.rest[0](torch.ones(1)))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.register_forward_hook(lambda module, given, out: out * 2),
        lambda m: m.rest[0].register_forward_pre_hook(lambda module, given: given),
        lambda m: setattr(m.rest[0], "forward", lambda x: x),
        lambda m: m.rest.__setitem__(0, nn.Sequential(m.rest[0])),
    ],
)
def test_what_runs_in_place_of_a_forward_is_seen(change) -> None:
    module = Calling()
    module.register_forward_hook(lambda module, given, out: out)
    traced = read(module)
    module.rest[1].register_forward_hook(lambda module, given, out: out)  # of one that does not run
    traced.state()
    change(module)
    with pytest.raises(CuError, match="has another `forward`, or other hooks") as caught:
        traced.state()
    assert caught.value.diagnostics[0].code == "CU490"


def test_a_band_that_a_buffer_holds_is_a_table_and_one_that_the_code_makes_is_a_formula() -> None:
    kept = torch.ones(512, 512).tril()

    def buffered(q, k, v):
        keep = kept[: q.shape[2], : k.shape[2]] > 0
        return (q @ repeated(k, q).mT).masked_fill(~keep, -math.inf).softmax(-1) @ repeated(v, q)

    def made(q, k, v):
        s = (q @ repeated(k, q).mT) * torch.tensor([[1.0, 1.0], [1.0, 1.0]])[0, 0]
        return s.softmax(-1) @ repeated(v, q)

    assert [c.path for c in read(buffered).spec.captures] == ["kept"]
    assert read(made).spec.captures == ()


def test_a_number_read_from_a_tensor_is_fixed_named_and_watched() -> None:
    window = torch.tensor(3)

    def attention(q, k, v):
        far = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2]) > int(window)
        return (q @ repeated(k, q).mT).masked_fill(far, -math.inf).softmax(-1) @ repeated(v, q)

    traced = read(attention)
    assert "a number read from `window` is fixed at 3" in [r.message for r in traced.spec.specialised]
    traced.captures(SIZES, {})
    window.fill_(4)
    with pytest.raises(CuError, match="`window` is 4, and was 3"):
        traced.captures(SIZES, {})


WIDTH, ABSENT = 5, object()


class Keeping(nn.Module):
    """Reads numbers, a list, None, one tensor at two places, and modules in their mode; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.weights, self.more, self.unread, self.calls = 5.0, [0.5, 0.25], None, 1, 0
        self.one = nn.Parameter(torch.ones(1), requires_grad=False)
        self.other, self.dropout, self.free = self.one, nn.Dropout(0.5), nn.Dropout(0.0)
        self.tables, self.extra, self.act = [torch.ones(1), torch.ones(1)], {}, torch.tanh
        self.parts = nn.Sequential(nn.Hardtanh(-9, 9))
        self.dropout.eval()

    def forward(self, q, k, v):
        self.calls += 1
        s = q @ repeated(k, q).mT * sum(self.weights) + self.one + self.other + sum(self.tables)
        s = (s if self.more is None else s + self.more) * self.extra.get("scale", 1.0)
        s = (self.parts(s) if getattr(self, "wide", False) else s) * getattr(self, "factor", 1.0)
        return self.free(self.dropout((self.cap * self.act(s / self.cap)).softmax(-1))) @ repeated(v, q)

    wide = True


def test_what_is_fixed_is_compared_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Keeping()
    traced = read(module)
    changes: list[tuple[str, str, object, str]] = [
        ("", "cap", 4.0, "`self.cap` is 4.0, and was 5.0"),
        ("", "weights", [0.5, 0.5], "`self.weights` is (0.5, 0.5), and was (0.5, 0.25)"),
        ("", "weights", [0.5], "`self.weights` is (0.5,)"),
        ("", "tables", [torch.ones(1)] * 3, "`self.tables` holds 3 elements, and held 2"),
        ("", "extra", {"scale": 2.0}, "`self.extra` holds 1 elements, and held 0"),
        ("", "act", torch.sin, "`self.act` is another builtin_function_or_method, and was `tanh`"),
        ("", "act", lambda x: x, "`self.act` is of type function, and was of type builtin"),
        ("parts", "1", nn.Tanh(), "`self.parts` holds 2 elements, and held 1"),
        ("parts.0", "max_val", 1, "`self.parts.0.max_val` is 1, and was 9"),
        ("", "wide", False, "`self.wide` is False, and was True"),
        ("", "factor", 2.0, "`self.factor` is 2.0, and was absent"),
        ("", "more", torch.ones(1), "`self.more` is of type Tensor, and was None"),
        ("", "other", nn.Parameter(torch.zeros(1)), "`self.other` is another tensor than `self.one`"),
        ("dropout", "training", True, "`self.dropout.training` is True, and was False"),
    ]
    for owner, name, value, says in changes:
        holder = module.get_submodule(owner)
        before = getattr(holder, name, ABSENT)
        setattr(holder, name, value)
        (change,) = (f.change() for f in traced.assembled.lifter.recording.kept if not f.holds())
        assert says in change
        if name in ("cap", "training"):
            with pytest.raises(CuError, match=says) as caught:
                traced.state()
            assert caught.value.diagnostics[0].code == "CU490"
        delattr(holder, name) if before is ABSENT else setattr(holder, name, before)
    module.calls, module.unread, module.cap = 9, 9, 10 / 2
    traced.state()
    assert not traced.accepted
    with (
        monkeypatch.context() as patched,
        pytest.raises(CuError, match=r"`self\.free\.training` is False, and was True"),
    ):
        patched.setattr("cubridge.frontend.reference.traced._is_capturing", lambda: True)
        module.free.training = False
        traced.state()
    module.free.training = False  # which is another value, and reads the same
    traced.state()
    assert len(traced.accepted) == 1
    for reads, act in ((True, lambda x: torch.tanh(x)), (False, lambda x: x), (True, torch.tanh)):
        module.act = act
        if reads:
            traced.state()
        else:
            with pytest.raises(CuError, match="is of type function"):
                traced.state()


def test_numbers_strings_and_flags_are_named() -> None:
    class Options:
        kind = "causal"
        unread = 1

    class Windowed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.unread, self.options = 0.5, 2, Options()

        def forward(self, q, k, v, left=WIDTH, right=(1, 2), sinks=None, kind=torch.float32):
            lag = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
            seen = (lag <= left + WIDTH) & (lag >= -right[0])
            s = (q @ repeated(k, q).mT * self.scale).to(kind)
            return (s.masked_fill(~seen, -math.inf) if self.options.kind else s).softmax(-1).to(v.dtype) @ repeated(
                v, q
            )

    fixed = [r.message for r in read(Windowed()).spec.specialised]
    assert {"`self.scale` is fixed at 0.5", "`self.options.kind` is fixed at 'causal'", "`left` is fixed at 5"} <= {
        *fixed
    }
    assert {"`WIDTH` is fixed at 5", "`right` is fixed at (1, 2)"} <= {*fixed}
    assert {"`sinks` is fixed at None", "`kind` is fixed at torch.float32"} <= {*fixed}
    assert not any("unread" in text for text in fixed)


def test_an_argument_that_is_given_is_not_fixed() -> None:
    def attention(q, k, v, scale=2.0):
        return (q @ repeated(k, q).mT * scale).softmax(-1) @ repeated(v, q)

    traced = trace(Reference.of(attention, lambda shape, device: {"scale": 3.0}))
    assert traced.spec.specialised == ()


def test_a_tensor_out_of_reach_is_refused() -> None:
    hidden = iter([torch.ones(1)] * 100)

    def attention(q, k, v):
        return biased(q, k, v, next(hidden))

    with pytest.raises(CuError, match="no call could find again") as caught:
        read(attention)
    assert caught.value.diagnostics[0].code == "CU476"


LIMITS = {"window": 5}


class Limited(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.rest = 0.5, nn.Sequential(nn.Dropout())

    def forward(self, q, k, v):
        return self.rest(biased(q, k, v, self.scale * LIMITS["window"]))


def test_what_is_fixed_is_seen_to_change(monkeypatch) -> None:
    module = Limited().eval()
    fixed = [f for f in fixed_values(module) if isinstance(f, FixedValue)]

    def now() -> list[object]:
        return [f.now() for f in fixed]

    before = now()
    for change in (
        lambda: setattr(module, "scale", 1),
        lambda: setattr(module, "scale", 0.5 + 1e-9),
        lambda: setattr(module, "scale", torch.ones(1)),
        lambda: monkeypatch.setitem(LIMITS, "window", 6),
        lambda: monkeypatch.delitem(LIMITS, "window"),
        lambda: module.rest[0].train(),
    ):
        change()
        assert now() != before
        monkeypatch.undo()
        module.scale = 0.5
        module.eval()
        assert now() == before


def test_a_library_that_is_reached_by_a_link_is_none_of_the_users(tmp_path) -> None:
    """As torch is in an environment behind a link."""
    (tmp_path / "torch").symlink_to(Path(torch.__file__).parent)
    function = FunctionType(compile("x = 1", str(tmp_path / "torch" / "functional.py"), "exec"), {})
    assert is_foreign(function)
    assert not is_foreign(FunctionType(compile("x = 1", str(tmp_path / "functional.py"), "exec"), {}))
