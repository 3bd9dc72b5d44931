"""Rule: in a backward kernel each score tile goes through score, mask where it is masked, and probs; what its weights' gradient is,
through probs_grad and score_grad; both through one cast each. What is read was written, what is summed is stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.families import FORWARD, named_arguments
from cubridge.ir.nodes import (
    Assign,
    Call,
    Cast,
    DotRows,
    Expr,
    Gemm,
    If,
    Kernel,
    Load,
    Name,
    ReadShared,
    RegionCall,
    RegisterTile,
    Scale,
    Stmt,
    Store,
    WriteShared,
    Zero,
)
from cubridge.ir.region_types import written_arguments
from cubridge.ir.walk import walk
from cubridge.verify.flow import Facts, Flow

_BEFORE: Final = {
    "score": "gemm", "mask": "score", "probs": "mask", "probs_grad": "gemm", "score_grad": "probs_grad",
}  # fmt: skip
"""What a tile has gone through last before a region changes it."""
_LAST: Final = ("probs", "score_grad")
"""What it has gone through when it is cast."""


def check_steps(kernel: Kernel) -> Iterable[Diagnostic]:
    """CU208 for a register tile that is read and not written, CU214 for a step that is missing or taken twice."""
    return () if kernel.family == FORWARD else _Steps(kernel).run()


class _Steps(Flow[tuple[str, str]]):
    """Facts: (tile, the last step that it has gone through on every way here); `written` beside it."""

    must: ClassVar[bool] = True

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        calls = [
            n for s in kernel.body for n in walk(s) if isinstance(n, RegionCall) and n.region in _BEFORE and n.args
        ]
        self.changed = {_tile(c.args[0]) for c in calls}
        stores = [n for s in kernel.body for n in walk(s) if isinstance(n, Store)]
        self.stored = {_tile(s.src) for s in stores}

    def step(self, stmt: Stmt, facts: Facts[tuple[str, str]]) -> Facts[tuple[str, str]]:
        match stmt:
            case RegisterTile(name) | Assign(Name(name), Call("score_state")):
                return _without(facts, name)
            case Zero(Name(dst)) | Load(Name(dst)) | DotRows(Name(dst)) | ReadShared(Name(dst)):
                return _at(facts, dst, "written")
            case Scale(Name(dst)):
                self.read(facts, dst, stmt, "scaled")
                return facts
            case Gemm(dst=Name(dst)):
                return self._gemm(stmt, dst, facts)
            case Cast(Name(dst), Name(src)):
                return self._cast(stmt, dst, src, facts)
            case Store(src=Name(src)) | WriteShared(src=Name(src)):
                self.read(facts, src, stmt, "stored")
                return facts | {(src, "stored")}
            case RegionCall():
                return self._region(stmt, facts)
            case _:
                return facts

    def branch(
        self,
        stmt: If,
        facts: Facts[tuple[str, str]],
        then: Facts[tuple[str, str]] | None,
        orelse: Facts[tuple[str, str]] | None,
    ) -> Facts[tuple[str, str]] | None:
        """`if query_masked(..)` does what is asked for where it is asked for."""
        if isinstance(stmt.condition, Call) and stmt.condition.fn == "query_masked" and then is not None:
            return then
        return super().branch(stmt, facts, then, orelse)

    def read(self, facts: Facts[tuple[str, str]], tile: str, stmt: Stmt, what: str) -> None:
        if (tile, "written") not in facts:
            self.report("CU208", f"`{tile}` is {what}, and nothing wrote it", stmt)

    def _gemm(self, stmt: Gemm, dst: str, facts: Facts[tuple[str, str]]) -> Facts[tuple[str, str]]:
        if isinstance(stmt.a, Name):
            self.read(facts, stmt.a.id, stmt, "multiplied")
        if stmt.accumulate:
            self.read(facts, dst, stmt, "accumulated into")
            return facts
        return _at(facts, dst, "gemm")

    def _cast(self, stmt: Cast, dst: str, src: str, facts: Facts[tuple[str, str]]) -> Facts[tuple[str, str]]:
        self.read(facts, src, stmt, "cast")
        if src in self.changed and not any((src, step) in facts for step in _LAST):
            self.report("CU214", f"`{src}` is cast before {' or '.join(f'`{s}`' for s in _LAST)} of it", stmt)
        return _at(facts, dst, "written")

    def _region(self, stmt: RegionCall, facts: Facts[tuple[str, str]]) -> Facts[tuple[str, str]]:
        given = {name: _tile(arg) for name, arg in named_arguments(stmt.region, stmt.args).items()}
        for name, tile in given.items():
            if tile and name not in ("tile", "kept") and not name.endswith("_start"):
                self.read(facts, tile, stmt, f"given to `{stmt.region}`")
        before = _BEFORE.get(stmt.region)
        if before is None:
            return facts
        first = next(iter(given.values()), "")
        if (first, before) not in facts:
            self.report("CU214", f"`{stmt.region}` of `{first}`, which has not gone through `{before}` last", stmt)
        return _at(facts, first, stmt.region) if written_arguments(stmt.region) else facts


def _tile(expr: Expr) -> str:
    return expr.id if isinstance(expr, Name) else ""


def _without(facts: Facts[tuple[str, str]], tile: str) -> Facts[tuple[str, str]]:
    return frozenset(f for f in facts if f[0] != tile)


def _at(facts: Facts[tuple[str, str]], tile: str, step: str) -> Facts[tuple[str, str]]:
    return _without(facts, tile) | {(tile, "written"), (tile, step)}
