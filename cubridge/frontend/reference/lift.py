"""Lifts recorded calls: every traced tensor becomes a function of its index variables.

Views, broadcasts, gathers and ranges turn into index arithmetic. A call without a per-element form is recomputed before the
launch where it depends on captures alone, and refused where it depends on q, k or v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.integers import ONE
from cubridge.frontend.reference.algebra.numbers import integral
from cubridge.frontend.reference.algebra.reduce import substitute
from cubridge.frontend.reference.algebra.terms import (
    Index,
    Load,
    Sort,
    Term,
    arena,
    const,
    index,
    is_op,
    load,
    walk,
)  # fmt: skip
from cubridge.frontend.reference.evaluate import TensorEvaluator, free_indices
from cubridge.frontend.reference.recognise import closed_form
from cubridge.frontend.reference.record import Call, Recording
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.sizes import SizeReader
from cubridge.frontend.reference.state import StateTensor
from cubridge.frontend.reference.values import Value, sort_of
from cubridge.ir.diagnostics import Refused
from cubridge.ir.source import NOWHERE, Span

ATTENTION_INPUTS: Final = frozenset(("q", "k", "v"))

Element = Callable[..., Term]
Lifted = Value | Element | Sequence[Value | Element]
Handler = Callable[["Lifter", Call], Lifted]


class NoElementForm(Exception):
    """The call has no per-element form."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A capture with a term of its own: element [indices] is `term`."""

    name: str
    indices: tuple[Index, ...]
    term: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Replayed:
    """A capture that is recomputed by replaying the recorded calls that make `tensor`."""

    tensor: Tensor
    call: Call


