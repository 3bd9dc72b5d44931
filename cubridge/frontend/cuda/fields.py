"""The fields of a kernel's structs: parameters, shared memory, values per query tile, state per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cubridge.frontend.cuda.context import Context
from cubridge.frontend.cuda.expressions import Expressions
from cubridge.frontend.cuda.geometry import table_expr
from cubridge.frontend.cuda.syntax import CExpr, CType, FieldOf
from cubridge.frontend.cuda.values import SCALAR_TYPES, Kind, refusal
from cubridge.frontend.cuda.views import MISFIT
from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    ElementType,
    HostValue,
    MapOfTensor,
    ParamField,
    TensorAddress,
    TensorStride,
    TileListAddress,
    Unread,
)
from cubridge.ir.contract import (
    CType as HostType,
)
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import (
    NAMED_CONSTANTS,
    Assign,
    Attr,
    Barrier,
    Call,
    Captured,
    Counters,
    Element,
    Expr,
    Field,
    FieldType,
    Function,
    Global,
    If,
    IntLit,
    Name,
    Node,
    Partial,
    Row,
    Scalar,
    SharedValue,
    Stmt,
    TensorMap,
    Tile,
)
from cubridge.ir.source import Span
from cubridge.ir.types import DType
from cubridge.ir.walk import children, walk


def param_fields(context: Context) -> Iterator[Field]:
    """CuIR's parameters, fixed ones first: the fields of `Params` but those that CuIR abstracts away. Errors: CU428 where the
    contract and the text do not list the same fields."""
    struct = context.struct(Kind.PARAMS)
    declared = [f.name for f in struct.fields]
    listed = [p.name for p in context.contract.params]
    if declared != listed:
        odd = next(iter(set(declared) ^ set(listed)), declared[0] if declared else "")
        raise CuError(Diagnostic(MISFIT, f"the launch contract was read for other parameters: `{odd}`", struct.span))
    for param in sorted(context.contract.params, key=lambda p: p.patched):
        kind = _param_type(context, param)
        if kind is not None:
            yield Field(param.name, kind, not param.patched, span=param.span)


_HOST_DTYPES: Final = {HostType.FLOAT: DType.F32, HostType.I64: DType.I64}


def _param_type(context: Context, param: ParamField) -> FieldType | None:
    match param.value:
        case TensorAddress(name):
            tensor = context.contract.tensor(name)
            dtype = context.instance.dtype if tensor.element is ElementType.HALF else DType.F32
            return Global(dtype, tensor.shape, tensor.optional, span=param.span)
        case MapOfTensor(name):
            shape = context.contract.tensor(context.contract.tensor_map(name).tensor).shape
            return TensorMap(context.instance.dtype, shape, span=param.span)
        case TensorStride() | Unread():
            return None
        case HostValue(host):
            _use_constants(context, host, param.span)
            dtype = _HOST_DTYPES.get(param.c_type, DType.I32)
            return None if param.size else Scalar(dtype, host, span=param.span)
        case CapturedAddress(name, extents, pad):
            dtype = DType.F32 if param.c_type is HostType.FLOAT_POINTER else DType.I32
            return Captured(dtype, extents, pad, of=None if name == param.name else name, span=param.span)
        case TileListAddress(kind):
            _use_constants(context, kind, param.span)
            return kind
        case CounterAddress(count):
            return Counters(IntLit(count), span=param.span)


def _use_constants(context: Context, host: Node, place: Span) -> None:
    """The constants of the text that what the host computes names are constants of the kernel."""
    for name in dict.fromkeys(n.id for n in walk(host) if isinstance(n, Name)):
        if name not in NAMED_CONSTANTS and context.constants.is_constant(name):
            context.constants.use(name, place)


def shared_fields(lift: Expressions) -> Iterator[Field]:
    struct = lift.context.shared
    for field in () if struct is None else struct.fields:
        yield Field(field.name, _shared_type(lift, lift.resolve(field.type), field), span=field.span)


def _shared_type(lift: Expressions, kind: CType, field: FieldOf) -> FieldType:
    place = field.span
    slots = _slots(lift, kind.dims, place)
    lemma = lift.context.type_lemma(kind)
    match "" if lemma is None else lemma.means:
        case "tile" if lemma is not None and len(kind.args) == len(lemma.params):
            given = dict(zip(lemma.params, (_extent(lift, a) for a in kind.args), strict=True))
            rows, cols = (_tile_extent(lift, text, given, place) for text in (lemma.rows, lemma.cols))
            dtype = DType(lemma.element) if lemma.element else lift.context.instance.dtype
            return Tile(dtype, rows, cols, slots, lemma.swizzle, span=place)
        case "barrier":
            return Barrier(slots, span=place)
        case "" if kind.name in SCALAR_TYPES and not kind.dims and not kind.pointers:
            return SharedValue(SCALAR_TYPES[kind.name], span=place)
        case _:
            raise refusal(f"shared memory of type `{kind}` has no CuIR meaning", place)


def _slots(lift: Expressions, dims: tuple[CExpr, ...], place: Span) -> Expr | None:
    if len(dims) > 1:
        raise refusal("shared memory with two subscripts has no CuIR meaning", place)
    return _extent(lift, dims[0]) if dims else None


def _tile_extent(lift: Expressions, text: str, given: Mapping[str, Expr], place: Span) -> Expr:
    """An extent as the table says it: an argument of the type, or an expression of constants."""
    return given[text] if text in given else table_expr(lift.context, text, place)


def _extent(lift: Expressions, extent: CExpr) -> Expr:
    return lift.scalar(extent).expr


def tile_fields(lift: Expressions) -> Iterator[Field]:
    """Values per query tile inside the region `tile_state`."""
    for field in _marked(lift.context, Kind.TILE, "tile_state"):
        dtype = lift.dtype(field.type, field.span)
        kind = Row(dtype, span=field.span) if lift.axes(field.type, field.span) else Scalar(dtype, span=field.span)
        yield Field(field.name, kind, span=field.span)


def row_fields(lift: Expressions, regions: Iterable[Function]) -> Iterator[Field]:
    """The state per row. What a partial sum is ever stored in is a partial sum."""
    partial = partial_fields(regions)
    for field in _marked(lift.context, Kind.ROW, "row_state"):
        dtype = lift.dtype(field.type, field.span)
        if not lift.axes(field.type, field.span):
            raise refusal("a value per row is an array over the rows", field.span)
        cls = Partial if field.name in partial else Row
        yield Field(field.name, cls(dtype, span=field.span), span=field.span)


def score_fields(lift: Expressions) -> Iterator[Field]:
    """What is kept of each score."""
    for field in _marked(lift.context, Kind.KEPT, "score_state"):
        if len(lift.axes(field.type, field.span)) != 2:
            raise refusal("a value per score is an array over rows and columns", field.span)
        yield Field(field.name, Element(lift.dtype(field.type, field.span), span=field.span), span=field.span)


def _marked(context: Context, kind: Kind, region: str) -> Iterator[FieldOf]:
    if region not in context.family.sources:
        return iter(())
    inside = context.source_map.region(region).span
    return (f for f in context.struct(kind).fields if inside.start <= f.span.start < inside.end)


def partial_fields(regions: Iterable[Function]) -> frozenset[str]:
    """Fields of the row state that some region stores a partial sum into."""
    assigns = [a for r in regions for a in _assigns(r.body)]
    found: frozenset[Expr] = frozenset()
    while True:
        more = frozenset(a.target for a in assigns if _is_partial(a.value, found))
        if more <= found:
            return frozenset(t.name for t in found if isinstance(t, Attr))
        found |= more


def _assigns(body: Iterable[Stmt]) -> Iterator[Assign]:
    for statement in body:
        if isinstance(statement, Assign):
            yield statement
        elif isinstance(statement, If):
            yield from _assigns((*statement.then, *statement.orelse))


def _is_partial(expr: Expr, known: frozenset[Expr]) -> bool:
    match expr:
        case Call("partial_rowsum"):
            return True
        case Call("add_lanes"):
            return False
        case _ if expr in known:
            return True
        case _:
            return any(_is_partial(c, known) for c in children(expr) if isinstance(c, Expr))
