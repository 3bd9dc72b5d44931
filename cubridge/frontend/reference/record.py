"""Records the ATen calls of a reference on fake tensors with symbolic sizes.

Layers, outside in: `Rewrite` (function level), functionalize (mutation becomes values), `Recorder` (dispatch level),
FakeTensorMode with a ShapeEnv. The recorded calls are lifted to a spec, and replayed in fp64 as the oracle.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import sympy
import torch
from torch import Tensor
from torch._guards import GuardSource, Source
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from cubridge.frontend.reference.extents import Extent, extra_values
from cubridge.frontend.reference.fixed import Fixed, FixedAnswer, OneTensor
from cubridge.frontend.reference.flex import flex_by_math
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.places import call_chain, error_span, inside_operation, user_span
from cubridge.frontend.reference.quiet import quiet
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.rewrite import Answer, NumberRead, Rewrite, attention_math
from cubridge.frontend.reference.state import State, StateModule, StateNumber, StateTensor
from cubridge.frontend.reference.symbolic import symbolic_numbers
from cubridge.frontend.reference.unchanged import unchanged
from cubridge.frontend.reference.watch import OutOfTime, time_limit
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.spec import Shape

logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)

MAX_CALLS: Final = 6_000


@dataclass(frozen=True, slots=True)
class Call:
    """One ATen call, its operands, its result and the place in the user's code."""

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    span: Span

    @property
    def name(self) -> str:
        return self.func._overloadpacket.__name__  # pyright: ignore[reportPrivateUsage]

    def outputs(self) -> tuple[Any, ...]:
        return tuple(self.out) if isinstance(self.out, (tuple, list)) else (self.out,)

    def arguments(self) -> dict[str, Any]:
        """Operands by the names of the operator's schema, defaults included."""
        schema = self.func._schema.arguments  # pyright: ignore[reportPrivateUsage]
        bound: dict[str, Any] = dict(zip((a.name for a in schema), self.args))  # noqa: B905 (defaults follow)
        return {a.name: self.kwargs.get(a.name, a.default_value) for a in schema} | bound


class RecordingEnv(ShapeEnv):
    """A ShapeEnv that remembers where each guard was taken, and whether an operation took it or the user's code."""

    guard_places: list[tuple[Span, bool]]

    def __init__(self) -> None:
        super().__init__(duck_shape=False, specialize_zero_one=True)
        self.guard_places = []

    def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
        result = super().evaluate_expr(*args, **kwargs)
        while len(self.guard_places) < len(self.guards):
            self.guard_places.append((user_span(), inside_operation()))
        return result


