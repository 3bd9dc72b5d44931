"""Reads the parts of an attention: q.k becomes `s`, reductions over keys become row symbols, all else must be elementwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NoReturn

from cubridge.frontend.reference.algebra.constructors import rebuilt_in_place
from cubridge.frontend.reference.algebra.numbers import integral, split_product
from cubridge.frontend.reference.algebra.predicates import TRUE
from cubridge.frontend.reference.algebra.reals import log, mul
from cubridge.frontend.reference.algebra.reduce import replace, substitute
from cubridge.frontend.reference.algebra.selection import is_masking
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Index,
    Load,
    Reduce,
    Term,
    arena,
    index,
    is_const,
    is_op,
    load,
    symbol,
    walk,
)
from cubridge.frontend.reference.attention import (
    ACC,
    QK,
    QKV,
    Axes,
    Row,
    RowKind,
    S,
    place_of,
    place_of_index,
    subscript_text,
)
from cubridge.frontend.reference.lift import Computed
from cubridge.frontend.reference.printing import text
from cubridge.frontend.reference.refusal import refuse


@dataclass
class PartReader:
    """Replaces q.k by `s` and reductions over keys by row symbols, from the inside out."""

    axes: Axes
    kv_head: Term
    accumulator: Reduce
    rows: list[Row] = field(default_factory=list)
    computed: list[Computed] = field(default_factory=list)
    memo: dict[tuple[Term, Index | None], Term] = field(default_factory=dict)

    def read(self, term: Term, key: Index | None) -> Term:
        """`key`: the index over keys that is bound here; None where there is none."""
        if not (term.reads & QKV or self.axes.e.name in term.free or term.height > 0):
            return self._with_logarithms(term, key)
        found = self.memo.get((term, key))
        if found is None:
            found = self.memo[term, key] = self._read(term, key)
        return found

    def _with_logarithms(self, term: Term, key: Index | None) -> Term:
        """Of captured bases of powers, computed before the launch: an exponent multiplies their errors."""
        logs = {part for base in arena().bases for part in walk(log(base)) if is_op(part, "log")}
        found = {part: self._captured(part, key) for part in walk(term) if part in logs} if logs else {}
        return replace(term, found) if found else term

    def _read(self, term: Term, key: Index | None) -> Term:
        if term is self.accumulator:
            return symbol(ACC)
        if self._is_of_one_side(term, key) or self._is_whole_sum(term, key):
            return self._captured(term, key)
        if isinstance(term, Reduce):
            return self._reduction(term, key)
        if isinstance(term, Load) and term.tensor in QKV:
            refuse("CU482", f"{term.tensor} is used outside q.k and the sum over keys", place_of(term), _OUTSIDE)
        children = term.children()
        if self.axes.e in children:
            refuse("CU482", "something else than v varies along the head dimension", place_of(term), _OUTSIDE)
        changed = tuple(self.read(c, key) for c in children)
        same = all(a is b for a, b in zip(children, changed, strict=True))
        return term if same else rebuilt_in_place(term, changed)

    def _reduction(self, term: Reduce, key: Index | None) -> Term:
        over_keys = term.index.extent is self.axes.j.extent
        if term.reads >= QK and _is_product_sum(term):
            return self._dot_product(term, key)
        if "v" in term.reads:
            refuse("CU480", f"v is reduced by {term.kind} outside the weighted sum", place_of(term))
        if term.reads & QK:
            if not _is_over_keys(term):
                if term.reads >= QK:
                    self._refuse_reduction(term)
                return self._captured(term, key)
            if not over_keys:
                self._refuse_reduction(term)
            return self._row(term, key)
        if over_keys and self.axes.i.name in term.free and key is None:
            return self._row(term, key)
        return self._captured(term, key)

    def _refuse_reduction(self, term: Reduce) -> NoReturn:
        """A reduction of scores over something else than the keys of the row."""
        for x in walk(term.body):
            if isinstance(x, Load) and x.tensor == "q" and term.index in x.indices[:3]:
                axis = _QUERY_AXES[x.indices.index(term.index)]
                refuse(
                    "CU483",
                    f"{_VERB[term.kind]} over {axis}: scores of different rows are mixed",
                    place_of(term),
                    _MIXED,
                )
        if term.kind == "sum" and _is_product_sum(term):
            part = text(term.index.extent)
            refuse(
                "CU484",
                f"a product of q and k over {part} of {text(self.axes.d_extent)} columns",
                place_of(term),
                _PARTS,
            )
        refuse(
            "CU483",
            f"{_VERB[term.kind]} over {text(term.index.extent)} of values computed from q and k is not a reduction over keys",
            place_of(term),
            _MIXED,
        )

    # ---- s -----------------------------------------------------------------------------------------------------------

    def _dot_product(self, term: Reduce, key: Index | None) -> Term:
        axes, column_index = self.axes, term.index
        reads = {x.tensor: x for x in walk(term.body) if isinstance(x, Load) and x.tensor in QK}
        if column_index.extent is not axes.d_extent:
            self._refuse_reduction(term)
        number, factors = split_product(term.body)
        loads = [base for base, exponent in factors if isinstance(base, Load) and exponent == 1]
        if number != 1 or len(factors) != 2 or sorted(x.tensor for x in loads) != ["k", "q"]:
            refuse("CU484", "q and k are changed per column before their product", place_of(term), _BEFORE)
        q, k = reads["q"], reads["k"]
        self._check_query(q, term, key)
        batch, head, row, column = k.indices
        if key is None or batch is not axes.b or row is not key or column is not column_index:
            at = subscript_text(k) if key is not None else "no key index"
            wrong = next((x for x, want in ((batch, axes.b), (row, key), (column, column_index)) if x is not want), row)
            refuse("CU484", f"k is read at {at}, not at [b, kv(h), j, d]", place_of_index(wrong, k), _BEFORE)
        if head is not self.kv_head:
            message = f"k is read at head {text(head)}, v at head {text(self.kv_head)}"
            refuse("CU484", message, place_of_index(head, k), "map both alike")
        return symbol(S)

    def _check_query(self, q: Load, term: Reduce, key: Index | None) -> None:
        axes = self.axes
        batch, head, row, column = q.indices
        if key is not None and row is key:
            refuse("CU483", "normalised over query rows, not over keys", place_of(term), "use dim=-1")
        if batch is not axes.b or head is not axes.h or row is not axes.i or column is not term.index:
            wanted = ((batch, axes.b), (head, axes.h), (row, axes.i), (column, term.index))
            wrong = next(x for x, want in wanted if x is not want)
            refuse("CU484", f"q is read at {subscript_text(q)}, not at [b, h, i, d]", place_of_index(wrong, q), _BEFORE)

    # ---- rows and captures -------------------------------------------------------------------------------------------

    def _row(self, term: Reduce, key: Index | None) -> Term:
        """A reduction over keys of this row."""
        if key is not None and key.name in term.free:
            refuse(
                "CU485",
                "a reduction over keys inside another: a cumulative sum or two softmaxes",
                place_of(term),
                _PASSES,
            )
        kind = _ROW_KINDS.get(term.kind)
        if kind is None:
            refuse("CU485", f"`{term.kind}` over the keys of a row is not a number", place_of(term))
        body, over = term.body, TRUE
        for x in walk(body):
            if isinstance(x, Load) and x.tensor == "q" and term.index in x.indices:
                refuse("CU483", "normalised over query rows, not over keys", place_of(term), "use dim=-1")
        if isinstance(body, Apply) and body.op == "where" and _is_neutral(body.args[2], term.kind):
            over, body = body.args[0], body.args[1]
        at_j = {term.index.name: self.axes.j}
        over = substitute(self.read(over, term.index), at_j)
        body = substitute(self.read(body, term.index), at_j)
        for row in self.rows:
            if row.kind == kind and row.over is over and row.body is body:
                return symbol(row.name)
        row = Row(f"R{len(self.rows) + 1}", kind, over, body, place_of(term))
        self.rows.append(row)
        if kind == "sum" and integral(body) is not None:
            arena().whole_symbols.add(symbol(row.name))
        return symbol(row.name)

    def _is_whole_sum(self, term: Term, key: Index | None) -> bool:
        """An integer made of sums that are no reductions of the row: captured as it is, for a float may not hold it."""
        if not is_op(term, "trunc") or term.reads & QKV:
            return False
        sums = [x for x in walk(term) if isinstance(x, Reduce)]
        of_row = key is None and self.axes.i.name in term.free
        return bool(sums) and not (of_row and any(x.index.extent is self.axes.j.extent for x in sums))

    def _is_of_one_side(self, term: Term, key: Index | None) -> bool:
        """A value of the row made from q alone, or of the key made from k alone: the factor of a normalised q or k."""
        of_row = term.reads & QKV == frozenset("q") and term.free <= {"b", "h", "i"}
        of_key = term.reads & QKV == frozenset("k") and key is not None and term.free <= {"b", "h", key.name}
        if not (of_row or of_key):
            return False
        if any(isinstance(x, Load) and x.tensor in QK for x in _outside_reductions(term)):
            return False
        reductions = [x for x in walk(term) if isinstance(x, Reduce) and x.reads & QK]
        return all(x.index.extent is self.axes.d_extent and not _is_over_keys(x) for x in reductions)

    def _captured(self, term: Term, key: Index | None) -> Term:
        """A value of q alone, of k alone or of captures: a tensor computed before the launch."""
        self._check_reads(term)
        if isinstance(term, Apply) and term.op == "mul" and isinstance(term.args[0], Const):  # -x and x are one tensor
            return mul(term.args[0], self._captured(mul(*term.args[1:]), key))
        term_, indices, subscripts = self._own_axes(term, key)
        for known in self.computed:
            if known.term is term_:
                return load(known.name, subscripts, term.sort)
        stem = f"{'q' if 'q' in term.reads else 'k'}_factor" if term.reads & QK else "computed"
        used = sum(c.name.startswith(stem) for c in self.computed)
        name = f"{stem}{used + 1}" if used else stem
        self.computed.append(Computed(name, indices, term_, place_of(term)))
        return load(name, subscripts, term.sort)

    def _check_reads(self, term: Term) -> None:
        for x in walk(term):
            if isinstance(x, Load) and x.tensor == "q" and x.indices[:3] != (self.axes.b, self.axes.h, self.axes.i):
                refuse("CU484", f"q is read at {subscript_text(x)}, not at [b, h, i, d]", place_of(term), _BEFORE)
        if self.axes.e.name in term.free:
            refuse("CU482", "something else than v varies along the head dimension", place_of(term), _OUTSIDE)

    def _own_axes(self, term: Term, key: Index | None) -> tuple[Term, tuple[Index, ...], tuple[Term, ...]]:
        """The term over index variables of its own, and the subscripts that read it here. Of k alone it varies with the key
        head, not with the query head."""
        subscripts: list[Term] = []
        if "h" in term.free and self.kv_head is not self.axes.h:
            head = index("hk", self.axes.hk_extent)
            by_head = replace(term, {self.kv_head: head})
            if "h" not in by_head.free:
                term, subscripts = by_head, [self.kv_head]
        free = sorted((x for x in walk(term) if isinstance(x, Index) and x.name in term.free), key=_axis_order)
        own = tuple(index("j_" if x is key else f"{x.name}_", x.extent) for x in free)
        renamed = substitute(term, {x.name: y for x, y in zip(free, own, strict=True)})
        places = tuple(subscripts[0] if x.name == "hk" else x for x in free)
        return renamed, own, places


_ORDER: Final = {"b": 0, "h": 1, "hk": 1, "i": 2, "j": 3}


def _axis_order(x: Index) -> int:
    return _ORDER.get(x.name, 3)


def _is_neutral(term: Term, kind: str) -> bool:
    match kind:
        case "sum":
            return is_const(term, 0)
        case "max":
            return is_masking(term)
        case _:
            return isinstance(term, Const) and (term.value == math.inf or term.value >= 1e8)


def _is_product_sum(term: Reduce) -> bool:
    """A sum whose body multiplies elements of q and k, rather than one of values made of scores."""
    if term.kind != "sum":
        return False
    direct = {x.tensor for x in _outside_reductions(term.body) if isinstance(x, Load)}
    return direct >= QK


def _is_over_keys(term: Reduce) -> bool:
    """Does the index select keys (or something else than a column) below?"""
    inside = [x for x in walk(term.body) if isinstance(x, Load) and x.tensor in QK]
    return any(term.index.name in subscript.free for x in inside for subscript in x.indices[:3])


def _outside_reductions(term: Term) -> list[Term]:
    found: list[Term] = []
    stack = [term]
    while stack:
        top = stack.pop()
        found.append(top)
        if not isinstance(top, Reduce):
            stack.extend(top.children())
    return found


_QUERY_AXES: Final = ("the batch", "heads", "query rows")
_ROW_KINDS: Final[dict[str, RowKind]] = {"sum": "sum", "max": "max", "min": "min"}
_VERB: Final = {"sum": "a sum", "max": "a maximum", "min": "a minimum", "any": "a test", "all": "a test"}
_OUTSIDE: Final = "apply it to q, k, v before, or to the output after the kernel"
_BEFORE: Final = "change q and k before the kernel, and pass the changed ones"
_PARTS: Final = (
    "a sum of products over parts of the columns is one product: join the parts with torch.cat((nope, rope), -1) "
    "and multiply q and k once"
)
_MIXED: Final = "a kernel computes each row from its own scores; normalise over the last dimension"
_PASSES: Final = "a kernel passes over the keys once"
