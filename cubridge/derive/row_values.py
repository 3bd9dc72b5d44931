"""What the backward pass has to know of a row, and what of it the forward pass must save.

A shifted normalizer out = acc * f / total, with a positive total of degree 1 in exp(-m), has total = 1 at m = `lse` = m +
log(total). There acc is the output over f, and nothing of the row but `lse` is needed, as with a softmax. Other rows save m and
the sums that are read."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.ir.algebra.arithmetic import folded, literal
from cubridge.ir.algebra.hosts import is_nonnegative
from cubridge.ir.gradient import Words
from cubridge.ir.nodes import Binary, Expr, Name, Node, Unary
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import free_names, map_children, substitute


@dataclass(frozen=True, slots=True)
class RowValues:
    """`total`: what is 1 where m is `lse`; None where m itself is saved, or there is none."""

    finalize: Expr
    out: Name
    lse: Name
    total: Expr | None

    @property
    def saves_lse(self) -> bool:
        return self.total is not None

    def at_saved(self, expr: Expr) -> Expr:
        """`expr` with the output by its name, and at the m that is saved."""

        def change(node: Node) -> Node:
            if node == self.finalize and "acc" in free_names(node):
                return self.out
            if node == self.total:
                return literal(1)
            return map_children(node, change)

        changed = change(expr)
        assert isinstance(changed, Expr)
        return folded(changed if self.total is None else substitute(changed, {"m": self.lse}))


def row_values(spec: AttentionSpec, words: Words) -> RowValues:
    return RowValues(spec.finalize, Name(words.out), Name(words.lse), _total(spec))


def _total(spec: AttentionSpec) -> Expr | None:
    """The only divisor of finalize that knows the row, where nothing that acc is multiplied by does. Since the output is the same
    at every m, it is of acc's degree in exp(-m), which is 1."""
    rows = {"m", *(r.name for r in spec.rows)}
    factors, divisors = _factors(spec.finalize)
    knowing = [d for d in divisors if free_names(d) & rows]
    fitting = factors.count(Name("acc")) == 1 and len(knowing) == 1
    others = [x for x in (*factors, *divisors) if x not in (Name("acc"), *knowing)]
    shifted = spec.shift and "m" in free_names(spec.weight)
    if not shifted or not fitting or any(free_names(x) & (rows | {"acc"}) for x in others):
        return None
    return knowing[0] if "acc" not in free_names(knowing[0]) and _is_nonnegative(knowing[0], spec) else None


def _is_nonnegative(total: Expr, spec: AttentionSpec) -> bool:
    """Has it a logarithm: it and the terms of its sums are surely no less than 0."""
    return is_nonnegative(substitute(total, {r.name: r.body for r in spec.rows}))


def _factors(expr: Expr) -> tuple[list[Expr], list[Expr]]:
    """What is multiplied, and what is divided by."""
    match expr:
        case Unary("-", operand):
            return _factors(operand)
        case Binary("*" | "/" as op, left, right):
            (over, under), (more, less) = _factors(left), _factors(right)
            return ([*over, *more], [*under, *less]) if op == "*" else ([*over, *less], [*under, *more])
        case _:
            return [expr], []