class NamedSource(Source):
    """The name of a symbol, for ShapeEnv. torch._dynamo has one of its own and takes a second to import."""

    def __init__(self, label: str) -> None:
        self.__dict__["label"] = label  # the base class is frozen

    @property
    def guard_source(self) -> GuardSource:  # pyright: ignore[reportIncompatibleVariableOverride]
        return GuardSource.CONSTANT

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.__dict__["label"]

    @property
    def _name_template(self) -> str:
        return self.__dict__["label"]

    def __hash__(self) -> int:
        return hash(self.__dict__["label"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSource) and other.__dict__["label"] == self.__dict__["label"]


@dataclass(frozen=True, slots=True)
class Real:
    """A tensor that no recorded call made, and its fake twin. `state`: where it lies; None for one that the code writes out."""

    tensor: Tensor
    fake: FakeTensor
    state: StateTensor | None
    copies: dict[torch.device, Tensor] = field(default_factory=dict[torch.device, Tensor], compare=False, repr=False)

    def now(self, device: torch.device) -> Tensor:
        """What a call reads, on a device. What the code writes out never changes, and is copied to a device once. Errors: CU490."""
        if self.state is not None:
            return self.state.tensor().detach().to(device)
        if device not in self.copies:
            self.copies[device] = self.tensor.detach().to(device)
        return self.copies[device]


class Recorder(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else the first call would import torch._dynamo, to be skipped by it."""
        return False

    def __init__(self, fake: FakeTensorMode, state: State) -> None:
        super().__init__()
        self.fake = fake
        self.state = state
        self.fixed: list[Fixed] = []
        self.calls: list[Call] = []
        self.reals: dict[int, Real] = {}
        self.current = NOWHERE

    def fake_of(self, value: Any, written_out: bool) -> Any:
        """A tensor that is none of this recording (a buffer, a parameter, a closure's) enters by its fake twin."""
        if not isinstance(value, Tensor) or isinstance(value, FakeTensor):
            return value
        if id(value) not in self.reals:
            state = self.state.find(value)
            if state is None and not written_out:
                refuse("CU476", "a tensor is read that no call could find again", self.current, _LOST_HELP)
            self.reals[id(value)] = Real(value, self.fake.from_tensor(value, static_shapes=True), state)
        return self.reals[id(value)].fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.current = span = user_span()
        written_out = func in _LITERALS
        args, kwargs = pytree.tree_map(lambda x: self.fake_of(x, written_out), (args, kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            refuse(
                "CU478", f"random operation `{func}`", span, "draw it outside and pass it as an argument", call_chain()
            )
        if len(self.calls) >= MAX_CALLS:
            refuse("CU489", f"the reference makes more than {MAX_CALLS} tensor operations", span, LOOP_HELP)
        out = func(*args, **kwargs)
        if any(isinstance(x, Tensor) for x in (out if isinstance(out, (tuple, list)) else (out,))):
            self.calls.append(Call(func, args, kwargs, out, span))
        return out


_LITERALS: Final = (
    torch.ops.aten.lift_fresh.default,
    torch.ops.aten.lift_fresh_copy.default,
    torch.ops.aten.lift.default,
)
"""What `torch.tensor` and its like call with the tensor that they made."""
_LOST_HELP: Final = "keep it in an attribute, a closure or a global variable, or pass it as an argument"
LOOP_HELP: Final = "write a Python loop over positions as a comparison of index vectors (torch.arange)"


@dataclass(frozen=True, slots=True)
class Recording:
    """What one run of the reference did. `symbols`: sympy symbol -> name of the size or scalar argument; `sizes`: their
    values in this run; `static`: sizes that are numbers; `fixed`: scalar arguments that are; `asked`: see `Rewrite`; `numbers`:
    read from tensors that the reference keeps; `modules`: that it keeps and called; `kept`: values that it keeps and left as
    they were; `examples`: the extra inputs of this run; `nones`: what it returns besides."""

    calls: list[Call]
    outputs: tuple[Tensor, ...]
    inputs: dict[str, Tensor]
    scalars: dict[str, int | float | bool]
    reals: tuple[Real, ...]
    env: RecordingEnv
    symbols: dict[sympy.Symbol, str]
    sizes: dict[str, int]
    static: frozenset[str]
    fixed: frozenset[str]
    extents: dict[str, tuple[Extent, ...]]
    asked: frozenset[str]
    numbers: tuple[StateNumber, ...]
    modules: tuple[StateModule, ...]
    kept: tuple[Fixed, ...]
    examples: dict[str, Tensor | int | float | bool]
    nones: int

    def said(self) -> list[object]:
        """The calls without their tensors, and the tensors that the reference writes out; floats of every width are one kind."""
        written = [real.tensor.tolist() for real in self.reals if real.state is None]
        operands = [(c.func, pytree.tree_map(_without_values, (c.args, c.kwargs))) for c in self.calls]
        return [*((str(func), str(given)) for func, given in operands), *written, [n.value for n in self.numbers]]

    def fixed_heads(self) -> frozenset[str]:
        """The head sizes, if a guard made their product a number, as a Python loop over heads does."""
        for guard in self.env.guards:
            sides = guard.expr.args if isinstance(guard.expr, sympy.Eq) else ()
            names = {name for symbol, name in self.symbols.items() if symbol in guard.expr.free_symbols}
            if any(side.is_number for side in sides) and any(side.is_Mul for side in sides) and names == {"G", "Hk"}:
                return frozenset(("G", "Hk"))
        return frozenset()


def _without_values(operand: object) -> object:
    if isinstance(operand, torch.dtype) and operand.is_floating_point:
        return "float"
    return list(operand.shape) if isinstance(operand, Tensor) else operand


@dataclass(slots=True)
class _Sizes:
    """The symbolic sizes of one recording."""

    env: RecordingEnv
    symbols: dict[sympy.Symbol, str] = field(default_factory=dict)

    def make(self, name: str, hint: int, static: bool) -> Any:
        """A size: a symbol of at least 2."""
        if static or hint < 2:
            return hint
        source = NamedSource(name)
        symbol = self.env.create_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        assert isinstance(symbol, sympy.Symbol)
        self.symbols[symbol] = name
        return self.env.create_symintnode(symbol, hint=hint, source=source)

    def scalar(self, name: str, value: int | float) -> Any:
        """A number that is an argument: a symbol of any value."""
        source = NamedSource(name)
        symbol = self.env.create_symbol(
            value, source=source, dynamic_dim=DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True
        )
        assert isinstance(symbol, sympy.Symbol)
        self.symbols[symbol] = name
        if isinstance(value, float):
            return self.env.create_symfloatnode(symbol, hint=value, source=source)
        return self.env.create_symintnode(symbol, hint=value, source=source)


def record(reference: Reference, shape: Shape, dtype: torch.dtype, static: frozenset[str] = frozenset()) -> Recording:
    """Run the reference once on fake inputs of `shape`.
    Errors: CU474 it raises, CU477 data-dependent control flow, CU478 random, CU489 too long, those of `extra_values`."""
    env = RecordingEnv()
    fake = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    fake.cache_enabled = False  # keys on symbolic shapes cost more than the operations
    sizes = _Sizes(env)
    hints = {"B": shape.B, "Hk": shape.Hk, "Lq": shape.Lq, "Lk": shape.Lk, "D": shape.D, "G": shape.Hq // shape.Hk}
    dims = {name: sizes.make(name, hint, name in static) for name, hint in hints.items()}
    dims["Hq"] = dims["G"] * dims["Hk"]
    tensors, scalars, extents = extra_values(reference, shape)
    numbers = {n: v if isinstance(v, bool) or n in static else sizes.scalar(n, v) for n, v in scalars.items()}
    inputs: dict[str, Tensor] = {}
    with fake:
        for name, heads, length in (("q", "Hq", "Lq"), ("k", "Hk", "Lk"), ("v", "Hk", "Lk")):
            inputs[name] = torch.empty(dims["B"], dims[heads], dims[length], dims["D"], dtype=dtype)
        for name, (example, formula) in tensors.items():
            inputs[name] = torch.empty([e.symbolic(dims, sizes.make) for e in formula], dtype=example.dtype)
    state = State.of(reference.function, reference.span)
    recorder, rewrite = Recorder(fake, state), Rewrite()
    called: set[int] = set()
    with _noting_modules(called):
        outputs, nones = _run(reference, recorder, rewrite, sizes.symbols, inputs, numbers)
    return Recording(
        recorder.calls, outputs, inputs, scalars, tuple(recorder.reals.values()), env, sizes.symbols, hints,
        frozenset(name for name in hints if name not in sizes.symbols.values()),
        frozenset(name for name in scalars if name not in sizes.symbols.values()),
        extents, frozenset(rewrite.asked), tuple(_state_number(state, n) for n in rewrite.numbers),
        tuple(m for m in state.modules if id(m.module()) in called),
        (*_read(recorder), *_answers(state, rewrite.answers)),
        {**scalars, **{name: example for name, (example, _) in tensors.items()}}, nones,
    )  # fmt: skip


def _read(recorder: Recorder) -> Iterator[Fixed]:
    """What was fixed and stayed so; of tensors, those that were read."""
    routes = [real.state.route for real in recorder.reals.values() if real.state is not None]
    for fixed in recorder.fixed:
        if not isinstance(fixed, OneTensor) or fixed.first in routes:
            yield fixed


def _answers(state: State, answers: Sequence[Answer]) -> Iterator[Fixed]:
    """What tensors that the reference keeps said of themselves, each once."""
    found = ((state.find(answer.tensor), answer) for answer in answers)
    fixed = (
        FixedAnswer(kept.root, kept.route, f"{kept.path}.{answer.word}", answer.ask, answer.value)
        for kept, answer in found
        if kept is not None
    )
    yield from {(f.path, str(f.value)): f for f in fixed if f.holds()}.values()


@contextmanager
def _noting_modules(called: set[int]) -> Generator[None]:
    """The modules that are called inside, by identity."""
    handle = register_module_forward_pre_hook(lambda module, _: called.add(id(module)))
    try:
        yield
    finally:
        handle.remove()


def _state_number(state: State, read: NumberRead) -> StateNumber:
    found = state.find(read.tensor)
    if found is None:
        refuse("CU476", "a number is read from a tensor that no call could find again", read.span, _LOST_HELP)
    return StateNumber(found, read.method, read.value, read.span)


def _run(
    reference: Reference,
    recorder: Recorder,
    rewrite: Rewrite,
    symbols: Mapping[sympy.Symbol, str],
    inputs: Mapping[str, Tensor],
    scalars: Mapping[str, Any],
) -> tuple[tuple[Tensor, ...], int]:
    """What it returns, and how many None stand behind that."""
    names = list(inputs)

    def run_reference(*values: Tensor) -> Any:
        given = dict(zip(names, values, strict=True))
        q, k, v = (given.pop(n) for n in ("q", "k", "v"))
        return reference.function(q, k, v, **given, **scalars)

    try:
        with time_limit(), unchanged(reference.function, contents=False):
            with (
                torch.no_grad(),
                quiet(),
                symbolic_numbers(reference.globals, attention_math),
                flex_by_math(reference.function),
                recorder.fake,
                recorder,
                rewrite,
            ):
                out = torch.func.functionalize(run_reference)(*inputs.values())
            recorder.fixed = [f for f in recorder.state.fixed if f.holds()]
    except (CuError, KeyboardInterrupt):
        raise
    except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
        span = error_span(error.__traceback__)
        refuse(
            "CU477",
            f"a shape or a branch depends on the data ({first_line(error)})",
            span if span is not NOWHERE else recorder.current,
            "use a mask over all keys instead of selecting some",
        )
    except BaseException as error:  # whatever the user's code raises
        _fail(error, recorder.current if recorder.current is not NOWHERE else reference.span, symbols, inputs)
    results = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    tensors = len(results)
    while tensors > 1 and results[tensors - 1] is None:  # attention weights that were not asked for
        tensors -= 1
    results, nones = results[:tensors], len(results) - tensors
    if not results or not all(isinstance(r, Tensor) for r in results):
        kinds = ", ".join("Tensor" if isinstance(r, Tensor) else type(r).__name__ for r in results) or "nothing"
        raise CuError(Diagnostic("CU475", f"the reference returns {kinds}, not a tensor", reference.span))
    return results, nones


def _fail(
    error: BaseException, current: Span, symbols: Mapping[sympy.Symbol, str], inputs: Mapping[str, Tensor]
) -> NoReturn:
    """Errors: CU474, CU476 for an operation that takes functions, CU489 for one out of time."""
    span = error_span(error.__traceback__)
    span = span if span is not NOWHERE else current
    if isinstance(error, OutOfTime):
        refuse("CU489", "the reference does not come to an end", span, LOOP_HELP)
    said = first_line(error)
    higher = re.search(r"HigherOrderOperator (\w+)", said) if isinstance(error, NotImplementedError) else None
    if higher:
        help_ = "write what it does to the scores in plain PyTorch"
        refuse("CU476", f"`{higher[1]}` takes functions, and has no form per element", span, help_)
    help_ = f"it was called with q [B, Hq, Lq, D], k and v [B, Hk, Lk, D], {_sizes_text(inputs)}"
    if isinstance(error, TypeError) and "unhashable type: non-nested SymInt" in said:
        help_ = "sizes are symbols while it is read, which neither a cache nor a dict can have as keys: drop it there"
    elif "cuda" in said.lower():
        help_ = "it is read on a CPU: make tensors on `q.device`, and move none"
    message = f"the reference fails: {type(error).__name__}: {_named(said, symbols)}"
    raise CuError(Diagnostic("CU474", message, span, help=help_)) from error


def _sizes_text(inputs: Mapping[str, Tensor]) -> str:
    q, k = inputs["q"], inputs["k"]
    hints = [int(n.node.hint) if isinstance(n, torch.SymInt) else n for n in (*q.shape, k.shape[1], k.shape[2])]
    return "B={}, Hq={}, Lq={}, D={}, Hk={}, Lk={}".format(*hints)


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else "no message"


def _named(text: str, symbols: Mapping[sympy.Symbol, str]) -> str:
    """Symbols in torch's message by the names of their sizes."""
    names = {str(symbol): name for symbol, name in symbols.items()}
    return re.sub(r"\bs\d+\b", lambda m: names.get(m[0], m[0]), text)
