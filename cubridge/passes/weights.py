"""row_update, row_probs and row_rescale of a normalizer, with the row state that its reductions need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from cubridge.ir.algebra.exprs import INF, MINUS_INF
from cubridge.ir.nodes import Assign, Binary, Call, Expr, FloatLit, Global, Kernel, Name, Partial, Row, TensorMap, Unary
from cubridge.ir.types import DType
from cubridge.ir.walk import substitute
from cubridge.passes.base import refusal
from cubridge.passes.host_params import HostParams
from cubridge.passes.limits import is_zero_when_masked
from cubridge.passes.normalizer import EXP, UNIT, Normalizer, degree, relative
from cubridge.passes.options import RowTerm
from cubridge.passes.regions import SCORE, assign, free_name, param, with_region
from cubridge.passes.row_state import with_row_field
from cubridge.passes.scale import ONE, Scale
from cubridge.passes.softmax import Softmax, row, unit
from cubridge.passes.terms import Algebra

_ZERO: Final = FloatLit(0.0)
_X: Final = Name("x")
_MASKED_SCORE: Final = {"s": -math.inf, "w": 0.0}
_MASKED_WEIGHT: Final = {"w": 0.0}
"""What the names of row_probs hold for a masked key, before s is overwritten and after."""


@dataclass(frozen=True, slots=True)
class Weights:
    """`kernel` computes the weights, divided by `factor`, and the row reductions; `fields`: the row field of each. `seen`: the
    field that is -inf in rows that see no key."""

    kernel: Kernel
    fields: Mapping[str, str]
    factor: Scale
    seen: str


def with_weights(kernel: Kernel, softmax: Softmax, normalizer: Normalizer) -> Weights:
    """Errors: CU514 if weights or sums are not of one degree in exp(-m)."""
    writer = _Weights(kernel, softmax, normalizer)
    writer.write()
    return Weights(writer.kernel, writer.fields, writer.factor, writer.seen)


class _Weights:
    def __init__(self, kernel: Kernel, softmax: Softmax, normalizer: Normalizer) -> None:
        self.kernel = kernel
        self.softmax = softmax
        self.normalizer = normalizer
        self.fields: dict[str, str] = {}
        self.body: list[Assign] = []
        self.factor = ONE
        self.seen = softmax.maximum

    def write(self) -> None:
        shifted = self.normalizer.is_shifted
        weight = self._in_w(self.normalizer.weight)
        if shifted and degree(weight) != 1:
            raise refusal("CU514", "the weight is not of degree 1 in exp(-m)", self.normalizer.weight.span)
        for term in self.normalizer.rows:
            if term.kind != "sum":
                self._extremum(term)
        if self.normalizer.is_beside_constants(Algebra(self.kernel)):
            self._start_at_zero()
        if shifted:
            self._exponential(weight)
        else:
            self._elementwise(weight)

    def _in_w(self, expr: Expr) -> Expr:
        return relative(expr, Algebra(self.kernel)) if self.normalizer.is_shifted else expr

    # ---- weights -----------------------------------------------------------------------------------------------------

    def _exponential(self, weight: Expr) -> None:
        """Weights relative to the running maximum, as the source computes them."""
        power = Binary("-", Binary("*", SCORE, param(self.softmax.scale)), row(self.softmax.exponent))
        if weight == EXP and all(r.over is None and is_zero_when_masked(r.body, _MASKED_WEIGHT) for r in self._sums()):
            self.body.append(assign("s", Call("exp2", (power,))))
            for term in self._sums():
                self._add(term, self._code(term.body, {"w": SCORE}))
        else:
            self.body.append(assign("w", Call("exp2", (power,))))
            self._in_order(weight, weight)
        self._finish()

    def _start_at_zero(self) -> None:
        """exp(-m) must not overflow: m begins at 0, and a maximum of its own says which rows see no key."""
        start = row(self.softmax.maximum)
        init = self.kernel.region("row_init").body
        from_zero = (replace(x, value=_ZERO) if isinstance(x, Assign) and x.target == start else x for x in init)
        self.kernel = with_region(self.kernel, "row_init", from_zero)
        whole = (self.fields[r.name] for r in self.normalizer.rows if r == RowTerm(r.name, "max", _X))
        self.seen = next(whole, None) or self._maximum_of_its_own()
        self.body.append(assign(UNIT.id, Call("exp2", (Unary("-", row(self.softmax.exponent)),))))

    def _maximum_of_its_own(self) -> str:
        name = self._free("seen")
        self.kernel = with_row_field(self.kernel, name, Row(DType.F32), MINUS_INF)
        largest = Call("maximum", (row(name), Call("rowmax", (SCORE,))))
        update = self.kernel.region("row_update").body
        self.kernel = with_region(self.kernel, "row_update", (*update, assign(row(name), largest)))
        return name

    def _elementwise(self, weight: Expr) -> None:
        """Weights of each score by itself: no maximum, and nothing to rescale."""
        self._in_order(weight, weight if self.normalizer.rows else self._without_factor(weight))
        self._finish()
        self.kernel = with_region(self.kernel, "row_rescale", ())

    def _in_order(self, weight: Expr, written: Expr) -> None:
        """Sums of other values before the weights overwrite the scores, sums of the weights after."""
        same = [r for r in self._sums() if r.body == weight and r.over is None]
        for term in self._sums():
            if term not in same:
                self._sum(term)
        self.body.append(assign("s", self._element(written)))
        for term in same:
            self._add(term, SCORE)

    def _finish(self) -> None:
        self.kernel = with_region(self.kernel, "row_probs", self.body)

    def _without_factor(self, weight: Expr) -> Expr:
        """The weight without its constant factor, which the output takes at the end. Weights in fp16 keep the unit of the
        score: raw dot products may be too large for it."""
        in_unit = weight if is_narrow(self.kernel) else substitute(weight, {"x": self._natural()})
        terms = Algebra(self.kernel).terms(in_unit)
        if len(terms) != 1:
            return weight
        self.factor = terms[0].scale.positive_part
        return Binary("/", weight, self.factor.to_expr())

    def _natural(self) -> Expr:
        return Binary("*", SCORE, unit(self.kernel, self.softmax).to_expr())

    def _element(self, expr: Expr) -> Expr:
        """An expression over x and w as code over s and w; 0 for a masked score."""
        code = self._code(expr, {})
        if is_zero_when_masked(self._normal(expr, {}), _MASKED_SCORE):
            return code
        return Call("where", (Binary("==", SCORE, MINUS_INF), _ZERO, code))

    def _normal(self, expr: Expr, values: Mapping[str, Expr]) -> Expr:
        return Algebra(self.kernel).normal(substitute(expr, {"x": self._natural(), **values}))

    def _code(self, expr: Expr, values: Mapping[str, Expr]) -> Expr:
        params = HostParams(self.kernel, "weight")
        lowered = params.lower(self._normal(expr, values))
        self.kernel = params.kernel
        return lowered

    # ---- row reductions ----------------------------------------------------------------------------------------------

    def _sums(self) -> list[RowTerm]:
        rows = (r for r in self.normalizer.rows if r.kind == "sum")
        return [RowTerm(r.name, r.kind, self._in_w(r.body), r.over) for r in rows]

    def _sum(self, term: RowTerm) -> None:
        value = self._element(term.body)
        self._add(term, value if term.over is None else Call("where", (term.over, value, _ZERO)))

    def _add(self, term: RowTerm, value: Expr) -> None:
        """Adds a tile's part to a row sum, which follows the maximum as often as w is a factor of its terms."""
        times = degree(term.body)
        if times is None:
            message = f"the terms of row sum `{term.name}` are of different degree in exp(-m)"
            raise refusal("CU514", message, term.body.span)
        field = self._field(term)
        total: Expr = row(field)
        for _ in range(times):
            total = Binary("*", total, row(self.softmax.rescale))
        self.body.append(assign(row(field), Binary("+", total, Call("partial_rowsum", (value,)))))

    def _field(self, term: RowTerm) -> str:
        """The field of a row sum: that of the source for the sum of exp(x - m), or for the first sum where there is none."""
        is_free = self.softmax.total not in self.fields.values()
        if is_free and (term.body == EXP or not any(r.body == EXP for r in self._sums())):
            self.fields[term.name] = self.softmax.total
            return self.softmax.total
        name = self._free(term.name)
        self.kernel = with_row_field(self.kernel, name, Partial(DType.F32), _ZERO)
        self.fields[term.name] = name
        return name

    def _free(self, name: str) -> str:
        return free_name(name, {f.name for f in self.kernel.row_state})

    def _extremum(self, term: RowTerm) -> None:
        """The largest or smallest value of a row, over the keys that it sees."""
        is_max = term.kind == "max"
        name = self._free(term.name)
        self.fields[term.name] = name
        self.kernel = with_row_field(self.kernel, name, Row(DType.F32), MINUS_INF if is_max else INF)
        body = term.body if is_max else Unary("-", term.body)
        hidden = Binary("==", SCORE, MINUS_INF)
        if term.over is not None:
            hidden = Binary("|", hidden, Unary("~", term.over))
        seen = Call("rowmax", (Call("where", (hidden, MINUS_INF, self._code(body, {}))),))
        new = Call("maximum", (row(name), seen)) if is_max else Call("minimum", (row(name), Unary("-", seen)))
        update = self.kernel.region("row_update").body
        self.kernel = with_region(self.kernel, "row_update", (*update, assign(row(name), new)))


def is_narrow(kernel: Kernel) -> bool:
    """Does the kernel take weights in fp16."""
    return any(isinstance(f.type, Global | TensorMap) and f.type.dtype is DType.F16 for f in kernel.params)
