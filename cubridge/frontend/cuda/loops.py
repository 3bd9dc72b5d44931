"""The shapes of counting loops."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.frontend.cuda.syntax import Assignment, CExpr, Declare, ForLoop, Ident, Infix, Number


@dataclass(frozen=True, slots=True)
class Counted:
    """`for (int name = start; name < stop; ++name)`; `inclusive`: `<=`."""

    name: str
    start: CExpr
    stop: CExpr
    inclusive: bool


def steps_by_one(loop: ForLoop) -> Counted | None:
    """A loop that counts up by 1 from any start; None for every other."""
    match loop.init, loop.condition, loop.step:
        case (Declare(type=kind, name=name, value=start),), Infix(op, left, right), Assignment(
            Ident(stepped), "+=", Number("1")
        ):
            if kind.name != "int" or start is None or stepped != name:
                return None
            match op, left, right:
                case (("<" | "<="), Ident(tested), stop) if tested == name:
                    return Counted(name, start, stop, op == "<=")
                case ((">" | ">="), stop, Ident(tested)) if tested == name:
                    return Counted(name, start, stop, op == ">=")
                case _:
                    return None
        case _:
            return None


def counted(loop: ForLoop) -> Counted | None:
    """A loop over 0, 1, .. below `stop`."""
    found = steps_by_one(loop)
    whole = found is not None and found.start == Number("0") and not found.inclusive
    return found if whole else None
