"""The fields of `struct Params` in a kernel text: one a line, each with a comment that says what the host puts there.

const half_t* q;       // @tensor q            address of a tensor of the contract
i64 q_row;             // @stride q 2          its stride along an axis, elements
TensorMap k;           // @tensor_map k        a TMA descriptor of the contract
int len_kv;            // @host Lk             a scalar, CuIR over sizes, macros, scalar captures, SM_COUNT, L2_BYTES
const float* slope;    // @captured slope[Hq]  a captured tensor; `pad 128` pads its last axis
const short* tiles;    // @tiles [B] 128 x 64 where p.doc[tile.b, i] == p.doc[tile.b, j]
                          lists of key tiles: for each batch, 128 rows and keys by 64, which are seen
int* counters;         // @counters 2          ints that are zero between launches
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NoReturn

from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    CType,
    ElementType,
    FieldValue,
    HostValue,
    MapOfTensor,
    ParamField,
    TensorAddress,
    TensorArgument,
    TensorMapSpec,
    TensorStride,
    TileListAddress,
)
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Expr, Node, QueryTileList, TileList
from cubridge.ir.parser import parse_expr
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.walk import rewrite

_STRUCT: Final = re.compile(rb"^[ \t]*struct[ \t]+Params[ \t]*\{[ \t]*(//[^\n]*)?\r?$", re.MULTILINE)
_FIELD: Final = re.compile(r"^(?:const\s+)?(\w+)\s*(\*?)\s*(\w+)\s*;$")
_CAPTURED: Final = re.compile(r"^(\w+)\[(.*)\](?:\s+pad\s+(\d+))?$")
_TILES: Final = re.compile(r"^\[(.*?)\]\s+(.+?)\s+x\s+(.+?)\s+where\s+(.+)$")
_FORMS: Final = "`@tensor`, `@stride`, `@tensor_map`, `@host`, `@captured`, `@tiles`, `@query_tiles` or `@counters`"

_C_TYPES: Final[dict[str, tuple[CType, ...]]] = {
    "tensor": (CType.HALF_POINTER, CType.FLOAT_POINTER),
    "stride": (CType.I64,),
    "tensor_map": (CType.TENSOR_MAP,),
    "host": (CType.INT, CType.I64, CType.FLOAT),
    "captured": (CType.FLOAT_POINTER, CType.INT_POINTER),
    "tiles": (CType.SHORT_POINTER,),
    "query_tiles": (CType.SHORT_POINTER,),
    "counters": (CType.INT_POINTER,),
}


@dataclass(frozen=True, slots=True)
class Names:
    """What annotations may refer to."""

    tensors: tuple[TensorArgument, ...]
    tensor_maps: tuple[TensorMapSpec, ...]


def read_params(source: SourceFile, names: Names) -> tuple[ParamField, ...]:
    """The fields of `struct Params`, in order.
    Errors: CU455 no such struct; CU452 a line that is no field; CU453 an annotation that cannot be read, CU454 one that does not
    fit the field's type or the contract; CU1 a host expression that is not CuIR."""
    fields: list[ParamField] = []
    patched = False
    for span, code, comment in _lines(source):
        if not code:
            patched = comment.startswith("@region params") or (patched and not comment.startswith("@endregion"))
            continue
        field = _field(span, code, comment, names, patched)
        if any(f.name == field.name for f in fields):
            _fail("CU452", f"Params has two fields `{field.name}`", span)
        fields.append(field)
    return tuple(fields)


@lru_cache(maxsize=4096)
def parse_expr_at(text: str, file: SourceFile, offset: int) -> Expr:
    """The CuIR expression that stands at byte `offset` of a file, with places in that file. Errors: CU1."""

    def moved(span: Span) -> Span:
        return Span(file, offset + span.start, offset + span.end)

    def move(node: Node) -> Node:
        return replace(node, span=moved(node.span))

    try:
        return rewrite(parse_expr(text, file.name), move)  # pyright: ignore[reportReturnType]
    except CuError as error:
        raise CuError(*(replace(d, span=moved(d.span), notes=()) for d in error.diagnostics)) from error


def _lines(source: SourceFile) -> Iterator[tuple[Span, str, str]]:
    """Span, code and comment of each line in the struct that is not blank."""
    opening = _STRUCT.search(source.data)
    if opening is None:
        _fail("CU455", f"{source.name} has no `struct Params {{`", Span(source, 0, 0))
    number = source.location(opening.end())[0]
    while number < len(source.line_starts):
        number += 1
        span = Span.whole_line(source, number)
        code, _, comment = span.text.strip().partition("//")
        if code.strip().startswith("}"):
            return
        if code.strip() or comment.strip():
            yield span, code.strip(), comment.strip()
    _fail("CU455", "`struct Params` has no end", Span(source, opening.start(), opening.end()))


