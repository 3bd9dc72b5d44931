"""Numbers in CUDA text: literals in every spelling, and what arithmetic of literals and of constants made of them gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tree_sitter import Node

from cubridge.frontend.cuda.text import ParsedText

Number = int | float
_WIDEST_SHIFT: Final = 63
_OPERATORS: Final[Mapping[str, Callable[[int, int], Number]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
    "<<": lambda a, b: a << min(b, _WIDEST_SHIFT), ">>": operator.rshift, "|": operator.or_, "&": operator.and_,
    "^": operator.xor,
}  # fmt: skip


def numbers_in(text: ParsedText) -> set[Number]:
    """The size of each number."""
    return {abs(n) for n in _Numbers(text).all(text.tree.root_node)}


class _Numbers:
    """`constants`: names of locals with a number for a value, as far as the text was read."""

    def __init__(self, text: ParsedText) -> None:
        self.text = text
        self.constants: dict[str, Number] = {}

    def all(self, node: Node) -> Iterator[Number]:
        for child in node.children:
            yield from self.all(child)
        if node.type == "init_declarator":
            self._declare(node)
        value = self.value(node)
        if value is not None:
            yield value

    def _declare(self, node: Node) -> None:
        name, given = node.child_by_field_name("declarator"), node.child_by_field_name("value")
        value = None if given is None else self.value(given)
        if name is not None and value is not None:
            self.constants[self.text.text(name)] = value

    def value(self, node: Node) -> Number | None:
        """None for what is no number, or none of literals alone."""
        match node.type:
            case "number_literal":
                return literal(self.text.text(node))
            case "identifier":
                return self.constants.get(self.text.text(node))
            case "parenthesized_expression":
                return self.value(node.named_children[0]) if node.named_children else None
            case "cast_expression":
                return self._field(node, "value")
            case "binary_expression":
                return self._binary(node)
            case _:
                return None

    def _field(self, node: Node, name: str) -> Number | None:
        child = node.child_by_field_name(name)
        return None if child is None else self.value(child)

    def _binary(self, node: Node) -> Number | None:
        left, right, op = self._field(node, "left"), self._field(node, "right"), node.child_by_field_name("operator")
        apply = None if op is None else _OPERATORS.get(self.text.text(op))
        if left is None or right is None or apply is None:
            return None
        try:
            return apply(left, right)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError, ArithmeticError):
            return None


def literal(text: str) -> Number | None:
    """A number of C++: `1'000u`, `0x3E8`, `0b11`, `1.e3f`. None for what is none."""
    digits = text.replace("'", "").lower()
    is_based = digits.startswith(("0x", "0b"))
    digits = digits.rstrip("ul") if is_based else digits.rstrip("ulf")
    try:
        if is_based and "p" in digits:
            return float.fromhex(digits)
        if is_based:
            return int(digits, 0)
        if digits.isdigit():
            return int(digits, 8) if digits.startswith("0") and digits != "0" else int(digits)
        return float(digits)
    except ValueError:
        return None
