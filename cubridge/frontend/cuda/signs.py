"""Which integers cannot be negative: there C's `/` and `%`, which truncate, are CuIR's `//` and `%`, which floor.

The proofs are those of `ir.algebra.signs`; here is what is known of locals while statements are read, and what a proof rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.algebra.facts import ARGUMENTS, NATURAL, Facts, least_of_host
from cubridge.ir.algebra.signs import is_natural
from cubridge.ir.coordinates import THREAD_NAMES
from cubridge.ir.nodes import Attr, Call, Expr, IntLit, Name
from cubridge.ir.walk import walk

NATURAL_FIELDS: Final = frozenset(x for x in NATURAL if isinstance(x, Attr))
NATURAL_NAMES: Final = frozenset((*(x.id for x in ARGUMENTS if isinstance(x, Name)), "work", *THREAD_NAMES))
"""Unless a local or a constant has the name."""


@dataclass(slots=True)
class Signs:
    """What is known of names: `constants` by value, `definitions` of locals and parameters, `upper` bounds of natural names;
    `naturals` are names that are never negative here, with the names that this rests on in `reasons`. `relied`: the names that
    divisions rest on."""

    constants: Callable[[str], int | float | None]
    naturals: frozenset[str] = NATURAL_NAMES
    definitions: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    upper: Mapping[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    reasons: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    relied: frozenset[str] = frozenset()

    def natural_by(self, expr: Expr) -> frozenset[str] | None:
        """The names of `naturals` that a proof of it may rest on; None where this integer may be negative."""
        asked: set[str] = set()

        def least(x: Expr) -> int | None:
            match x:
                case Name(name) if name in self.naturals and self._definition(x) is None:
                    asked.add(name)
                    return 0
                case Call("key_count"):
                    return 0
                case Attr() if x in self.definitions:
                    return least_of_host(self.definitions[x])
                case _:
                    return NATURAL.get(x)

        return frozenset(asked) if is_natural(expr, Facts(least, self.upper.get, self._definition)) else None

    def _definition(self, expr: Expr) -> Expr | None:
        if expr in self.definitions or not isinstance(expr, Name):
            return self.definitions.get(expr)
        value = self.constants(expr.id)
        return IntLit(int(value)) if isinstance(value, int) else None

    def changes(self, name: Name) -> None:
        """`name` is about to get another value: of what it defined, only the signs stay known."""
        for other in [n for n, made in self.definitions.items() if n != name and name in walk(made)]:
            self.settle(other)

    def settle(self, name: Expr) -> None:
        """Keep of the definition of a name its sign alone."""
        reasons = self.natural_by(name)
        self.definitions.pop(name, None)
        if reasons is not None and isinstance(name, Name):
            self.keep(name.id, reasons)

    def keep(self, name: str, reasons: frozenset[str]) -> None:
        """`name` is never negative if `reasons` are not."""
        self.naturals |= {name}
        self.reasons[name] = self.reasons.get(name, frozenset()) | reasons - {name}

    def rests_on(self) -> frozenset[str]:
        """`relied`, and what that rests on."""
        found, new = set[str](), set(self.relied)
        while new:
            found |= new
            new = {reason for name in new for reason in self.reasons.get(name, ())} - found
        return frozenset(found)


class TakenOnTrust(Signs):
    """Divisions without a proof: for saying what a text means that is refused already."""

    def natural_by(self, expr: Expr) -> frozenset[str] | None:
        return frozenset()
