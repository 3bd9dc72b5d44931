"""The fields of the regions that are parts of structs: one a line, with what the host puts there as a comment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from cubridge.backend.text.emit_expr import C_TYPES
from cubridge.backend.text.names import check_name
from cubridge.ir.capture_names import capture_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Captured, Element, Field, Partial, QueryTileList, Row, Scalar, TileList
from cubridge.ir.printer import print_expr
from cubridge.ir.types import DType, ValueType

_DECLARATOR: Final = re.compile(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)[,;]")
_COMMENT: Final = re.compile(r"//.*|/\*.*?\*/")
PARTIAL_MARK: Final = "PARTIAL over lanes"


def emit_field(item: Field, rows: str = "ROWS", columns: str = "S_COLS") -> tuple[str, str]:
    """Declaration and comment of a field. Errors: CU603 for a type that the struct cannot hold, CU604 for its name."""
    check_name(item.name, "field", item.span)
    match item.type:
        case Scalar(dtype, host) if item.fixed:
            return f"{C_TYPES[dtype]} {item.name};", "" if host is None else f"@host {print_expr(host)}"
        case Scalar(DType.F32 | DType.I32 | DType.I64 as dtype, host) if host is not None:
            return f"{C_TYPES[dtype]} {item.name};", f"@host {print_expr(host)}"
        case Captured(DType.F32 | DType.I32 as dtype, extents, pad):
            text = f"@captured {capture_of(item)}[{', '.join(print_expr(e) for e in extents)}]"
            return f"const {C_TYPES[dtype]}* {item.name};", text + (f" pad {pad}" if pad != 1 else "")
        case TileList(list_rows, keys, keep, axes):
            over = f"[{', '.join(map(print_expr, axes))}] {print_expr(list_rows)} x {print_expr(keys)}"
            word = "query_tiles" if isinstance(item.type, QueryTileList) else "tiles"
            return f"const short* {item.name};", f"@{word} {over} where {print_expr(keep)}"
        case Row(dtype):
            return f"{C_TYPES[dtype]} {item.name}[{rows}];", ""
        case Element(dtype):
            return f"{C_TYPES[dtype]} {item.name}[{rows}][{columns}];", ""
        case Partial(dtype):
            return f"{C_TYPES[dtype]} {item.name}[{rows}];", PARTIAL_MARK
        case _:
            what = f"field `{item.name}` has a type that the kernel's struct cannot hold"
            raise CuError(Diagnostic("CU603", what, item.span))


def emit_struct(name: str, fields: Mapping[str, ValueType]) -> str:
    """A struct on one line, neighbours of one type together."""
    groups = groupby(fields, lambda f: C_TYPES[fields[f].dtype])
    members = (f"{c_type} {', '.join(group)};" for c_type, group in groups)
    return f"struct {name} {{ {' '.join(members)} }};"


# ---- lines of a region -----------------------------------------------------------------------------------------------


@dataclass
class _Entry:
    """Lines that belong together: comments and the declaration under them, or comments alone (no names)."""

    lines: list[str]
    names: list[str] = field(default_factory=list)


def emit_fields(
    text: str, source: Sequence[Field], target: Sequence[Field], indent: str, column: int | None, line_end: str = ""
) -> str:
    """The lines of a region whose fields go from `source` to `target`: lines of unchanged fields stay as they are, and so does
    what is no field of either. `column`: where comments of neighbouring lines start; `line_end`: what stands before LF.
    Errors: CU603, CU604, as `emit_field`."""
    entries = _entries(text)
    known = {f.name: f for f in source}
    place = {e.names[0]: at for at, e in enumerate(entries) if len(e.names) == 1}
    at = 0
    out: list[str] = []
    for item in target:
        if repr(known.get(item.name)) == repr(item) and item.name in place:
            mine = place[item.name]
            out += _foreign(entries[at:mine], known)
            out += entries[mine].lines
            at = max(at, mine + 1)
        else:
            out.append(_line(item, indent, _comment_column(entries, column)) + line_end)
    out += _foreign(entries[at:], known)
    return "".join(line + "\n" for line in out)


def _entries(text: str) -> list[_Entry]:
    out: list[_Entry] = []
    waiting: list[str] = []
    for line in text.split("\n")[:-1] if text.endswith("\n") else text.split("\n"):
        code = _COMMENT.sub("", line)
        waiting.append(line)
        if code.strip():
            out.append(_Entry(waiting, [m.group(1) for m in _DECLARATOR.finditer(code)]))
            waiting = []
    return [*out, _Entry(waiting)] if waiting and text else out


def _foreign(entries: Sequence[_Entry], known: dict[str, Field]) -> list[str]:
    """Lines that declare nothing CuIR knows."""
    return [line for e in entries if not any(name in known for name in e.names) for line in e.lines]


def _comment_column(entries: Sequence[_Entry], neighbour: int | None) -> int | None:
    columns = [line.find("//") for e in entries if e.names for line in e.lines[-1:] if "//" in line]
    return columns[0] if columns else neighbour


def _line(item: Field, indent: str, column: int | None) -> str:
    declaration, comment = emit_field(item)
    line = indent + declaration
    if not comment:
        return line
    gap = max(2, column - len(line)) if column is not None else 2
    return f"{line}{' ' * gap}// {comment}"
