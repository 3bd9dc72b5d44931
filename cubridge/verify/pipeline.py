"""Rule: each score tile goes through score, mask if masked, row_update once and row_probs once for each fragment row; its weights
through one cast and one gemm into an output that was rescaled; each output is finalized and stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.families import FORWARD
from cubridge.ir.nodes import (
    Assign,
    Call,
    Cast,
    Expr,
    Gemm,
    If,
    Kernel,
    Name,
    RegionCall,
    RegisterTile,
    Stmt,
    Store,
    WriteShared,
    Zero,
)
from cubridge.ir.walk import walk
from cubridge.verify.flow import Facts, Flow


def check_pipeline(kernel: Kernel) -> Iterable[Diagnostic]:
    """CU208 for a register tile or row state that is read and not written, CU214 for a step that is missing or taken twice."""
    return _Pipeline(kernel).run() if kernel.family == FORWARD else ()


@dataclass(frozen=True, slots=True)
class Fact:
    """`tile` is in a state; `row` tells fragment rows apart."""

    state: str
    tile: str
    row: int = 0


_UNTIL_GEMM: Final = ("raw", "score", "mask", "row_update", "row_probs", "spent")


class _Pipeline(Flow[Fact]):
    """Facts: the steps that each tile has gone through on every way here."""

    must: ClassVar[bool] = True

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        calls = [n for n in walk(kernel) if isinstance(n, RegionCall) and n.args]
        self.scores = {_tile(c.args[0]) for c in calls if c.region in ("score", "mask", "row_update", "row_probs")}
        self.outputs = {_tile(c.args[0]) for c in calls if c.region in ("row_rescale", "row_finalize")}
        casts = [n for n in walk(kernel) if isinstance(n, Cast)]
        self.weights = {_tile(c.dst) for c in casts if _tile(c.src) in self.scores}
        rows = next((c.value for c in kernel.constants if c.name == "ROWS"), 1)
        self.fragment_rows = range(int(rows))

    def step(self, stmt: Stmt, facts: Facts[Fact]) -> Facts[Fact]:
        match stmt:
            case RegisterTile(name):
                return _without(facts, name) | {Fact("spent", name)}
            case Assign(Name(name), Call("row_state")):
                return _without(facts, name)
            case Zero(Name(name)):
                return _without(facts, name) | {Fact("defined", name), Fact("zero", name), Fact("rescaled", name)}
            case Gemm(dst=Name(name)):
                return self._gemm(stmt, name, facts)
            case RegionCall():
                return self._region(stmt, facts)
            case Cast(Name(dst), Name(src)):
                return self._cast(stmt, dst, src, facts)
            case Store(src=Name(src)) | WriteShared(src=Name(src)):
                if src in self.outputs:
                    self.need(facts, Fact("final", src), stmt, "stored before `row_finalize`")
                self.need(facts, Fact("defined", src), stmt, "stored, and nothing wrote it", "CU208")
                return facts | {Fact("stored", src)}
            case _:
                return facts

    def branch(
        self, stmt: If, facts: Facts[Fact], then: Facts[Fact] | None, orelse: Facts[Fact] | None
    ) -> Facts[Fact] | None:
        """`if key_masked(..)` and `if present(..)` do what is asked for where it is asked for."""
        after = self.join(then, orelse)
        match stmt.condition:
            case Call("key_masked") if then is not None and after is not None:
                return after | {f for f in then if f.state == "mask"}
            case Call("present") if then is not None and after is not None:
                return after | {f for f in then if f.state == "stored"}
            case _:
                return after

    def leave(self, body: tuple[Stmt, ...], facts: Facts[Fact]) -> Facts[Fact]:
        for stmt in body:
            if isinstance(stmt, RegisterTile):
                self._end_of_life(stmt, facts)
                facts = _without(facts, stmt.name)
        return facts

    def need(self, facts: Facts[Fact], fact: Fact, stmt: Stmt, what: str, code: str = "CU214") -> None:
        if fact not in facts:
            self.report(code, f"`{fact.tile}` is {what}", stmt)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _gemm(self, stmt: Gemm, dst: str, facts: Facts[Fact]) -> Facts[Fact]:
        if isinstance(stmt.a, Name):
            self.need(facts, Fact("defined", stmt.a.id), stmt, "multiplied, and nothing wrote it", "CU208")
        if isinstance(stmt.a, Name) and stmt.a.id in self.weights:
            weights = Fact("weights", stmt.a.id)
            self.need(facts, weights, stmt, "multiplied a second time, or before its cast")
            facts -= {weights}
        if stmt.accumulate:
            self.need(facts, Fact("defined", dst), stmt, "accumulated into, and nothing wrote it", "CU208")
        if dst in self.outputs:
            self.need(
                facts,
                Fact("rescaled", dst),
                stmt,
                "accumulated into without the `row_rescale` of the last `row_update`",
            )
            facts -= {Fact("zero", dst)}
        if dst in self.scores:
            self.need(facts, Fact("spent", dst), stmt, "overwritten before its scores became weights")
            facts = frozenset(f for f in facts if f.tile != dst or f.state not in _UNTIL_GEMM) | {Fact("raw", dst)}
        return facts | {Fact("defined", dst)}

    def _region(self, stmt: RegionCall, facts: Facts[Fact]) -> Facts[Fact]:
        names = [_tile(a) for a in stmt.args]
        match stmt.region:
            case "score":
                return self._once(stmt, names[0], facts, ("raw", "no gemm has filled"))
            case "mask":
                return self._once(stmt, names[0], facts, ("score", "`score` has not run on"))
            case "row_init":
                return facts | {Fact("row_init", names[0])}
            case "row_update":
                return self._row_update(stmt, names, facts)
            case "row_probs":
                row = self.value(stmt.args[2])
                return self._once(stmt, names[0], facts, ("row_update", "`row_update` has not taken in"), row=row)
            case "row_rescale":
                self._row_started(stmt, names[1], facts)
                self.need(facts, Fact("defined", names[0]), stmt, "rescaled, and nothing wrote it", "CU208")
                return facts | {Fact("rescaled", names[0])}
            case _:
                return self._row_finalize(stmt, names, facts)

    def _once(
        self, stmt: RegionCall, tile: str, facts: Facts[Fact], *needs: tuple[str, str], row: int | None = 0
    ) -> Facts[Fact]:
        """One step of a score tile: what must have run before, and that this has not."""
        for state, why in needs:
            if Fact(state, tile) not in facts:
                self.report("CU214", f"`{stmt.region}` of a tile that {why}", stmt)
        if row is None:
            return facts
        done = Fact(stmt.region, tile, row)
        if done in facts:
            self.report("CU214", f"`{stmt.region}` runs twice on one score tile", stmt)
        return facts | {done}

    def _row_update(self, stmt: RegionCall, names: list[str], facts: Facts[Fact]) -> Facts[Fact]:
        self._row_started(stmt, names[1], facts)
        needs = (("score", "`score` has not run on"), ("mask", "`mask` has not run on where its keys are masked"))
        facts = self._once(stmt, names[0], facts, *needs)
        kept = {o for o in self.outputs if Fact("zero", o) in facts}
        return frozenset(f for f in facts if f.state != "rescaled" or f.tile in kept)

    def _row_started(self, stmt: RegionCall, row: str, facts: Facts[Fact]) -> None:
        if Fact("row_init", row) not in facts:
            self.report("CU208", f"`{stmt.region}` runs before `row_init`", stmt)

    def _row_finalize(self, stmt: RegionCall, names: list[str], facts: Facts[Fact]) -> Facts[Fact]:
        self._row_started(stmt, names[2], facts)
        out, lse = names[0], names[1]
        self.need(facts, Fact("defined", out), stmt, "finalized, and nothing wrote it", "CU208")
        if Fact("final", out) in facts:
            self.report("CU214", f"`{out}` is finalized twice", stmt)
        return facts | {Fact("final", out), Fact("final", lse), Fact("defined", lse)}

    def _cast(self, stmt: Cast, dst: str, src: str, facts: Facts[Fact]) -> Facts[Fact]:
        self.need(facts, Fact("defined", src), stmt, "cast, and nothing wrote it", "CU208")
        if src in self.scores:
            for r in self.fragment_rows:
                self.need(facts, Fact("row_probs", src, r), stmt, f"cast before `row_probs` of its fragment row {r}")
            if Fact("weights", dst) in facts:
                self.report("CU214", f"`{dst}` is overwritten before a gemm has used its weights", stmt)
            facts |= {Fact("weights", dst), Fact("spent", src)}
        return facts | {Fact("defined", dst)}

    def _end_of_life(self, tile: RegisterTile, facts: Facts[Fact]) -> None:
        name = tile.name
        if Fact("weights", name) in facts:
            self.report("CU214", f"the last weights in `{name}` are never multiplied with values", tile)
        if name in self.scores and Fact("spent", name) not in facts:
            self.report("CU214", f"the last scores in `{name}` never become weights", tile)
        if name in self.outputs and Fact("final", name) not in facts:
            self.report("CU214", f"`{name}` is never finalized", tile)
        if Fact("final", name) in facts and Fact("stored", name) not in facts:
            self.report("CU214", f"`{name}` is finalized and never stored", tile)


def _tile(expr: Expr) -> str:
    return expr.id if isinstance(expr, Name) else ""


def _without(facts: Facts[Fact], tile: str) -> Facts[Fact]:
    return frozenset(f for f in facts if f.tile != tile)