@dataclass(eq=False)
class Lifter:
    """What one lifting knows. Captures by name: `state` that the reference keeps, `constants` that it writes out, `replayed`
    computed before a launch."""

    recording: Recording
    sizes: SizeReader
    values: dict[int, Value] = field(default_factory=dict)
    state: dict[str, StateTensor] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    replayed: dict[str, Replayed] = field(default_factory=dict)
    tables: list[Computed] = field(default_factory=list)
    writes_arguments: dict[str, Span] = field(default_factory=dict)
    _fresh: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        for name, tensor in self.recording.inputs.items():
            sort = sort_of(tensor.dtype)
            element = lambda *ix, n=name, s=sort: load(n, ix, s)  # noqa: E731
            self.values[id(tensor)] = Value(self.shape(tensor), sort, element, frozenset((name,)))
        for real in self.recording.reals:
            self.values[id(real.fake)] = self._constant(real.tensor) if real.state is None else self._kept(real.state)

    def _kept(self, state: StateTensor) -> Value:
        sort = sort_of(state.dtype)
        name = self.unused(state.name)
        self.state[name] = state
        shape = tuple(const(n) for n in state.shape)
        return Value(shape, sort, lambda *ix: load(name, ix, sort), frozenset((name,)))

    def _constant(self, tensor: Tensor) -> Value:
        """Written out in the reference: what it is never changes."""
        sort = sort_of(tensor.dtype)
        shape = tuple(const(n) for n in tensor.shape)
        form = None if tensor.is_complex() else closed_form(tensor)
        if form is not None:
            return Value(shape, sort, form)
        name = self.unused("constant")
        self.constants[name] = tensor
        return Value(shape, sort, lambda *ix: load(name, ix, sort), frozenset((name,)))

    def unused(self, name: str) -> str:
        """`name`, numbered where it is taken."""
        taken = {
            *(t.name for t in self.tables),
            *self.recording.inputs,
            *self.recording.scalars,
            *self.state,
            *self.constants,
            *self.replayed,
        }
        if name not in taken:
            return name
        return next(f"{name}_{n}" for n in count(2) if f"{name}_{n}" not in taken)

    # ---- what handlers use --------------------------------------------------------------------------------------------

    def shape(self, tensor: Tensor) -> tuple[Term, ...]:
        return tuple(self.sizes.term(n) for n in tensor.shape)

    def value(self, operand: Any) -> Value:
        """The value of a tensor or of a number."""
        if isinstance(operand, Tensor):
            found = self.values.get(id(operand))
            return _unrecorded(arena().here) if found is None else found
        term = self.sizes.term(operand)
        return Value((), term.sort, lambda: term)

    def term(self, number: Any) -> Term:
        return self.sizes.term(number)

    def never_negative(self, term: Term) -> bool:
        """Is a captured integer >= 0 all over the example? So it is taken where the example does not tell."""
        kept = {name: state.tensor().detach().cpu() for name, state in self.state.items() if name in term.reads}
        given = {name: x for name, x in self.recording.examples.items() if isinstance(x, Tensor)}
        known = {**self.constants, **given, **kept}
        if not term.reads <= known.keys():
            return True
        sizes = {**self.recording.sizes, "Hq": self.recording.sizes["G"] * self.recording.sizes["Hk"]}
        found = TensorEvaluator(sizes, known.__getitem__).over(term, free_indices(term))
        return not found.numel() or bool(found.min() >= 0)

    def fresh_index(self, extent: Term) -> Index:
        return index(f"%{next(self._fresh)}", extent)

    def tabulated(self, term: Term) -> Term:
        """An integer of positions that floating point rounds, as a table computed before the launch: the same for every
        kernel. Of the distance i - j alone it has one axis."""
        if term.reads or not any(is_op(x, "trunc") for x in walk(term)):
            return term
        free = free_indices(term)
        if len(free) == 2:
            first, second = free
            distance = index("t_", integers.sub(integers.add(first.extent, second.extent), ONE))
            shift = integers.sub(distance, integers.sub(second.extent, ONE))
            of_distance = substitute(term, {first.name: integers.add(second, shift)})
            if second.name not in of_distance.free:
                place = integers.add(integers.sub(first, second), integers.sub(second.extent, ONE))
                return self.table("positions", of_distance, (distance,), (place,))
        own = tuple(index(f"t{n}_", x.extent) for n, x in enumerate(free))
        return self.table("positions", substitute(term, {x.name: o for x, o in zip(free, own, strict=True)}), own, free)

    def table(self, name: str, term: Term, own: tuple[Index, ...], places: tuple[Term, ...]) -> Term:
        """The load at `places` of a tensor that is computed before the launch: `term` over its `own` indices."""
        known = next((c for c in self.tables if c.term is term), None)
        if known is None:
            known = Computed(self.unused(name), own, term, arena().here)
            self.tables.append(known)
        return load(known.name, places, term.sort)

    def is_of_sizes(self, name: str) -> bool:
        """Is it a table that reads no tensor, or other such tables alone."""
        made = next((t for t in self.tables if t.name == name), None)
        return made is not None and all(self.is_of_sizes(read) for read in made.term.reads)

    # ---- the walk over the calls --------------------------------------------------------------------------------------

    def run(self, handlers: dict[str, Handler]) -> None:
        arguments = {id(t): n for n, t in self.recording.inputs.items()}
        for call in self.recording.calls:
            if call.name == "copy_" and id(call.args[0]) in arguments:
                self.writes_arguments[arguments[id(call.args[0])]] = call.span
                continue
            try:
                self._lift(call, handlers)
            except Refused as error:
                first = error.diagnostics[0]
                raise error if first.span is not NOWHERE else Refused(replace(first, span=call.span)) from error

    def _lift(self, call: Call, handlers: dict[str, Handler]) -> None:
        operands = [a for a in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(a, Tensor)]
        if any(id(t) not in self.values for t in operands):
            _unrecorded(call.span)
        reads = frozenset[str]().union(*(self.values[id(t)].reads for t in operands))
        outputs = [o for o in call.outputs() if isinstance(o, Tensor)]
        _check_floats(call, outputs)
        handler = handlers.get(call.name)
        try:
            if handler is None or any(t.is_complex() for t in operands):
                raise NoElementForm
            lifted = handler(self, call)
        except NoElementForm:
            if reads & ATTENTION_INPUTS:
                self._refuse(call, reads)
            lifted = [self._replayed(call, o) for o in outputs]
        results = lifted if isinstance(lifted, (list, tuple)) else [lifted]
        for output, result in zip(outputs, results, strict=False):
            if not isinstance(result, Value):
                assert callable(result)
                element = self._or_replayed(call, output, _without_wrap(call, output.dtype, result), reads)
                result = Value(self.shape(output), sort_of(output.dtype), element, reads)
            result.span = call.span
            self.values[id(output)] = result

    def _or_replayed(self, call: Call, output: Tensor, element: Element, reads: frozenset[str]) -> Element:
        """Handlers find out late, when an element is asked for, that there is no form for it."""
        fallback: list[Value] = []

        def guarded(*indices: Term) -> Term:
            if not fallback:
                try:
                    return element(*indices)
                except NoElementForm:
                    if reads & ATTENTION_INPUTS:
                        self._refuse(call, reads)
                    fallback.append(self._replayed(call, output))
            return fallback[0].at(*indices)

        return guarded

    def _refuse(self, call: Call, reads: frozenset[str]) -> NoReturn:
        inputs = sorted(reads & ATTENTION_INPUTS)
        of, general = "q, k or v", _EACH_ON_ITS_OWN
        if len(inputs) == 1:
            of, general = f"{inputs[0]} alone", _BEFORE.format(*inputs)
        message = f"`{call.name}` on values computed from {of} has no form per element"
        refuse("CU476", message, call.span, _HELP.get(call.name, general))

    def _replayed(self, call: Call, output: Tensor) -> Value:
        name = self.unused(call.name.strip("_"))
        self.replayed[name] = Replayed(output, call)
        sort = sort_of(output.dtype)
        return Value(self.shape(output), sort, lambda *ix: load(name, ix, sort), frozenset((name,)))


