"""Reads the contract of a foreign kernel: a TOML file with `kind = "foreign"`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cubridge.frontend.contract_params import parse_expr_at
from cubridge.frontend.contract_table import Table
from cubridge.ir.contract import ElementType, Role
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract, ForeignParameter, ForeignStruct, ForeignTensor, ParameterKind
from cubridge.ir.hardware import ARCHITECTURES
from cubridge.ir.nodes import Expr, IntLit
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Shape
from cubridge.ir.types import DTYPES

VERSION: Final = 1
KIND: Final = "foreign"
TENSORS: Final = ("q", "k", "v", "o", "lse")
_KEYS: Final = frozenset(
    {
        "version", "kind", "base", "entry", "arch", "dtype", "head_dim", "options", "include", "headers", "standard_headers",
        "grid", "threads", "shared_bytes", "tensors", "parameters", "shapes",
    }
)  # fmt: skip
_STRUCT: Final = "struct"
"""The key of a structure's type, which can be no field's name."""
_SIZES: Final = 5
_DEFAULT_SHAPES: Final = ((1, 2, 1, 70, 53), (2, 2, 2, 64, 48), (1, 4, 2, 130, 40))
"""B, Hq, Hk, Lq, Lk: tails, whole tiles, groups of heads, and more rows than keys."""


def read_foreign_contract(path: Path) -> ForeignContract:
    """Errors: CU451 a file, key or value that is none of such a contract's; CU1 an expression."""
    table = _load(path, ())
    table.check_keys(_KEYS)
    table.choice("kind", [KIND])
    tensors = tuple(_tensor(name, entry) for name, entry in table.tables("tensors"))
    missing = [name for name in TENSORS[:4] if all(t.name != name for t in tensors)]
    if missing:
        table.fail(f"there is no tensor `{missing[0]}`", "tensors")
    head_dim = table.integer("head_dim")
    return ForeignContract(
        entry=table.text("entry"),
        arch=table.choice("arch", list(ARCHITECTURES)),
        dtype=DTYPES[table.choice("dtype", list(DTYPES))],
        head_dim=head_dim,
        options=tuple(table.texts("options")) if "options" in table.data else (),
        include=tuple(table.texts("include")) if "include" in table.data else (),
        headers=_headers(table) if "headers" in table.data else (),
        standard_headers=table.flag("standard_headers", False),
        grid=_grid(table),
        threads=table.integer("threads"),
        shared_bytes=table.integer("shared_bytes", 0),
        tensors=tensors,
        parameters=_parameters(table.table("parameters"), [t.name for t in tensors]),
        shapes=_shapes(table, head_dim),
        places={key: table.span(key) for key in _KEYS},
    )


def _load(path: Path, above: tuple[Path, ...]) -> Table:
    """Over its base, which may have one too."""
    try:
        table = Table.load(SourceFile.read(path), VERSION)
    except OSError as error:
        raise CuError(Diagnostic("CU451", f"cannot read {path}: {error.strerror}")) from error
    if "base" not in table.data:
        return table
    base = path.parent / table.text("base")
    if base in above:
        table.fail(f"`{base.name}` is its own base", "base")
    return table.over(_load(base, (*above, base)))


def _headers(table: Table) -> tuple[Path, ...]:
    """Relative to the file that names them."""
    folder = Path(table.span("headers").file.name).parent
    return tuple(folder / name for name in table.texts("headers"))


def _tensor(name: str, table: Table) -> ForeignTensor:
    table.check_keys(frozenset({"role", "element", "shape"}))
    if name not in TENSORS:
        table.fail(f"`{name}` is not one of a kernel's tensors: {', '.join(TENSORS)}")
    role = Role(table.choice("role", [Role.INPUT, Role.OUTPUT]))
    element = ElementType(table.choice("element", list(ElementType), ElementType.HALF))
    return ForeignTensor(name, role, element, table.exprs("shape"))


def _grid(table: Table) -> tuple[Expr, Expr, Expr]:
    found = table.exprs("grid")
    if len(found) > 3:
        table.fail("a grid has at most three axes", "grid")
    x, y, z = (*found, *(IntLit(1),) * (3 - len(found)))
    return x, y, z


def _parameters(table: Table, tensors: list[str]) -> tuple[ForeignParameter | ForeignStruct, ...]:
    if not table.data:
        table.fail("the entry's parameters are missing")
    found = tuple(
        _struct(name, table.table(name), tensors) if isinstance(value, dict) else _parameter(name, "", table, tensors)
        for name, value in table.data.items()
    )
    for name in [p.name for p in found if isinstance(p, ForeignStruct) and not p.fields]:
        table.fail(f"no field of `{name}` has a value", name)
    return found


def _struct(name: str, table: Table, tensors: list[str]) -> ForeignStruct:
    return ForeignStruct(name, table.text(_STRUCT), tuple(_fields(f"{name}.", table, tensors)), table.span(_STRUCT))


def _fields(prefix: str, table: Table, tensors: list[str]) -> Iterator[ForeignParameter]:
    """Those of inner structures by their paths."""
    for name, value in table.data.items():
        if isinstance(value, dict):
            yield from _fields(f"{prefix}{name}.", table.table(name), tensors)
        elif name != _STRUCT:
            yield _parameter(name, prefix, table, tensors)


def _parameter(key: str, prefix: str, table: Table, tensors: list[str]) -> ForeignParameter:
    word, _, rest = table.text(key).partition(" ")
    rest, span, name = rest.strip(), table.span(key), prefix + key
    if word not in list(ParameterKind) or not rest:
        kinds = " or ".join(f"`{kind} EXPR`" for kind in ParameterKind if kind is not ParameterKind.TENSOR)
        table.fail(f"`{key}` is `tensor NAME`, {kinds.replace(' or ', ', ', len(ParameterKind) - 3)}", key)
    kind = ParameterKind(word)
    if kind is ParameterKind.TENSOR:
        return ForeignParameter(
            name, kind, rest if rest in tensors else table.fail(f"there is no tensor `{rest}`", key), span
        )
    at = max(span.text.find(rest), 0)
    return ForeignParameter(name, kind, parse_expr_at(rest, span.file, span.start + len(span.text[:at].encode())), span)


def _shapes(table: Table, head_dim: int) -> tuple[Shape, ...]:
    if "shapes" not in table.data:
        return tuple(Shape(*sizes, head_dim) for sizes in _DEFAULT_SHAPES)
    return tuple(_shape(text, table, head_dim) for text in table.texts("shapes"))


def _shape(text: str, table: Table, head_dim: int) -> Shape:
    parts = text.split(",")
    if len(parts) != _SIZES or not all(p.strip().isdecimal() and int(p) for p in parts):
        table.fail(f"`{text}` is not five sizes B,Hq,Hk,Lq,Lk", "shapes")
    b, hq, hk, lq, lk = map(int, parts)
    return Shape(b, hq, hk, lq, lk, head_dim)
