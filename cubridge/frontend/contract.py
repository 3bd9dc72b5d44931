"""Reads a launch contract: the TOML file beside a kernel, and the fields of `Params` in the kernel's text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cubridge.frontend.contract_checks import check_contract, check_identifier
from cubridge.frontend.contract_params import Names, read_params
from cubridge.frontend.contract_table import Table
from cubridge.ir.contract import ElementType, LaunchContract, MacroChoice, Role, TensorArgument, TensorMapSpec
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.families import FAMILIES, FORWARD
from cubridge.ir.hardware import ARCHITECTURES
from cubridge.ir.nodes import Name
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

CONTRACT_VERSION: Final = 1
_DTYPES: Final = {"bf16": DType.BF16, "fp16": DType.F16}
_KEYS: Final = frozenset(
    {
        "version",
        "entry",
        "source",
        "include",
        "arch",
        "newer_archs",
        "head_dims",
        "grid",
        "block",
        "shared_bytes",
        "query_tile",
        "key_tile",
        "macros",
        "dtypes",
        "tensors",
        "tensor_maps",
        "patch",
        "pass",
    }
)
_Q, _K, _ROWS = ("B", "Hq", "Lq", "D"), ("B", "Hk", "Lk", "D"), ("B", "Hq", "Lq")
_TENSORS: Final = {
    "q": (Role.INPUT, _Q),
    "k": (Role.INPUT, _K),
    "v": (Role.INPUT, _K),
    "o": (Role.OUTPUT, _Q),
    "lse": (Role.OUTPUT, _ROWS),
}
"""What a kernel has, as callers give it: a role and axes."""
_OF_BACKWARD: Final[dict[str, tuple[str, ...] | None]] = {
    **dict.fromkeys(("q", "o", "d_o", "dq"), _Q),
    **dict.fromkeys(("k", "v", "dk", "dv"), _K),
    **dict.fromkeys(("lse", "d_lse"), _ROWS),
    **dict.fromkeys(("lse_rows", "delta", "dq_sum")),
}
"""Tensors of the kernels of a backward pass, of which each has some, with their axes: one's output is another's input. What they
hand on to each other has axes of their own."""
_TENSOR_KEYS: Final = frozenset({"role", "element", "shape", "optional", "contiguous", "align_bytes"})
_ALIGNMENTS: Final = tuple(1 << n for n in range(9))
_MAP_KEYS: Final = frozenset({"tensor", "box", "swizzle_bytes"})


def contract_path(kernel: Path) -> Path:
    """Where the contract of a kernel text is: beside it, with the suffix `.toml`."""
    return kernel.with_suffix(".toml")


def read_contract(path: Path, source: SourceFile | None = None) -> LaunchContract:
    """The contract at `path`; `source` is the kernel text where it is not the file that the contract names (a patched one).
    Errors: CU451 a file, key or value that is not a contract's; CU841 one of a foreign kernel; CU452 to CU455 as
    `read_params`; CU455 no kernel of this name."""
    file, kernel = _read(path), source
    table = Table.load(file, CONTRACT_VERSION)
    if "kind" in table.data:
        help = f"`cuirc lift FILE.cu --contract {path.name}` reads the kernel from its runs"
        message = "this contract is of a kernel in another dialect, which has no regions to read or patch"
        raise CuError(Diagnostic("CU841", message, table.span("kind"), help=help))
    table.check_keys(_KEYS)
    if kernel is None:
        kernel = _read(path.parent / table.text("source"))
    arch, newer_archs = _arch(table)
    family = FAMILIES[table.choice("pass", list(FAMILIES), FORWARD)]
    backward = family.name != FORWARD
    tensors = tuple(_tensor(name, entry, backward) for name, entry in table.tables("tensors"))
    missing = [name for name in _TENSORS if name != "lse" and all(t.name != name for t in tensors)]
    if missing and not backward:
        table.table("tensors").fail(f"there is no tensor `{missing[0]}`")
    maps = tuple(_tensor_map(name, entry, tensors) for name, entry in table.tables("tensor_maps"))
    entry = table.text("entry")
    check_identifier(entry, "the entry", table.span("entry"))
    for macro in table.table("macros").data:
        check_identifier(macro, "the macro", table.table("macros").span(macro))
    if not re.search(rb"\b" + re.escape(entry.encode()) + rb"\s*\(", kernel.data):
        raise CuError(
            Diagnostic("CU455", f"{kernel.name} has no kernel `{entry}`, which its contract names", table.span("entry"))
        )
    contract = LaunchContract(
        entry=entry,
        source=table.text("source"),
        include=table.text("include"),
        arch=arch,
        newer_archs=newer_archs,
        head_dims=_head_dims(table),
        dtypes=tuple(_dtype(name, entry, table.table("macros")) for name, entry in table.tables("dtypes")),
        macros=tuple(MacroChoice(name, exprs) for name, exprs in table.table("macros").all_exprs()),
        tensors=tensors,
        tensor_maps=maps,
        params=read_params(kernel, Names(tensors, maps)),
        block=table.expr("block"),
        grid=table.expr("grid"),
        shared_bytes=table.expr("shared_bytes"),
        query_tile=table.expr("query_tile"),
        key_tile=table.expr("key_tile"),
        family=family.name,
        patchable=_patchable(table.table("patch"), family.sources),
        equal_work=_equal_work(kernel),
        places={
            "head_dims": table.span("head_dims"),
            **{f"dtypes.{name}": table.table("dtypes").span(name) for name, _ in table.tables("dtypes")},
        },
    )
    check_contract(contract)
    return contract


def _head_dims(table: Table) -> tuple[int, ...]:
    found = tuple(table.integers("head_dims"))
    if not found or min(found) < 1:
        table.fail("`head_dims` lists no positive integers", "head_dims")
    return found


def _read(path: Path) -> SourceFile:
    try:
        return SourceFile.read(path)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        help = "a kernel needs a launch contract beside it: FILE.toml for FILE.cu" if path.suffix == ".toml" else None
        raise CuError(Diagnostic("CU451", message, help=help)) from error


def _arch(table: Table) -> tuple[str, bool]:
    arch, newer = table.choice("arch", list(ARCHITECTURES)), table.flag("newer_archs")
    if newer and arch.endswith("a"):
        table.fail(f"`{arch}` has instructions that no later architecture has: `newer_archs` is false", "newer_archs")
    return arch, newer


def _dtype(name: str, table: Table, macros: Table) -> tuple[DType, tuple[tuple[str, int], ...]]:
    if name not in _DTYPES:
        table.fail(f"no element type `{name}`; there are {', '.join(_DTYPES)}")
    for macro in table.data:
        if macro in macros.data:
            table.fail(f"the macro `{macro}` has a value in [macros] already")
    return _DTYPES[name], tuple((macro, table.integer(macro)) for macro in table.data)


def _axes(name: str, table: Table) -> tuple[str, ...]:
    role, axes = _TENSORS.get(name, (None, ()))
    if role != table.choice("role", list(Role)):
        table.fail(f"`{name}` is not one of a kernel's tensors: inputs q, k, v; outputs o and, if it has one, lse")
    return axes


def _axes_of_backward(name: str, table: Table) -> tuple[str, ...] | None:
    if name not in _OF_BACKWARD:
        table.fail(f"`{name}` is not one of a backward kernel's tensors: {', '.join(_OF_BACKWARD)}")
    return _OF_BACKWARD[name]


def _tensor(name: str, table: Table, backward: bool) -> TensorArgument:
    table.check_keys(_TENSOR_KEYS)
    axes = _axes_of_backward(name, table) if backward else _axes(name, table)
    if axes is not None and table.exprs("shape") != tuple(map(Name, axes)):
        table.fail(f"`{name}` is [{', '.join(axes)}]", "shape")
    if table.flag("optional", False) and (backward or name != "lse"):
        table.fail(f"`{name}` is there in every launch: only `lse` is optional", "optional")
    if table.integer("align_bytes", 16) not in _ALIGNMENTS:
        table.fail("`align_bytes` is a power of 2 up to 256", "align_bytes")
    return TensorArgument(
        name,
        Role(table.choice("role", list(Role))),
        ElementType(table.choice("element", list(ElementType), ElementType.HALF)),
        table.exprs("shape"),
        table.flag("optional", False),
        table.flag("contiguous", False),
        table.integer("align_bytes", 16),
        table.span("align_bytes"),
    )


def _tensor_map(name: str, table: Table, tensors: tuple[TensorArgument, ...]) -> TensorMapSpec:
    table.check_keys(_MAP_KEYS)
    tensor = table.choice("tensor", [t.name for t in tensors])
    box = table.exprs("box")
    rank = next(len(t.shape) for t in tensors if t.name == tensor)
    if len(box) != rank:
        table.fail(f"the box has {len(box)} axes, `{tensor}` has {rank}", "box")
    if name != tensor:
        table.fail(f"the tensor map `{name}` is of `{tensor}`; a map is called as its tensor", "tensor")
    return TensorMapSpec(name, tensor, box, table.integer("swizzle_bytes"), table.span("swizzle_bytes"))


def _patchable(table: Table, sources: tuple[str, ...]) -> tuple[str, ...]:
    table.check_keys(frozenset({"regions"}))
    regions = table.texts("regions")
    for name in regions:
        if name not in sources:
            table.fail(f"no region `{name}`; there are {', '.join(sources)}", "regions")
    return tuple(regions)


def _equal_work(kernel: SourceFile) -> bool:
    """Region kv_range uses its work tile nowhere but in its argument list."""
    region = re.search(rb"//\s*@region\s+kv_range\b(.*?)//\s*@endregion", kernel.data, re.DOTALL)
    if region is None:
        return False
    code = re.sub(rb"//[^\n]*", b"", region[1])
    tile = re.search(rb"\bkey_sequence\s*\(\s*const\s+\w+\s*&\s*(\w+)", code)
    return tile is not None and len(re.findall(rb"\b" + tile[1] + rb"\b", code)) == 1