def _check_floats(call: Call, outputs: Sequence[Tensor]) -> None:
    """Rounding is left out, which of 16 bits and more is close. Errors: CU476."""
    for narrow in (o.dtype for o in outputs if o.dtype.is_floating_point and o.dtype.itemsize < torch.half.itemsize):
        message = f"values are rounded to {str(narrow).removeprefix('torch.')}, which kernels compute nothing in"
        refuse("CU476", message, call.span, "round them outside, or compute in bf16, fp16 or fp32")


def _unrecorded(span: Span) -> NoReturn:
    refuse(
        "CU476",
        "a tensor is read that no recorded operation made",
        span,
        "make it in the reference itself: no tensor subclass, no other thread, nothing kept from an earlier call",
    )


_EACH_ON_ITS_OWN: Final = "an attention kernel computes each score on its own and reduces over keys once"
_BEFORE: Final = "apply it to {0} before the kernel, and hand over the {0} that it gives"
_NARROW: Final = frozenset((torch.int8, torch.uint8, torch.int16, torch.uint16))
_LARGEST: Final = (1 << 31) - 1
EXACT_IN: Final = {torch.bfloat16: 256, torch.float16: 2048}
"""Integers up to this are."""
_GATHERS: Final = frozenset(("index", "gather", "index_select"))


def _without_wrap(call: Call, dtype: torch.dtype, element: Element) -> Element:
    """Integers of few bits wrap: an element that may leave their range has no form, and is replayed; that one of 32 bits does not
    leave it is declared. One that is read from a tensor of the same type has not left it."""
    if dtype in EXACT_IN and call.name == "_to_copy":
        return _exact(call, EXACT_IN[dtype], element)
    if dtype not in _NARROW and dtype is not torch.int32:
        return element
    low, high = const(torch.iinfo(dtype).min), const(torch.iinfo(dtype).max)
    read = (call.args[0],) if call.name in _GATHERS else pytree.tree_leaves((call.args, call.kwargs))
    same = all(a.dtype is dtype for a in read if isinstance(a, Tensor))

    def checked(*indices: Term) -> Term:
        term = element(*indices)
        fits = integers.nonneg(integers.sub(term, low)) and integers.nonneg(integers.sub(high, term))
        if fits or (same and isinstance(term, Load)):
            return term
        if dtype is not torch.int32:
            raise NoElementForm
        if term.reads:
            arena().limits.setdefault((term, _LARGEST), call.span)
        return term

    return checked


def _exact(call: Call, limit: int, element: Element) -> Element:
    """Captured integers that become floats of half precision are taken as exact, which is declared."""

    def declared(*indices: Term) -> Term:
        term = element(*indices)
        whole = integral(term)
        if whole is not None and whole.reads and not whole.reads & (ATTENTION_INPUTS | _flags(whole)):
            arena().limits.setdefault((whole, limit), call.span)
        return term

    return declared


def _flags(term: Term) -> frozenset[str]:
    """Tensors whose example holds 0 and 1 alone."""
    return term.reads - arena().no_flags


_HELP: Final = {
    "topk": "top-k selects keys by the scores of the whole row; use a mask that does not read the scores",
    "sort": "sorting orders the scores of the whole row; a kernel sees one tile at a time",
    "cumsum": "a running sum over scores needs them in order; a kernel adds tiles in any order",
}


def sort_of_output(call: Call) -> Sort:
    out = call.outputs()[0]
    assert isinstance(out, torch.Tensor)
    return sort_of(out.dtype)
