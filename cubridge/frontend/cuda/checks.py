"""What must hold of a text and its contract besides what lifting reads: macros, static assertions, block size, TMA boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from tree_sitter import Node

from cubridge.frontend.cuda.context import Context
from cubridge.frontend.cuda.forms import form_faults
from cubridge.frontend.cuda.launches import launch_faults
from cubridge.frontend.cuda.macros import Macro
from cubridge.frontend.cuda.text import ParsedText, TranslationUnit, first_line
from cubridge.frontend.cuda.views import MISFIT
from cubridge.ir.contract import ElementType, Instantiation, LaunchContract, MapOfTensor, TensorAddress, instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.evaluate import known_number
from cubridge.ir.hardware import SHARED_BYTES
from cubridge.ir.nodes import CopyAsync, Expr, Kernel, Name, Store, StoreAsync, Tile
from cubridge.ir.source import Span
from cubridge.ir.tile_shape import head_dim, key_tile, query_tile
from cubridge.ir.types import DTYPES
from cubridge.ir.walk import field_of, walk
from cubridge.verify.budget import laid_out

_HALVES_OF_A_PANEL: Final = 64
_MOVED_BYTES: Final = 16
_STRING: Final = re.compile(rb'"[^"\n]*"')
_HALF: Final = re.compile(rb"\b(bf16|f16)(?:x2)?\b")
_WORD: Final = re.compile(rb"[A-Za-z_]\w*")


def text_faults(unit: TranslationUnit, contract: LaunchContract) -> Iterator[Diagnostic]:
    """CU421 for macros that stand for names, types or keywords, and for conditions on names that only a compiler defines; CU423
    for what a kernel text does not consist of."""
    for text in unit.texts:
        yield from _macro_faults(unit, text)
    names = _macro_names(contract)
    for tested in unit.tested:
        if tested.name not in names:
            message = f"the condition asks for `{tested.name}`, which neither the contract nor the text above defines"
            help = "decide by macros of the contract: compilers disagree about others"
            yield Diagnostic("CU421", message, tested.span, help=help)
    yield from form_faults(unit)


def _macro_names(contract: LaunchContract) -> frozenset[str]:
    """What some instantiation defines."""
    forms = (instantiations(contract, dtype, contract.head_dims[0])[0] for dtype, _ in contract.dtypes)
    return frozenset(name for form in forms for name, _ in form.macros)


def _macro_faults(unit: TranslationUnit, text: ParsedText) -> Iterator[Diagnostic]:
    """Where a macro is anything but an expression: it would rename what the text says."""
    for match in _WORD.finditer(text.masked):
        macro = unit.macros.get(match[0].decode("latin-1"))
        if macro is None:
            continue
        node = text.tree.root_node.descendant_for_byte_range(match.start(), match.end())
        if node is not None and not _is_expression(node, macro) and "string" not in node.type:
            notes = (Note("it is defined here", macro.span),)
            message = f"the macro `{macro.name}` stands for a name or a type here"
            yield Diagnostic(
                "CU421", message, Span(text.file, match.start(), match.end()), notes, "write what it stands for"
            )


def _is_expression(node: Node, macro: Macro) -> bool:
    if node.type == "type_identifier":  # the tree takes a constant among template arguments for a type
        parent = node.parent
        return parent is not None and parent.type == "type_descriptor" and macro.params is None
    if node.type != "identifier" or node.parent is None:
        return False
    is_called = node.parent.type == "call_expression" and node.parent.child_by_field_name("function") == node
    declares = node.parent.child_by_field_name("declarator") == node
    return not declares and is_called == (macro.params is not None)


def assertion_faults(context: Context) -> Iterator[Diagnostic]:
    """CU421 for static assertions at file scope that do not hold for this instantiation."""
    for text, node, reader in context.program.assertions:
        condition = node.child_by_field_name("condition")
        try:
            holds = condition is None or context.constants.evaluate(reader.expr(condition))
        except CuError:
            holds = True  # of types or sizes: the compiler's
        if not holds:
            message = "this static assertion does not hold for the instantiation"
            yield Diagnostic("CU421", message, first_line(text.span(node)))


def contract_faults(kernel: Kernel, contract: LaunchContract, instance: Instantiation) -> Iterator[Diagnostic]:
    """CU428 where the launch contract says another block size, another grid, other tiles or elements, less alignment or shared
    memory, or another box of a TMA copy, than the text needs; each at the place in the contract."""
    values: dict[str, int | float] = {"D": head_dim(kernel) or _chosen(contract, instance), **dict(instance.macros)}
    constants = {**values, **kernel.constant_values}
    sizes = (
        ("block", contract.block, "threads by its launch bounds", kernel.threads),
        ("query_tile", contract.query_tile, "rows in a query tile", query_tile(kernel)),
        ("key_tile", contract.key_tile, "keys in a key tile", key_tile(kernel)),
    )
    for name, said, what, needed in sizes:
        given, need = known_number(said, values), needed and known_number(needed, constants)
        if need is not None and given != need:
            message = f"`{name}` is {given} where {_given(instance)}: the kernel has {need} {what}"
            yield Diagnostic(MISFIT, message, said.span, (Note("the kernel", kernel.span),))
    yield from _shared_memory_faults(kernel, contract, instance)
    yield from islice(launch_faults(kernel, contract, values), 1)
    for node in walk(kernel):
        if isinstance(node, CopyAsync):
            yield from _box_faults(node.dst, node.src, kernel, contract, constants)
        if isinstance(node, StoreAsync):
            yield from _box_faults(node.src, node.dst, kernel, contract, constants)
        if isinstance(node, CopyAsync | Store | StoreAsync):
            yield from _alignment_faults(node, contract)


def _chosen(contract: LaunchContract, instance: Instantiation) -> int:
    """The head dim that the macros of an instantiation say, of a kernel that does not show it."""
    return next((instance.value(m.name) for m in contract.macros if m.values == (Name("D"),)), 0)


def _given(instance: Instantiation) -> str:
    return ", ".join(f"{name}={value}" for name, value in instance.macros)


def element_faults(unit: TranslationUnit, contract: LaunchContract, instance: Instantiation) -> Iterator[Diagnostic]:
    """CU428 where the instructions that the macros of an element type select are of another one."""
    words = [m.body.encode() for m in unit.macros.values()] + [s for t in unit.texts for s in _STRING.findall(t.masked)]
    found = {word.decode() for text in words for string in _STRING.findall(text) for word in _HALF.findall(string)}
    for wrong in sorted(found - {str(instance.dtype)}):
        name = next(name for name, dtype in DTYPES.items() if dtype is instance.dtype)
        message = f"the macros of `{name}` select instructions on {wrong}"
        yield Diagnostic(MISFIT, message, contract.place(f"dtypes.{name}"))


def _shared_memory_faults(kernel: Kernel, contract: LaunchContract, instance: Instantiation) -> Iterator[Diagnostic]:
    given, need, most = (
        known_number(contract.shared_bytes, dict(instance.macros)),
        laid_out(kernel),
        SHARED_BYTES[contract.arch],
    )
    if given is not None and (given < need or given > most >= need):
        message = f"`shared_bytes` is {given} where {_given(instance)}: the kernel takes {need}, and {contract.arch} has {most}"
        yield Diagnostic(MISFIT, message, contract.shared_bytes.span, (Note("the kernel", kernel.span),))


def _box_faults(
    slot: Expr, view: Expr, kernel: Kernel, contract: LaunchContract, constants: dict[str, int | float]
) -> Iterator[Diagnostic]:
    """Of a copy between a slot of shared memory and a view of a tensor map."""
    tile = next((f.type for f in kernel.shared if f.name == field_of(slot)), None)
    param = next((p for p in contract.params if p.name == field_of(view)), None)
    if not isinstance(tile, Tile) or param is None or not isinstance(param.value, MapOfTensor):
        return
    box = contract.tensor_map(param.value.name)
    rows = known_number(tile.rows, constants)
    copied = (Note("the tile is copied here", slot.span),)
    for extent, wanted in zip(box.box, (_HALVES_OF_A_PANEL, rows, *(1 for _ in box.box[2:])), strict=True):
        if known_number(extent, constants) != wanted:
            message = f"the box of tensor map `{box.name}` is not a panel of 64 columns of its tile, of one head"
            yield Diagnostic(MISFIT, message, extent.span, copied)
    if box.swizzle_bytes != tile.swizzle:
        message = f"tensor map `{box.name}` swizzles otherwise than its tile, by {tile.swizzle} bytes"
        yield Diagnostic(MISFIT, message, box.span, copied)


def _alignment_faults(moved: CopyAsync | Store | StoreAsync, contract: LaunchContract) -> Iterator[Diagnostic]:
    """Tiles of half elements move 16 bytes at a time, by cp.async, TMA or a vector store."""
    field = field_of(moved.src if isinstance(moved, CopyAsync) else moved.dst)
    param = next((p for p in contract.params if p.name == field), None)
    match param and param.value:
        case MapOfTensor(name):
            tensor = contract.tensor(contract.tensor_map(name).tensor)
        case TensorAddress(name):
            tensor = contract.tensor(name)
        case _:
            return
    if tensor.element is ElementType.HALF and tensor.align_bytes % _MOVED_BYTES:
        message = (
            f"the contract aligns `{tensor.name}` to {tensor.align_bytes}, and {_MOVED_BYTES} bytes move at a time"
        )
        yield Diagnostic(MISFIT, message, tensor.span, (Note("here", moved.span),))
