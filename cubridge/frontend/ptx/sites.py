"""Places in a foreign kernel's text that hooks go to: where a score is hidden, and where the loop over key tiles ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

_LANGUAGE: Final = Language(tree_sitter_cuda.language())
_ORDERS: Final = ("<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class MaskSite:
    """A condition that keeps a score or hides it: in a choice between the score and -INFINITY, or, with `assigns`, before a
    statement that assigns -INFINITY to it. `choice`: the whole of that; `operands`: texts of what the condition compares."""

    choice: Span
    condition: Span
    score: Span
    keeps_where_true: bool
    operands: tuple[str, ...]
    assigns: bool = False


@dataclass(frozen=True, slots=True)
class BoundSite:
    """An expression that says where the loop ends, in `unit`: tiles, or keys."""

    bound: Span
    unit: Literal["tiles", "keys"]


def mask_site(source: SourceFile, near: Span) -> MaskSite:
    """Where scores are hidden on the lines of `near`. Errors: CU856 where there is no one such place."""
    nodes = [n for n in _nodes(source) if _on_line(source, n, near)]
    found = [site for n in nodes for site in (_choice(source, n), _assignment(source, n)) if site is not None]
    if len(found) != 1:
        raise CuError(
            Diagnostic("CU856", "no one choice between a score and -INFINITY stands where scores are hidden", near)
        )
    return found[0]


def _choice(source: SourceFile, node: Node) -> MaskSite | None:
    """`CONDITION ? SCORE : -INFINITY`, either way round."""
    if node.type != "conditional_expression":
        return None
    sides = [node.child_by_field_name(side) for side in ("consequence", "alternative")]
    hidden = [side is not None and _is_hidden(source, side) for side in sides]
    condition, score = node.child_by_field_name("condition"), sides[0 if hidden[1] else 1]
    if hidden[0] == hidden[1] or condition is None or score is None:
        return None
    return _mask_site(source, node, condition, score, keeps_where_true=hidden[1])


def _assignment(source: SourceFile, node: Node) -> MaskSite | None:
    """`if (CONDITION) SCORE = -INFINITY;`"""
    clause, body = (node.child_by_field_name(f) for f in ("condition", "consequence"))
    if node.type != "if_statement" or clause is None or body is None or node.child_by_field_name("alternative"):
        return None
    statements = body.named_children if body.type == "compound_statement" else [body]
    assigned = statements[0].named_children if len(statements) == 1 else []
    if len(assigned) != 1 or assigned[0].type != "assignment_expression" or _operator(assigned[0]) != "=":
        return None
    score, value = (assigned[0].child_by_field_name(f) for f in ("left", "right"))
    condition = clause.child_by_field_name("value")
    if score is None or value is None or condition is None or not _is_hidden(source, value):
        return None
    return replace(_mask_site(source, node, condition, score, keeps_where_true=False), assigns=True)


def _mask_site(source: SourceFile, node: Node, condition: Node, score: Node, keeps_where_true: bool) -> MaskSite:
    compared = tuple(dict.fromkeys(_text(source, side) for n in _below(condition) for side in _compared(n)))
    choice, at, kept = (_span(source, n) for n in (node, condition, score))
    return MaskSite(choice, at, kept, keeps_where_true, compared)


def bound_site(source: SourceFile, near: Span) -> BoundSite:
    """The bound of the loop that begins on the line of `near`: where a variable of its own holds it, the value of that.
    Errors: CU856 where the loop has another form."""
    loops = [n for n in _nodes(source) if n.type == "for_statement" and _line(n) == near.location[0]]
    if len(loops) != 1:
        raise CuError(Diagnostic("CU856", "no one `for` begins where the run's loop over key tiles does", near))
    condition, update = (loops[0].child_by_field_name(f) for f in ("condition", "update"))
    if condition is None or update is None or condition.type != "binary_expression" or _operator(condition) != "<":
        raise CuError(Diagnostic("CU856", "the loop over key tiles does not end at `NAME < BOUND`", near))
    bound = condition.child_by_field_name("right")
    assert bound is not None
    steps = update.type == "update_expression" or _text(source, update).replace(" ", "").endswith("+=1")
    unit: Literal["tiles", "keys"] = "tiles" if steps else "keys"
    return BoundSite(_span(source, _value_of(source, bound) or bound), unit)


def _value_of(source: SourceFile, bound: Node) -> Node | None:
    """What a variable begins as, where it is declared once and is no loop's own."""
    if bound.type != "identifier":
        return None
    name = _text(source, bound)
    declared = [
        value
        for n in _nodes(source)
        if n.type == "init_declarator"
        and (declarator := n.child_by_field_name("declarator")) is not None
        and (value := n.child_by_field_name("value")) is not None
        and _text(source, declarator) == name
    ]
    return declared[0] if len(declared) == 1 else None


def _is_hidden(source: SourceFile, node: Node) -> bool:
    return _text(source, node).replace(" ", "") in ("-INFINITY", "-CUDART_INF_F", "-inf")


def _compared(node: Node) -> list[Node]:
    if node.type != "binary_expression" or _operator(node) not in _ORDERS:
        return []
    sides = (node.child_by_field_name("left"), node.child_by_field_name("right"))
    return [s for s in sides if s is not None and s.type != "number_literal"]


def _operator(node: Node) -> str:
    found = node.child_by_field_name("operator")
    return "" if found is None or found.text is None else found.text.decode()


def _nodes(source: SourceFile) -> Iterator[Node]:
    return _below(Parser(_LANGUAGE).parse(source.data).root_node)


def _below(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        at = waiting.pop()
        yield at
        waiting += reversed(at.children)


def _on_line(source: SourceFile, node: Node, near: Span) -> bool:
    first, last = near.location[0], source.location(near.end)[0]
    return node.start_point[0] + 1 <= last and node.end_point[0] + 1 >= first


def _line(node: Node) -> int:
    return node.start_point[0] + 1


def _text(source: SourceFile, node: Node) -> str:
    return source.slice(node.start_byte, node.end_byte)


def _span(source: SourceFile, node: Node) -> Span:
    return Span(source, node.start_byte, node.end_byte)
