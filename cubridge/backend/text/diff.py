"""The difference of two CuIR trees as edits by node path: statements and fields whole, blocks by what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby
from typing import Final, assert_never, cast

from cubridge.ir.diagnostics import CuError, Diagnostic, InternalError
from cubridge.ir.nodes import Constant, Expr, Field, For, Function, If, Kernel, Loop, Node, Stmt
from cubridge.ir.paths import Path, Splice, get, put
from cubridge.ir.printer import print_expr, print_field_type, print_function, print_stmts
from cubridge.ir.walk import field_names

_BLOCKS: Final = (Kernel, Function, If, For, Loop)
"""Nodes that are compared part by part; any other is replaced whole."""


@dataclass(frozen=True, slots=True)
class Change:
    """The field at `at` of a block, which is no tuple of nodes, becomes `new`: a condition, a result, the name of a kernel."""

    at: Path
    old: object
    new: object

    def apply(self, root: Node) -> Node:
        """Errors: CU104 if the field is not there or does not hold `old`."""
        parent, name = get(root, self.at.parent), str(self.at.steps[-1])
        if name not in field_names(type(parent)) or _key(getattr(parent, name)) != _key(self.old):
            raise CuError(Diagnostic("CU104", f"`{self.at}` does not hold what this edit changes", parent.span))
        return put(root, self.at.parent, replace(parent, **{name: self.new}))  # pyright: ignore[reportArgumentType]


Edit = Splice | Change


# ---- finding and applying --------------------------------------------------------------------------------------------


def diff(source: Kernel, target: Kernel) -> tuple[Edit, ...]:
    """Edits that turn `source` into `target`, in the order of the source; none if the two are the same text."""
    return tuple(_parts(source, target, Path()))


def apply(edits: Sequence[Edit], source: Kernel) -> Kernel:
    """The tree after `edits`, as `diff` gives them. Errors: CU104 where one does not fit what `source` has."""
    root: Node = source
    for edit in reversed(edits):  # the last first, so that places in front of it stay what they are
        root = edit.apply(root)
    if not isinstance(root, Kernel):
        raise InternalError("an edit put something else in place of the kernel")
    return root


def _key(value: object) -> str:
    """Equal for equal text; structural equality would take 0.0 for -0.0 and 1 for 1.0."""
    return repr(value)


def _parts(old: Node, new: Node, path: Path) -> Iterator[Edit]:
    for name in field_names(type(old)):
        mine, other = getattr(old, name), getattr(new, name)
        if _key(mine) == _key(other):
            continue
        if _is_nodes(mine) and _is_nodes(other):
            yield from _tuples(mine, other, path / name)
        elif _opens(mine, other):
            yield from _parts(mine, other, path / name)
        else:
            yield Change(path / name, mine, other)


def _is_nodes(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, Node) for v in cast(tuple[object, ...], value))


def _opens(old: object, new: object) -> bool:
    """Whether two nodes are one block whose content changed."""
    if isinstance(old, Function) and isinstance(new, Function):
        return old.name == new.name
    return isinstance(old, _BLOCKS) and type(old) is type(new)


def _tuples(old: tuple[Node, ...], new: tuple[Node, ...], path: Path) -> Iterator[Edit]:
    matcher = SequenceMatcher(None, [_key(x) for x in old], [_key(x) for x in new], autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        pairs = list(zip(old[start:end], new[new_start:new_end], strict=False))
        if end - start == new_end - new_start and all(_opens(a, b) for a, b in pairs) and _are_distinct(old):
            for at, (mine, other) in enumerate(pairs, start):
                yield from _parts(mine, other, path / (mine.name if isinstance(mine, Function) else at))
        else:
            yield Splice(path, start, old[start:end], new[new_start:new_end])


def _are_distinct(nodes: Iterable[Node]) -> bool:
    """Functions are found by name, so that two of one name cannot be told apart."""
    names = [n.name for n in nodes if isinstance(n, Function)]
    return len(names) == len(set(names))


# ---- for people ------------------------------------------------------------------------------------------------------


def render_diff(source: Kernel, target: Kernel) -> str:
    """Edits under the name of the region or section they are in, `-` for what goes, `+` for what comes; "" if none."""
    lines: list[str] = []
    for place, edits in groupby(diff(source, target), lambda e: place_of(e, source)):
        lines.append(f"@@ {place} @@")
        for edit in edits:
            lines += _render(edit)
    return "".join(line + "\n" for line in lines)


def place_of(edit: Edit, source: Kernel) -> str:
    """The region, section or function that an edit is in."""
    match edit.at.steps:
        case ("regions", str(region), *_):
            return region
        case ("schedule", *_):
            return source.schedule.name
        case ("body", *_):
            return source.name
        case (str(section), *_):
            return {"constants": "const"}.get(section, section)
        case _:
            return "kernel"


_FORMS: Final[dict[str | int, str]] = {"result": "return {}", "condition": "if {}:"}
"""How a part of a block reads in its place."""


def _render(edit: Edit) -> list[str]:
    match edit:
        case Splice(_, _, old, new):
            gone, come = ([_text(n) for n in nodes] for nodes in (old, new))
        case Change(at, old, new):
            form = _FORMS.get(at.steps[-1], "{}")
            gone, come = ([form.format(_text(value))] for value in (old, new))
        case _:
            assert_never(edit)
    marked = [("-", text) for text in gone] + [("+", text) for text in come]
    return [f"{mark} {line}" for mark, text in marked for line in text.split("\n")]


def _text(value: object) -> str:
    match value:
        case Function():
            return print_function(value)
        case Stmt():
            return print_stmts([value])
        case Field(name, kind):
            return f"{name}={print_field_type(kind)}"
        case Constant(name, number):
            return f"{name}={number!r}"
        case Expr():
            return print_expr(value)
        case _:
            return str(value)
