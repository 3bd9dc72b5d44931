"""A foreign kernel as CuIR, from its runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cubridge.frontend.ptx.fold import Body, CopyTile, Done, Multiply, Pass, StoreRows, ahead_of, fold, slots_of
from cubridge.frontend.ptx.geometry import Geometry, over_tile, read_geometry
from cubridge.frontend.ptx.regions import regions_of
from cubridge.frontend.ptx.rows import Rows, read_rows
from cubridge.frontend.ptx.run import Run
from cubridge.ir.algebra.normal import to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.contract import ElementType
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract, ForeignParameter, ForeignTensor, ParameterKind
from cubridge.ir.hardware import FRAGMENT_ROWS, WARP
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Binary,
    BlockSync,
    Call,
    Cast,
    Constant,
    Copy,
    CopyAsync,
    CpAsyncCommit,
    CpAsyncWait,
    Expr,
    Field,
    For,
    Function,
    Gemm,
    Global,
    If,
    Index,
    IntLit,
    Kernel,
    Name,
    Partial,
    RegionCall,
    RegisterTile,
    Row,
    Scalar,
    Stmt,
    Store,
    Tile,
    Zero,
)  # fmt: skip
from cubridge.ir.source import Span
from cubridge.ir.types import DType
from cubridge.ir.walk import walk

_CASTS = {None: DType.F32, "bf16": DType.BF16, "f16": DType.F16}
_TILE, _ROW, _KEYS, _COUNT, _T = map(Name, ("tile", "row", "keys", "count", "t"))


def read_kernel(runs: Sequence[Run], contract: ForeignContract) -> Kernel:
    """`runs`: of several shapes and blocks. Errors: CU850 to CU854."""
    ordered = sorted(
        runs, key=lambda r: (-r.loop.count, -r.acts("copy", "q")[0][1].tile.kept if r.acts("copy", "q") else 0)
    )
    run = ordered[0]
    geometry = read_geometry(ordered)
    body = fold(run, geometry)
    for other in ordered[1:]:
        _same_body(body, fold(other, geometry), other)
        _same_code(run, other)
    return _Writer(contract, run, geometry, read_rows(ordered, geometry), body).kernel()


def _same_body(body: Body, other: Body, run: Run) -> None:
    for mine, theirs in ((body.before, other.before), (body.loop, other.loop), (body.after, other.after)):
        shared = [d.what for d in mine if not _looks_past(d, run)]
        if shared != [d.what for d in theirs if not _looks_past(d, run)]:
            raise CuError(
                Diagnostic(
                    "CU853", f"at {run.shape} the block does other things than at the first shape", run.loop.span
                )
            )


def _same_code(run: Run, other: Run) -> None:
    """The text that treats a key tile here treats it there, with a mask or without."""
    for t, (mine, theirs) in enumerate(zip(run.code_of_tiles(), other.code_of_tiles(), strict=False)):
        if mine != theirs:
            message = f"at {other.shape} key tile {t} is treated by other code than at {run.shape}"
            raise CuError(Diagnostic("CU853", message, other.trace.code[theirs].span))


def _looks_past(done: Done, run: Run) -> bool:
    return (ahead_of(done.what) or 0) >= run.loop.count


class _Writer:
    def __init__(self, contract: ForeignContract, run: Run, geometry: Geometry, rows: Rows, body: Body) -> None:
        self.contract, self.run, self.geometry, self.rows, self.body = contract, run, geometry, rows, body
        self.regions = regions_of(geometry, rows)
        self.slots = {name: slots_of(run, name) for name in "qkv"}
        self.warps = contract.threads // WARP

    def kernel(self) -> Kernel:
        rows, rest = divmod(self.geometry.query_rows, self.warps * FRAGMENT_ROWS)
        if rest:
            message = f"{self.geometry.query_rows} query rows are no whole fragments of {self.warps} warps"
            raise CuError(Diagnostic("CU853", message, self.geometry.spans["work"]))
        constants = {
            "HEAD_DIM": self.contract.head_dim, "BLOCK_Q": self.geometry.query_rows, "BLOCK_KV": self.geometry.key_rows,
            "NUM_THREADS": self.contract.threads, "ROWS": rows,
        }  # fmt: skip
        fields = {"m": Row(DType.F32), "l": Partial(DType.F32), "o_scale": Row(DType.F32)}
        return Kernel(
            name=self.contract.entry.partition("<")[0].rpartition(":")[2].strip(),
            arch=self.contract.arch,
            threads=Name("NUM_THREADS"),
            team="block",
            row_origin=IntLit(0),
            constants=tuple(Constant(n, v) for n, v in constants.items()),
            params=tuple(self._params()),
            shared=tuple(self._shared()),
            tile_state=(),
            row_state=tuple(Field(n, kind) for n, kind in fields.items()),
            regions=self.regions,
            schedule=self._schedule(),
            body=tuple(self._body()),
            span=self.run.loop.span,
        )

    # ---- declarations ----

    def _params(self) -> Iterator[Field]:
        for tensor in self.contract.tensors:
            yield Field(tensor.name, self._global(tensor))
        used = {n.name for r in self.regions for n in _params_of(r)}
        for parameter in self.contract.values:
            if parameter.kind is ParameterKind.FLOAT and parameter.last in used:
                yield Field(parameter.last, _scalar(parameter), fixed=False, span=parameter.span)

    def _global(self, tensor: ForeignTensor) -> Global:
        return Global(DType.F32 if tensor.element is ElementType.F32 else self.contract.dtype, tensor.shape)

    def _shared(self) -> Iterator[Field]:
        for name, rows in (("q", "BLOCK_Q"), ("k", "BLOCK_KV"), ("v", "BLOCK_KV")):
            slots = IntLit(self.slots[name]) if self.slots[name] > 1 else None
            yield Field(name, Tile(self.contract.dtype, Name(rows), Name("HEAD_DIM"), slots))

    def _schedule(self) -> Function:
        work, span = self.geometry.work, self.geometry.spans["work"]
        start, rest = work.row.divided(Poly.constant(self.geometry.query_rows))
        if rest.terms:
            raise CuError(Diagnostic("CU853", "a query tile begins at no multiple of its rows", span))
        values = {
            "b": to_expr(work.b), "h": to_expr(work.h), "hk": to_expr(over_tile(self.geometry.head_kv, self.geometry)),
            "q_start": Binary("*", to_expr(start), Name("BLOCK_Q")),
        }  # fmt: skip
        body: list[Stmt] = [Assign(Attr(_TILE, name), value, span=span) for name, value in values.items()]
        body.append(RegionCall("tile_setup", (_TILE,), span=span))
        return Function("work_tile", (), tuple(body), _TILE, span=span)

    # ---- the body ----

    def _body(self) -> Iterator[Stmt]:
        span = self.run.loop.span
        yield Assign(_TILE, Call("work_tile", ()), span=span)
        yield Assign(_KEYS, Call("key_sequence", (_TILE,)), span=span)
        yield Assign(_COUNT, Call("key_count", (_KEYS,)), span=span)
        yield RegisterTile("o", DType.F32, Name("BLOCK_Q"), Name("HEAD_DIM"), span=span)
        yield Assign(_ROW, Call("row_state", ()), span=span)
        yield Zero(Name("o"), span=span)
        yield RegionCall("row_init", (_ROW, _TILE), span=span)
        yield from self._before()
        yield For("t", IntLit(0), _COUNT, tuple(self._iteration()), span=span)
        yield RegisterTile("lse", DType.F32, Name("BLOCK_Q"), span=span)
        yield RegionCall("row_finalize", (Name("o"), Name("lse"), _ROW, _TILE), span=span)
        for done in self.body.after:
            yield from self._statements(done)

    def _before(self) -> Iterator[Stmt]:
        """Copies before the loop stand under the condition that there is a key tile."""
        waiting: list[Stmt] = []
        for done in self.body.before:
            if isinstance(done.what, CopyTile):
                waiting.append(self._copy(done.what, done.span, IntLit(0)))
                continue
            yield from self._guarded(waiting)
            waiting = []
            yield from self._statements(done)
        yield from self._guarded(waiting)

    def _guarded(self, copies: list[Stmt]) -> Iterator[Stmt]:
        if copies:
            yield If(Binary(">", _COUNT, IntLit(0)), tuple(copies), span=copies[0].span)

    def _iteration(self) -> Iterator[Stmt]:
        span = self.run.loop.span
        yield Assign(Name("n"), Call("key_tile", (_KEYS, _T)), span=span)
        yield RegisterTile("s", DType.F32, Name("BLOCK_Q"), Name("BLOCK_KV"), span=span)
        yield RegisterTile("probs", _CASTS[self.rows.step.cast], Name("BLOCK_Q"), Name("BLOCK_KV"), span=span)
        yield from _joined(statement for done in self.body.loop for statement in self._statements(done))

    def _statements(self, done: Done) -> Iterator[Stmt]:
        match done.what:
            case CopyTile(_, ahead) as what:
                yield from _if_there_is(ahead, self._copy(what, done.span, _T))
            case Pass(turn, ahead):
                passed = {
                    "commit": CpAsyncCommit(span=done.span),
                    "wait_group": CpAsyncWait(IntLit(turn.count), span=done.span),
                    "block_sync": BlockSync(span=done.span),
                }
                yield from _if_there_is(ahead, passed[turn.kind])
            case Multiply("k"):
                yield from self._scores(done.span)
            case Multiply():
                yield from self._outputs(done.span)
            case StoreRows(tensor):
                place = Index(Attr(Name("p"), tensor), (Attr(_TILE, "b"), Attr(_TILE, "h")))
                yield Store(place, Attr(_TILE, "q_start"), Name(tensor), span=done.span)

    def _copy(self, what: CopyTile, span: Span, t: Expr) -> Stmt:
        step = t if not what.ahead else IntLit(what.ahead) if t == IntLit(0) else _plus(t, what.ahead)
        if what.ahead is None:
            row, head, slot = Attr(_TILE, "q_start"), "h", IntLit(0)
        else:
            row, head, slot = Binary("*", Call("key_tile", (_KEYS, step)), Name("BLOCK_KV")), "hk", step
        dst = self._slot(what.tensor, slot)
        src = Index(Attr(Name("p"), what.tensor), (Attr(_TILE, "b"), Attr(_TILE, head)))
        return CopyAsync(dst, src, row, span=span) if what.asynchronous else Copy(dst, src, row, span=span)

    def _slot(self, tensor: str, step: Expr) -> Expr:
        slots = self.slots[tensor]
        whole = Attr(Name("smem"), tensor)
        return whole if slots == 1 else Index(whole, (Binary("%", step, IntLit(slots)),))

    def _scores(self, span: Span) -> Iterator[Stmt]:
        s, start = Name("s"), Binary("*", Name("n"), Name("BLOCK_KV"))
        yield Gemm(s, self._slot("q", IntLit(0)), self._slot("k", _T), True, False, False, span=span)
        yield RegionCall("score", (s, start, _TILE), span=span)
        masked = Call("key_masked", (_KEYS, _T))
        yield If(masked, (RegionCall("mask", (s, start, _TILE), span=span),), span=span)
        yield RegionCall("row_update", (s, _ROW, start, _TILE), span=span)
        probs = RegionCall("row_probs", (s, _ROW, Name("r"), start, _TILE), span=span)
        yield For("r", IntLit(0), Name("ROWS"), (probs,), span=span)

    def _outputs(self, span: Span) -> Iterator[Stmt]:
        o, probs = Name("o"), Name("probs")
        yield Cast(probs, Name("s"), span=span)
        yield RegionCall("row_rescale", (o, _ROW, _TILE), span=span)
        yield Gemm(o, probs, self._slot("v", _T), False, True, False, span=span)


def _if_there_is(ahead: int | None, statement: Stmt) -> Iterator[Stmt]:
    """Such a step further on."""
    span = statement.span
    yield If(Binary("<", _plus(_T, ahead), _COUNT), (statement,), span=span) if ahead else statement


def _joined(statements: Iterable[Stmt]) -> Iterator[Stmt]:
    """Neighbours under one condition are under one `if`."""
    last: Stmt | None = None
    for statement in statements:
        if isinstance(last, If) and isinstance(statement, If) and last.condition == statement.condition:
            last = replace(last, then=(*last.then, *statement.then))
            continue
        if last is not None:
            yield last
        last = statement
    if last is not None:
        yield last


def _plus(t: Expr, ahead: int) -> Expr:
    return Binary("+", t, IntLit(ahead))


def _scalar(parameter: ForeignParameter) -> Scalar:
    assert not isinstance(parameter.value, str)
    return Scalar(DType.F32, parameter.value)


def _params_of(function: Function) -> Iterator[Attr]:
    return (n for n in walk(function) if isinstance(n, Attr) and n.base == Name("p"))
