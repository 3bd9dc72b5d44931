"""What a kernel text may consist of: declarations that do nothing by themselves, and code that lifting can read for what it is.
Packaged headers are known; this reads all others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tree_sitter import Node

from cubridge.frontend.cuda.bounds import check_calls
from cubridge.frontend.cuda.packaged import is_packaged
from cubridge.frontend.cuda.text import ParsedText, TranslationUnit, first_line
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.source import Span

CODE: Final = "CU423"

_KNOWN: Final = "functions, structs, constants of one number, `using`, `typedef`, `static_assert` and macros"
_CONSTANT_WORDS: Final = """
    identifier type_identifier primitive_type sized_type_specifier number_literal true false binary_expression
    unary_expression parenthesized_expression conditional_expression cast_expression type_descriptor sizeof_expression
    qualified_identifier namespace_identifier comment
"""
_CONSTANT: Final = frozenset(_CONSTANT_WORDS.split())
"""Syntax of the value of a constant."""
_NUMBERS: Final = frozenset(("primitive_type", "sized_type_specifier", "type_identifier"))
_REFUSED: Final[Mapping[str, str]] = {
    "lambda_expression": "a lambda", "attribute_specifier": "an attribute", "attribute_declaration": "an attribute",
    "attributed_statement": "an attribute", "attribute": "an attribute", "ms_declspec_modifier": "an attribute",
    "new_expression": "`new`", "delete_expression": "`delete`", "throw_statement": "`throw`", "try_statement": "`try`",
    "operator_name": "an operator of its own", "operator_cast": "a conversion of its own", "destructor_name": "a destructor",
    "field_initializer_list": "a constructor", "using_declaration": "`using` of a namespace", "namespace_definition": "a namespace",
    "namespace_alias_definition": "a namespace", "class_specifier": "a class", "union_specifier": "a union",
    "friend_declaration": "`friend`", "virtual": "`virtual`", "virtual_function_specifier": "`virtual`",
    "base_class_clause": "a base class", "raw_string_literal": "a raw string", "user_defined_literal": "a literal of its own",
    "co_await_expression": "a coroutine", "co_return_statement": "a coroutine", "co_yield_statement": "a coroutine",
    "requires_clause": "`requires`", "decltype": "`decltype`", "default_method_clause": "a constructor",
    "delete_method_clause": "a constructor",
}  # fmt: skip
"""Syntax that runs code of its own, or that hides what is run."""
_STORAGE: Final = frozenset(("static", "extern", "thread_local", "register"))


def form_faults(unit: TranslationUnit) -> Iterator[Diagnostic]:
    """CU423 for each declaration at file scope, and each piece of code, that a kernel text does not consist of.
    Errors: CU423 for functions that call each other without bound."""
    check_calls(_calls(unit))
    for text in _own(unit):
        root = text.tree.root_node
        for node in root.named_children:
            yield from _item(text, node)
        for node in _nodes(root):
            yield from _code(text, node)
    for macro in unit.macros.values():
        if macro.name.startswith("_") and not macro.given and not is_packaged(macro.span.file):
            yield _fault(
                f"names such as `{macro.name}` are the compiler's", macro.span, "take one without the underscore"
            )


def _own(unit: TranslationUnit) -> Iterator[ParsedText]:
    return (t for t in unit.texts if not is_packaged(t.file))


def _nodes(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(node.children)


def _fault(message: str, span: Span, help: str | None = None) -> Diagnostic:
    return Diagnostic(CODE, message, first_line(span), help=help)


def _calls(unit: TranslationUnit) -> dict[str, list[tuple[Span, list[str]]]]:
    """Functions of texts not packaged, by name, with the names that each calls."""
    found: dict[str, list[tuple[Span, list[str]]]] = {}
    for text in _own(unit):
        for node in _nodes(text.tree.root_node):
            if node.type == "function_definition":
                words = re.findall(rb"\b([A-Za-z_]\w*)[ \t]*[(<]", text.masked[node.start_byte : node.end_byte])
                name, *called = (w.decode("latin-1") for w in words)
                found.setdefault(name, []).append((first_line(text.span(node)), called))
    return found


# ---- file scope ------------------------------------------------------------------------------------------------------


def _item(text: ParsedText, node: Node) -> Iterator[Diagnostic]:
    match node.type:
        case "comment" | "struct_specifier" | "static_assert_declaration" | "type_definition" | "alias_declaration":
            pass
        case "function_definition" if _is_plain_function(node):
            pass
        case "template_declaration":
            yield from _item(text, node.named_children[-1])
        case "linkage_specification" if _is_kernel(node):
            pass
        case "declaration" if _is_constant(text, node):
            pass
        case "expression_statement" if not node.named_children:
            pass
        case _:
            line = text.text(node).split("\n", 1)[0].strip()[:40]
            message = f"a kernel text does not declare `{line}`"
            yield _fault(message, text.span(node), f"it holds {_KNOWN}")


def _is_plain_function(node: Node) -> bool:
    """A function under a plain name, with a body."""
    at = node.child_by_field_name("declarator")
    while at is not None and at.type in ("pointer_declarator", "reference_declarator"):
        at = at.named_children[-1] if at.named_children else None
    name = None if at is None or at.type != "function_declarator" else at.child_by_field_name("declarator")
    body = node.child_by_field_name("body")
    return name is not None and name.type == "identifier" and body is not None and body.type == "compound_statement"


def _is_kernel(node: Node) -> bool:
    body = node.child_by_field_name("body")
    return body is not None and _is_plain_function(body) and any(c.type == "__global__" for c in body.children)


def _is_constant(text: ParsedText, node: Node) -> bool:
    """`constexpr int N = 2;`, or a struct."""
    kind = node.child_by_field_name("type")
    declarators = node.children_by_field_name("declarator")
    if kind is not None and kind.type == "struct_specifier":
        return not declarators
    if kind is None or kind.type not in _NUMBERS or not declarators:
        return False
    return text.is_const(node) and all(_is_number(d) for d in declarators)


def _is_number(declarator: Node) -> bool:
    name, value = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("value")
    if name is None or value is None or name.type != "identifier":
        return False
    return _is_arithmetic(value)


def _is_arithmetic(value: Node) -> bool:
    """Of numbers and constants alone."""
    return all(n.type in _CONSTANT for n in _nodes(value) if n.is_named)


# ---- code ------------------------------------------------------------------------------------------------------------


def _code(text: ParsedText, node: Node) -> Iterator[Diagnostic]:
    kind = node.type
    if kind in _REFUSED:
        yield _fault(f"a kernel text is not written with {_REFUSED[kind]}", text.span(node))
    elif kind.startswith("preproc") or kind == "#":
        yield _fault("a directive stands alone on its line", text.span(node))
    elif kind == "compound_statement" and node.parent is not None and node.parent.type.endswith("expression"):
        yield _fault("a kernel text is not written with statements inside of expressions", text.span(node))
    elif kind == "storage_class_specifier":
        yield from _storage(text, node)
    elif kind == "struct_specifier":
        yield from _members(text, node)


def _storage(text: ParsedText, node: Node) -> Iterator[Diagnostic]:
    """Of variables that outlive a call, only constants."""
    word, parent = text.text(node), node.parent
    if word not in _STORAGE or parent is None or parent.type == "function_definition":
        return
    if word != "static" or not text.is_const(parent):
        message = f"a variable of a kernel text is not `{word}`"
        yield _fault(message, text.span(parent), "make it a local, or `static constexpr`")


_MEMBERS: Final = frozenset(
    ("field_declaration", "function_definition", "comment", "static_assert_declaration", "alias_declaration", "type_definition")
)  # fmt: skip


def _members(text: ParsedText, node: Node) -> Iterator[Diagnostic]:
    """A struct has fields and plain functions: making and leaving one runs nothing."""
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    for member in () if body is None else body.named_children:
        inner = member.named_children[-1] if member.type == "template_declaration" else member
        place = text.span(inner)
        match inner.type:
            case "function_definition" if _is_constructor(text, inner, name):
                yield _fault("a struct of a kernel text has no constructor", place)
            case "field_declaration":
                for value in inner.children_by_field_name("default_value"):
                    if not _is_arithmetic(value):
                        yield _fault("the value of a field is one number", place)
            case kind if kind not in _MEMBERS:
                yield _fault("a struct of a kernel text has fields and functions", place)
            case _:
                pass


def _is_constructor(text: ParsedText, function: Node, struct: Node | None) -> bool:
    """Has it no result, or the name of its struct?"""
    if function.child_by_field_name("type") is None:
        return True
    declarator = function.child_by_field_name("declarator")
    name = None if declarator is None else declarator.child_by_field_name("declarator")
    return struct is not None and name is not None and text.text(name) == text.text(struct)
