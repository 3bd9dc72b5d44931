"""row_finalize of a normalizer: the output and the LSE from accumulator, maximum and row reductions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cubridge.ir.algebra.exprs import MINUS_INF
from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import poly
from cubridge.ir.algebra.signs import positive
from cubridge.ir.nodes import Assign, Binary, Call, Expr, FloatLit, Kernel, Name, Node, Unary
from cubridge.ir.walk import free_names, map_children, rewrite, substitute
from cubridge.passes.base import refusal
from cubridge.passes.host_params import HostParams, without_unused_hosts
from cubridge.passes.limits import is_zero_when_masked
from cubridge.passes.normalizer import EXP, SCORE, SHIFT, Division, Normalizer, degree, division, exponentials, relative
from cubridge.passes.options import RowTerm
from cubridge.passes.regions import assign, param, with_region
from cubridge.passes.row_state import with_needed_row_state
from cubridge.passes.scale import MINUS_ONE, ONE
from cubridge.passes.softmax import LOG2E, Softmax, row
from cubridge.passes.terms import Algebra, Term, Terms, rebuilt, scaled
from cubridge.passes.weights import Weights

_LN2: Final = Name("LN2")
_ZERO: Final = FloatLit(0.0)
_OUTPUT: Final = Name("o")
_TAKEN: Final = frozenset({"s", "o", "lse", "i", "e", "m_log2", "top", "keep", "total", "inv", "row", "tile", "p"})


def with_finalize(weights: Weights, softmax: Softmax, normalizer: Normalizer) -> Kernel:
    """The kernel with this output and LSE.
    Errors: CU514 for an exponential of m that is relative to something else."""
    writer = _Finalize(weights, softmax, normalizer)
    body = writer.write()
    kernel = with_needed_row_state(with_region(writer.params.kernel, "row_finalize", body))
    return without_unused_hosts(kernel, keep=(softmax.scale,))


class _Finalize:
    """Writes the body. All exponents are of 2: m_log2 is the row maximum as an exponent, and exp(c - m) becomes
    exp2(c * LOG2E - m_log2). Where there are such c, everything is taken relative to `top`, the largest of them and m_log2."""

    def __init__(self, weights: Weights, softmax: Softmax, normalizer: Normalizer) -> None:
        self.params = HostParams(weights.kernel, "output")
        self.algebra = Algebra(weights.kernel)
        self.weights = weights
        self.softmax = softmax
        self.normalizer = normalizer
        self.body: list[Assign] = []
        self.keep: Expr | None = None
        self.totals: dict[Expr, Expr] = {}
        self.facts = Facts.of(weights.kernel)
        self.top: Expr | None = None
        self.is_beside_constants = normalizer.is_beside_constants(self.algebra)

    def write(self) -> tuple[Assign, ...]:
        used = tuple(e for e in (self.normalizer.finalize, self.normalizer.lse) if e is not None)
        self._rebase([self._constant(a) for a in exponentials(used) if not self._is_of_maximum(a)])
        names = frozenset[str]().union(*(free_names(e) for e in used))
        rows = {r.name: self._row(r) for r in self.normalizer.rows if r.name in names}
        self._output(rows)
        return tuple(self.body)

    def _local(self, name: str, value: Expr) -> Expr:
        self.body.append(assign(name, value))
        return Name(name)

    # ---- exponents ---------------------------------------------------------------------------------------------------

    def _constant(self, argument: Expr) -> Expr:
        """c * LOG2E of an exponential exp(c - m)."""
        terms = self.algebra.terms(argument)
        shift = Term(MINUS_ONE, (SHIFT,))
        rest = tuple(t for t in terms if t != shift)
        of_rows = {"m", *(r.name for r in self.normalizer.rows)}
        if len(rest) != len(terms) - 1 or any(free_names(x) & of_rows for t in rest for x in t.over):
            raise refusal("CU514", "an exponential of m is relative to it: `exp(c - m)`", argument.span)
        return self.params.lower(rebuilt(scaled(rest, LOG2E)))

    def _is_of_maximum(self, argument: Expr) -> bool:
        return self._below_maximum(argument) is not None or self._at_maximum(argument) is not None

    def _at_maximum(self, argument: Expr) -> Expr | None:
        """r * LOG2E of an exponential exp(r - m), where r is a maximum of the row, or 0 if that is more: it is about 1 or less,
        for m begins at 0."""
        maxima = [Name(r.name) for r in self.normalizer.rows if r.kind == "max" and r.body == SCORE]
        terms = self.algebra.terms(argument)
        rest = tuple(t for t in terms if t != Term(MINUS_ONE, (SHIFT,)))
        tops = [Term(ONE, (top,)) for r in maxima for top in (r, Call("maximum", (r, _ZERO)))]
        if not self.is_beside_constants or len(rest) != 1 or len(terms) != 2 or rest[0] not in tops:
            return None
        return self.params.lower(rebuilt(scaled(rest, LOG2E)))

    def _below_maximum(self, argument: Expr) -> Expr | None:
        """-r * LOG2E of an exponential exp(m - r), for a maximum r of the row: it is about 1 whatever the scores are."""
        maxima = {r.name for r in self.normalizer.rows if r.kind == "max"}
        terms = self.algebra.terms(argument)
        rest = tuple(t for t in terms if t != Term(ONE, (SHIFT,)))
        if len(rest) != 1 or len(terms) != 2 or not all(free_names(x) <= maxima for x in rest[0].over):
            return None
        return self.params.lower(rebuilt(scaled(rest, LOG2E)))

    def _rebase(self, constants: list[Expr]) -> None:
        if not constants:
            return
        top = maximum = self._maximum()
        for constant in constants:
            top = Call("maximum", (top, constant))
        self._local("top", top)
        if not any(isinstance(c, FloatLit) for c in constants):
            self._local("top", Call("where", (Binary("==", Name("top"), MINUS_INF), _ZERO, Name("top"))))
        self.top = Name("top")
        self.keep = self._local("keep", Call("exp2", (Binary("-", maximum, Name("top")),)))

    def _maximum(self) -> Expr:
        """The local that holds the row maximum as an exponent of 2."""
        return self._local("m_log2", Binary("*", row(self.softmax.maximum), param(self.softmax.scale)))

    def _row(self, term: RowTerm) -> Expr:
        """The local that holds a row reduction, relative to `top`."""
        value: Expr = row(self.weights.fields[term.name])
        if term.kind == "sum":
            value = Call("add_lanes", (value,))
        if self.keep is not None and term.kind == "sum":
            for _ in range(degree(relative(term.body, self.algebra)) or 0):
                value = Binary("*", value, self.keep)
        field = self.weights.fields[term.name]
        name = field if field not in _TAKEN else f"{field}_row"
        return self._local(name, value)

    def _code(self, expr: Expr, rows: Mapping[str, Expr]) -> Expr:
        """An expression over m and rows as code: exponentials and logarithms to base 2."""
        if self.top is None and any(n == "m" for n in free_names(expr)):
            self.top = self._maximum()
        top = self.top or SHIFT

        def change(node: Node) -> Node:
            match node:
                case Call("exp", (argument,)) if (below := self._below_maximum(argument)) is not None:
                    return Call("exp2", (Binary("+", top, below),))
                case Call("exp", (argument,)) if (at := self._at_maximum(argument)) is not None:
                    return Call("exp2", (Binary("-", at, top),))
                case Call("exp", (argument,)) if "m" in free_names(argument):
                    constant = self._constant(argument)
                    return Call("exp2", (Unary("-", top) if constant == _ZERO else Binary("-", constant, top),))
                case Call("log", (argument,)):
                    return Binary("*", Call("log2", (change(argument),)), _LN2)  # pyright: ignore[reportArgumentType]
                case Name("m"):
                    return Binary("*", top, _LN2)
                case _:
                    return map_children(node, change)

        code = substitute(change(expr), rows)
        assert isinstance(code, Expr)
        return code

    # ---- output and LSE ----------------------------------------------------------------------------------------------

    def _output(self, rows: Mapping[str, Expr]) -> None:
        found = division(self.normalizer.finalize, self.algebra)
        total = None if found is None else self._total(found.denominator, rows)
        output = self._any(rows) if found is None else self._scaled(found, total, rows)
        self.body.append(assign("lse", self._lse(rows)))
        if output != _OUTPUT:
            self.body.append(assign("o", output))

    def _any(self, rows: Mapping[str, Expr]) -> Expr:
        """A finalize that is no product with acc; 0 in a row that sees no key."""
        acc = rebuilt((Term(self.weights.factor, (self._acc(),)),))
        code = self._code(self.normalizer.finalize, {**rows, "acc": acc})
        is_zero = is_zero_when_masked(
            code, {"o": 0.0, **{local.id: 0.0 for local in rows.values() if isinstance(local, Name)}}
        )
        lowered = self.params.lower(code)
        return lowered if is_zero else Call("where", (self._empty(), _ZERO, lowered))

    def _acc(self) -> Expr:
        return _OUTPUT if self.keep is None else Binary("*", _OUTPUT, self.keep)

    def _total(self, denominator: Expr | None, rows: Mapping[str, Expr]) -> Expr | None:
        """The local that holds the denominator."""
        if denominator is None:
            return None
        code = self.params.lower(self._code(denominator, rows))
        total = code if isinstance(code, Name) else self._local("total", code)
        self.totals[code] = total
        return total

    def _scaled(self, found: Division, total: Expr | None, rows: Mapping[str, Expr]) -> Expr:
        """o times what it is multiplied by; 0 in a row that sees no key."""
        keep = () if self.keep is None else (self.keep,)
        over = tuple(self._code(x, rows) for x in found.factor.over)
        value = self.params.lower(rebuilt((Term(found.factor.scale * self.weights.factor, (*keep, *over)),)))
        if total is not None:
            value = Binary("/", value, total)
        guard = self._guard(found, total)
        if guard is not None:
            value = Call("where", (guard, _ZERO, value))
        if total is None and guard is None:
            return _OUTPUT if value == FloatLit(1.0) else Binary("*", _OUTPUT, value)
        return Binary("*", _OUTPUT, self._local("inv", value))

    def _guard(self, found: Division, total: Expr | None) -> Expr | None:
        """The test for rows that see no key, where the factor of the output may have no value in these."""
        names = {r.name for r in self.normalizer.rows}
        if any(free_names(x) & names for x in found.factor.over):
            return self._empty()
        if total is None or any(t == total and _is_positive(c, self.facts) for c, t in self.totals.items()):
            return None
        if self._adds_weights(found.denominator):
            return Binary("==", total, _ZERO)
        return self._empty()

    def _adds_weights(self, denominator: Expr | None) -> bool:
        """Is a denominator 0 in empty rows alone: made of sums of exp(x - m) and other exponentials."""
        match denominator:
            case Name(name):
                term = self.normalizer.row(name)
                return term is not None and term.kind == "sum" and term.over is None and self._is_weight(term)
            case Call("exp", _):
                return True
            case Binary("+", left, right) | Call("maximum", (left, right)):
                return self._adds_weights(left) and self._adds_weights(right)
            case _:
                return False

    def _is_weight(self, term: RowTerm) -> bool:
        return self.normalizer.is_shifted and relative(term.body, self.algebra) == EXP

    def _lse(self, rows: Mapping[str, Expr]) -> Expr:
        lse = self.normalizer.lse
        if lse is None:
            return Name("nan")
        terms = self.algebra.terms(self._code(lse, rows))
        value = rewrite(self.params.lower(_in_one_factor(terms)), self._known)
        return value if self._is_right_when_empty(lse) else Call("where", (self._empty(), MINUS_INF, value))

    def _is_right_when_empty(self, lse: Expr) -> bool:
        """Is its value that of a row that sees no key, where all sums are 0: as with a sink, beside which nothing is left of m;
        and where m begins at 0."""
        extrema = {r.name for r in self.normalizer.rows if r.kind != "sum"}
        rest = rewrite(lse, lambda x: _ZERO if self._is_at_maximum(x) else x)
        return (self.keep is not None or self.is_beside_constants) and not free_names(rest) & extrema

    def _is_at_maximum(self, node: Node) -> bool:
        return isinstance(node, Call) and node.fn == "exp" and self._at_maximum(node.args[0]) is not None

    def _known(self, node: Node) -> Node:
        return self.totals.get(node, node) if isinstance(node, Expr) else node

    def _empty(self) -> Expr:
        """Does the row see no key: no score has moved its maximum."""
        return Binary("==", row(self.weights.seen), MINUS_INF)


def _is_positive(total: Expr, facts: Facts) -> bool:
    """Is a denominator surely greater than 0."""
    match total:
        case FloatLit(value):
            return value > 0
        case Call("maximum", (left, right)):
            return _is_positive(left, facts) or _is_positive(right, facts)
        case Binary("*" | "/", left, right):
            return _is_positive(left, facts) and _is_positive(right, facts)
        case Call("f32", (whole,)):
            return positive(poly(whole), facts)
        case _:
            return False


def _in_one_factor(terms: Terms) -> Expr:
    """A sum with its common host factor last."""
    common = terms[0].scale if all(t.scale == terms[0].scale for t in terms) else ONE
    if common == ONE or len(terms) == 1:
        return rebuilt(terms)
    return Binary("*", rebuilt(scaled(terms, common**-1)), common.to_expr())
