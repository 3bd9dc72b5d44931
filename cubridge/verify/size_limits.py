"""What launches must keep within 32 bits, so that the integers of a kernel or a spec stay there: polynomials of sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cubridge.ir.algebra.hosts import is_positive
from cubridge.ir.algebra.interval import Interval
from cubridge.ir.algebra.normal import to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.nodes import SIZES, Binary, Field, IntLit, Kernel, Name
from cubridge.ir.source import Span
from cubridge.ir.spec import AttentionSpec, Precondition
from cubridge.ir.walk import free_names, walk
from cubridge.verify.ranges import LARGEST, LIMITS, Ranges, check_region_ranges, held_by


def missing_limits(kernel: Kernel) -> tuple[Poly, ...]:
    """Those that no parameter of `kernel` holds yet, of what its regions compute."""
    known, held = Ranges.of(kernel), list[Poly]()
    for region in kernel.regions:
        ranges = known.again()
        ranges.held, ranges.asks = [*known.held, *held], True
        _ = [*ranges.function(region)]
        held = [most for most in ranges.held if most not in known.held]
    return tuple(held)


def limit_fields(kernel: Kernel) -> tuple[Field, ...]:
    """The parameters of a variant without which an integer of a region might leave 32 bits."""
    return tuple(f for f in kernel.params if not f.fixed and held_by(f) and _is_needed(kernel, f))


def _is_needed(kernel: Kernel, item: Field) -> bool:
    without = replace(kernel, params=tuple(f for f in kernel.params if f is not item))
    return any(check_region_ranges(without))


def spec_limits(spec: AttentionSpec) -> tuple[Precondition, ...]:
    """What the integers of a spec ask of the sizes. Among floats, what sizes alone make up is computed before the launch, where no
    bits are short."""
    ranges, places = Ranges(LIMITS, asks=True), dict[Poly, Span]()
    for index, size in (("b", "B"), ("h", "Hq")):
        ranges.names[index], ranges.grown[index] = Interval(0, LIMITS[size] - 1), Poly.atom(Name(size))
    predicates = (spec.mask, *(r.over for r in spec.rows))
    for expr in (*predicates, spec.score, spec.weight, spec.finalize, *(r.body for r in spec.rows)):
        ranges.of_launch = frozenset() if expr in predicates else frozenset(SIZES)
        ranges.range(expr)
        places = {most: places.get(most, expr.span) for most in ranges.held}
    return tuple(_precondition(most, span) for most, span in places.items())


def of_formulas(spec: AttentionSpec) -> tuple[Precondition, ...]:
    """What the formulas of a spec ask of sizes, beside what its reference was seen to ask: integers of 32 bits, divisors that are
    not 0."""
    return (*spec_limits(spec), *_divisors(spec))


def _divisors(spec: AttentionSpec) -> Iterator[Precondition]:
    known = {p.condition for p in spec.preconditions}
    exprs = (spec.mask, spec.score, spec.weight, spec.finalize, *(r.body for r in spec.rows))
    for node in (n for e in exprs for n in walk(e)):
        match node:
            case Binary("/", _, by) if free_names(by) <= {*SIZES} and not is_positive(by):
                condition = Binary("!=", by, IntLit(0))
                if condition not in known:
                    known.add(condition)
                    yield Precondition(condition, node.span)
            case _:
                pass


def launch_preconditions(spec: AttentionSpec, kernel: Kernel) -> tuple[Precondition, ...]:
    """What a spec asks of a launch, and what parameters of its kernel hold besides."""
    known = {p.condition for p in spec.preconditions}
    held = [_precondition(most, f.span) for f in limit_fields(kernel) for most in held_by(f)]
    return (*spec.preconditions, *(p for p in held if p.condition not in known))


WIDER: Final = "compare quotients, or floats: `i * 1.0 / Lq >= j * 1.0 / Lk`"
"""How integers stay within 32 bits at any sizes."""


def _precondition(most: Poly, span: Span) -> Precondition:
    condition = Binary("<=", to_expr(most), IntLit(LARGEST))
    return Precondition(condition, span, f"its integers have 32 bits; {WIDER}")
