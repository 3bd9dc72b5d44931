"""`read_spec`: what attention a kernel computes, read from its regions, whoever wrote them.

Row state is explained, field by field: a **sum** over the keys seen so far, a **maximum** of them, a **reference** that weights
are relative to, or a value that follows from these. Whether the code keeps what it is explained by, for any tile and any new
reference, is shown in `induction`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from cubridge.ir.nodes import Attr, Binary, BoolLit, Call, Expr, FloatLit, IntLit, Kernel, Name, Unary
from cubridge.ir.printer import print_expr
from cubridge.ir.walk import free_names, map_children, walk
from cubridge.judge.proof.regions import Regions
from cubridge.judge.proof.unproved import Unproved

SCORE: Final = Name("s")
KEY: Final = Name("x")
"""The score of a key after `score` and `mask`; -inf where it is hidden."""
OUTPUT: Final = Name("acc")
MINUS_INF: Final = Unary("-", Name("inf"))
MAX_CASES: Final = 64
_TRUE: Final[Expr] = BoolLit(True)


def old(field: str) -> Name:
    """A row field before a key tile."""
    return Name(f"old.{field}")


def new(field: str) -> Name:
    """A row field after it."""
    return Name(f"row.{field}")


@dataclass(frozen=True, slots=True)
class RowField:
    """A field of the row state: `initial` before any key, `step` after a key tile, as a formula over the fields before it, `x`,
    and `rowmax(..)` and `partial_rowsum(..)` of formulas over x.

    kind "sum": adds up `body` over keys; "max" and "min": are of `body` over keys; "reference": any number, near the largest
    score; "constant": never written by a step."""

    name: str
    kind: Literal["sum", "max", "min", "reference", "constant"]
    initial: Expr
    step: Expr
    body: Expr | None = None


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The attention that a kernel computes. `score` is over s; `mask` says which keys keep their score in a masked tile;
    `weight` and the bodies of rows are over x and references; `rescale`, of `acc`, also over these before the tile; `finalize`
    and `lse` are over `acc` and rows."""

    score: Expr
    mask: Expr
    weight: Expr
    rescale: Expr
    rows: tuple[RowField, ...]
    finalize: Expr
    lse: Expr

    def of_kind(self, *kinds: str) -> tuple[RowField, ...]:
        return tuple(r for r in self.rows if r.kind in kinds)

    def to_text(self) -> str:
        """Line by line, for people."""
        lines = [
            f"score {print_expr(self.score)}",
            f"mask {print_expr(self.mask)}",
            f"weight {print_expr(self.weight)}",
        ]
        for row in self.rows:
            body = row.step if row.body is None else row.body
            lines.append(f"{row.kind} {row.name}: {print_expr(body)}")
        return "\n".join([*lines, f"out {print_expr(self.finalize)}", f"lse {print_expr(self.lse)}"])


def read_spec(kernel: Kernel) -> ReadSpec:
    """Errors: Unproved for regions that nothing here explains."""
    return _Reader(Regions(kernel)).read()


def read_mask(regions: Regions) -> Expr:
    """The keys that the `mask` region leaves as they are. Errors: Unproved where it does more than hide the others."""
    return visibility(regions.placed(regions.run("mask").places.get(SCORE, SCORE)))