def _field(span: Span, code: str, comment: str, names: Names, patched: bool) -> ParamField:
    match = _FIELD.match(code)
    spelled = f"{match[1]}{match[2]}" if match else ""
    if match is None or spelled not in list(CType):
        known = ", ".join(f"`{t}`" for t in CType)
        _fail(
            "CU452",
            f"`{code}` is not a field of Params",
            span,
            f"write `TYPE NAME;`, one field a line, with a type of {known}",
        )
    word, _, rest = comment.partition(" ")
    kind = word.removeprefix("@")
    if not word.startswith("@") or kind not in _READERS:
        _fail("CU453", f"`{match[3]}` does not say what the host puts there", span, f"add a comment with {_FORMS}")
    c_type = CType(spelled)
    if c_type not in _C_TYPES[kind]:
        fitting = " or ".join(f"`{t}`" for t in _C_TYPES[kind])
        _fail("CU454", f"`@{kind}` fills a {fitting}, not a `{c_type}`", span)
    where = _Annotation(span, rest.strip(), c_type, names)
    value = _READERS[kind](where)
    if kind in ("tensor", "tensor_map") and match[3] != where.text:
        _fail("CU454", f"the field of `@{kind} {where.text}` is called `{where.text}`, not `{match[3]}`", span)
    return ParamField(match[3], c_type, value, patched, span)


# ---- annotations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Annotation:
    """The text after the keyword, and what it is read against."""

    span: Span
    text: str
    c_type: CType
    names: Names

    def expr(self, text: str) -> Expr:
        """The expression `text`, which stands in this annotation."""
        if not text.strip():
            _fail("CU453", "an expression is missing", self.span)
        at = self.span.text.rindex(text)
        return parse_expr_at(text, self.span.file, self.span.start + len(self.span.text[:at].encode()))

    def tensor(self, name: str) -> TensorArgument:
        found = next((t for t in self.names.tensors if t.name == name), None)
        if found is None:
            listed = ", ".join(t.name for t in self.names.tensors)
            _fail("CU454", f"the contract has no tensor `{name}`", self.span, f"it has {listed}")
        return found


def _tensor(a: _Annotation) -> FieldValue:
    tensor = a.tensor(a.text)
    wanted = CType.HALF_POINTER if tensor.element is ElementType.HALF else CType.FLOAT_POINTER
    if a.c_type is not wanted:
        _fail("CU454", f"`{tensor.name}` has {tensor.element} elements; the field should be a `{wanted}`", a.span)
    return TensorAddress(tensor.name)


def _stride(a: _Annotation) -> FieldValue:
    name, _, axis = a.text.partition(" ")
    if not axis.strip().isdigit():
        _fail("CU453", "`@stride` takes a tensor and an axis", a.span)
    tensor = a.tensor(name)
    if int(axis) >= len(tensor.shape):
        _fail("CU454", f"`{name}` has {len(tensor.shape)} axes, no axis {int(axis)}", a.span)
    return TensorStride(name, int(axis))


def _tensor_map(a: _Annotation) -> FieldValue:
    if all(m.name != a.text for m in a.names.tensor_maps):
        _fail("CU454", f"the contract has no tensor map `{a.text}`", a.span)
    return MapOfTensor(a.text)


def _host(a: _Annotation) -> FieldValue:
    return HostValue(a.expr(a.text))


def _captured(a: _Annotation) -> FieldValue:
    match = _CAPTURED.match(a.text)
    if match is None or match[3] == "0":
        _fail("CU453", "`@captured` takes NAME[EXTENTS], and `pad N` with N > 0", a.span)
    extents = [text for text in _split(match[2]) if text.strip()]
    return CapturedAddress(match[1], tuple(a.expr(text.strip()) for text in extents), int(match[3] or 1))


def _tiles(a: _Annotation, kind: type[TileList] = TileList) -> FieldValue:
    match = _TILES.match(a.text)
    if match is None:
        _fail("CU453", "`@tiles`, `@query_tiles` take [AXES] ROWS x KEYS where PREDICATE", a.span)
    axes = tuple(a.expr(text.strip()) for text in _split(match[1]) if text.strip())
    return TileListAddress(kind(a.expr(match[2]), a.expr(match[3]), a.expr(match[4]), axes, span=a.span))


def _query_tiles(a: _Annotation) -> FieldValue:
    return _tiles(a, QueryTileList)


def _counters(a: _Annotation) -> FieldValue:
    if not a.text.isdigit() or int(a.text) == 0:
        _fail("CU453", "`@counters` takes how many", a.span)
    return CounterAddress(int(a.text))


_READERS: Final[dict[str, Callable[[_Annotation], FieldValue]]] = {
    "tensor": _tensor,
    "stride": _stride,
    "tensor_map": _tensor_map,
    "host": _host,
    "captured": _captured,
    "tiles": _tiles,
    "query_tiles": _query_tiles,
    "counters": _counters,
}


def _split(text: str) -> list[str]:
    """`text` at its commas outside parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _fail(code: str, message: str, span: Span, help: str | None = None) -> NoReturn:
    raise CuError(Diagnostic(code, message, span, help=help))