class _Reader:
    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self.fields = tuple(f.name for f in regions.kernel.row_state)

    def read(self) -> ReadSpec:
        score = self._placed(self.regions.run("score").places.get(SCORE, SCORE))
        mask = read_mask(self.regions)
        places, weight, rescale = self._step()
        initial = self.regions.run("row_init").places
        rows = self._rows(places, initial, (weight, rescale))
        known = _known(rows)
        weight, rescale = (known(e) for e in (weight, rescale))
        self._check_explained(weight, rows, "the weight of a key")
        self._check_explained(rescale, rows, "what the output is multiplied by", before=True)
        rows = tuple(self._with_body(r, known, rows) for r in rows)
        finalize, lse = self._finalize(rows, places, known)
        return ReadSpec(score, mask, weight, rescale, rows, finalize, lse)

    def _placed(self, formula: Expr) -> Expr:
        return self.regions.placed(formula)

    def _step(self) -> tuple[dict[str, Expr], Expr, Expr]:
        """The fields after a key tile, the weight of a key, and the output before the tile as it is after."""
        before: dict[Expr, Expr] = {_row(f): old(f) for f in self.fields}
        updated = self.regions.run("row_update", {**before, SCORE: KEY}).places
        state = {_row(f): updated[_row(f)] for f in self.fields}
        probs = self.regions.run("row_probs", {**state, SCORE: KEY}).places
        rescaled = self.regions.run("row_rescale", {**state, Name("o"): OUTPUT}).places
        late = self.regions.run("row_rescale", {**{_row(f): probs[_row(f)] for f in self.fields}, Name("o"): OUTPUT})
        if late.places[Name("o")] != rescaled[Name("o")]:
            raise Unproved("`row_rescale` reads what `row_probs` writes, and kernels call them in either order")
        fields = {f: self._placed(probs[_row(f)]) for f in self.fields}
        return fields, self._placed(probs[SCORE]), self._placed(rescaled[Name("o")])

    # ---- the row state ----

    def _rows(self, steps: dict[str, Expr], initial: dict[Expr, Expr], read: tuple[Expr, ...]) -> tuple[RowField, ...]:
        """The fields that are carried from tile to tile; the others follow from them."""
        found: list[RowField] = []
        for name in self.fields:
            start = initial.get(_row(name))
            if not self._is_carried(name, steps, read):
                continue
            kind, body = _kind(steps[name], name)
            if kind is None:
                raise Unproved(
                    f"`row.{name}` is neither a sum, a maximum or a reference of the keys seen so far, nor follows from them"
                )
            if start is None:
                raise Unproved(f"`row.{name}` has no value before the first key")
            found.append(RowField(name, kind, self._placed(start), steps[name], body))
        return tuple(found)

    def _is_carried(self, name: str, steps: dict[str, Expr], read: tuple[Expr, ...]) -> bool:
        return any(old(name).id in free_names(e) for e in (*steps.values(), *read))

    def _with_body(self, row: RowField, known: Change, rows: tuple[RowField, ...]) -> RowField:
        """The step of a sum, and the body of any row, in terms of the references after the tile."""
        if row.kind in ("reference", "constant"):
            return row
        if row.kind != "sum":
            return RowField(row.name, row.kind, row.initial, row.step, None if row.body is None else known(row.body))
        step = known(row.step)
        parts = {n for n in walk(step) if isinstance(n, Call) and n.fn == "partial_rowsum"}
        if len(parts) != 1:
            raise Unproved(f"`row.{row.name}` adds more than one sum of a tile")
        body = parts.pop().args[0]
        self._check_explained(body, rows, f"what `row.{row.name}` adds up")
        return RowField(row.name, "sum", row.initial, step, body)

    def _check_explained(self, formula: Expr, rows: tuple[RowField, ...], what: str, before: bool = False) -> None:
        allowed = {new(r.name).id for r in rows if r.kind in ("reference", "max", "min")}
        if before:
            allowed |= {old(r.name).id for r in rows if r.kind in ("reference", "max", "min")}
        wrong = sorted(n for n in free_names(formula) - allowed if n.startswith(("old.", "row.")))
        if wrong:
            field = wrong[0].split(".", 1)[1]
            raise Unproved(f"{what} reads `row.{field}`, which no sum, maximum or reference of the row explains")
        if any(isinstance(n, Call) and n.fn in ("rowmax", "partial_rowsum") for n in walk(formula)):
            raise Unproved(f"{what} reads a maximum or sum of its own key tile")

    # ---- the end ----

    def _finalize(self, rows: tuple[RowField, ...], steps: dict[str, Expr], known: Change) -> tuple[Expr, Expr]:
        values: dict[Expr, Expr] = {_row(r.name): new(r.name) for r in rows if r.kind != "constant"}
        values |= {_row(r.name): r.initial for r in rows if r.kind == "constant"}
        derived = {_row(f): known(steps[f]) for f in self.fields if _row(f) not in values}
        done = self.regions.run("row_finalize", {**derived, **values, Name("o"): OUTPUT}).places
        output, lse = self._placed(done[Name("o")]), self._placed(done.get(Name("lse"), Name("nan")))
        for formula in (output, lse):
            wrong = sorted(n for n in free_names(formula) if n.startswith("old."))
            if wrong:
                raise Unproved(f"`row.{wrong[0][4:]}` at the end is that of the last key tile alone")
        return output, lse


Change = Callable[[Expr], Expr]


def _known(rows: tuple[RowField, ...]) -> Change:
    """Puts the name of a reference for the formula that it is after a tile; the largest formulas first."""
    names: dict[Expr, Expr] = {r.step: new(r.name) for r in rows if r.kind in ("reference", "max", "min")}
    names |= {old(r.name): r.initial for r in rows if r.kind == "constant"}

    def change(expr: Expr) -> Expr:
        if expr in names:
            return names[expr]
        return map_children(expr, lambda x: change(x) if isinstance(x, Expr) else x)

    return change


def _row(field: str) -> Attr:
    return Attr(Name("row"), field)


def _kind(step: Expr, name: str) -> tuple[Literal["sum", "max", "min", "reference", "constant"] | None, Expr | None]:
    """What a field is, by the form of its step."""
    calls = {n.fn for n in walk(step) if isinstance(n, Call)}
    match step:
        case Name(id) if id == old(name).id:
            return "constant", None
        case _ if "partial_rowsum" in calls:
            return "sum", None
        case Call("maximum", (Name(id), Call("rowmax", (body,)))) | Call(
            "maximum", (Call("rowmax", (body,)), Name(id))
        ):
            return ("max" if id == old(name).id else "reference"), body
        case Call("minimum", (Name(id), Unary("-", Call("rowmax", (body,))))) if id == old(name).id:
            return "min", Unary("-", body)
        case _ if "rowmax" in calls:
            return "reference", None
        case _:
            return None, None


# ---- masks -----------------------------------------------------------------------------------------------------------


def visibility(masked: Expr) -> Expr:
    """The predicate of a mask region that leaves a score as it is or makes it -inf. Errors: Unproved for another one."""
    result: Expr = BoolLit(False)
    for condition, leaf in _leaves(masked):
        if _is_score(leaf):
            result = condition if result == BoolLit(False) else Binary("|", result, condition)
        elif leaf != MINUS_INF:
            raise Unproved(f"the mask makes a score `{print_expr(leaf)}`")
    return result


def _is_score(leaf: Expr) -> bool:
    match leaf:
        case Name("s"):
            return True
        case Binary("+", left, right):
            return (_is_score(left) and _is_zero(right)) or (_is_zero(left) and _is_score(right))
        case Call("minimum", (left, right)):
            return (_is_score(left) and right == Name("inf")) or (left == Name("inf") and _is_score(right))
        case _:
            return False


def _is_zero(leaf: Expr) -> bool:
    return isinstance(leaf, FloatLit | IntLit) and leaf.value == 0


def _leaves(expr: Expr) -> list[tuple[Expr, Expr]]:
    """The values of nested selections, with the condition of each; of sums and minima too."""
    found: list[tuple[Expr, Expr]]
    match expr:
        case Call("where", (condition, then, otherwise)):
            found = [(_both(condition, c), leaf) for c, leaf in _leaves(then)]
            found += [(_both(Unary("~", condition), c), leaf) for c, leaf in _leaves(otherwise)]
        case Binary("+", left, right) if {type(left), type(right)} & {Call}:
            found = [(_both(c, d), _joined(Binary("+", a, b))) for c, a in _leaves(left) for d, b in _leaves(right)]
        case Call("minimum", (left, right)):
            found = [
                (_both(c, d), _joined(Call("minimum", (a, b)))) for c, a in _leaves(left) for d, b in _leaves(right)
            ]
        case _:
            found = [(_TRUE, expr)]
    if len(found) > MAX_CASES:
        raise Unproved("the mask has too many cases")
    return found


def _joined(leaf: Binary | Call) -> Expr:
    """A sum or minimum with -inf is -inf."""
    parts = (leaf.left, leaf.right) if isinstance(leaf, Binary) else leaf.args
    return MINUS_INF if MINUS_INF in parts else leaf


def _both(a: Expr, b: Expr) -> Expr:
    if a == BoolLit(True):
        return b
    return a if b == BoolLit(True) else Binary("&", a, b)
