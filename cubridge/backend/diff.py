"""The difference of two CuIR trees as edits by node path: statements and fields whole, blocks by what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby
from typing import Final, assert_never, cast

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Constant, Expr, Field, For, Function, If, Kernel, Loop, Node, Stmt
from cubridge.ir.printer import print_expr, print_field_type, print_function, print_stmts
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.walk import field_names

Path = tuple[str | int, ...]
"""Steps from the kernel to a node: names of fields and places in tuples, as they are in the source tree."""

Value = object
"""What a field of a node holds: a node, a tuple of nodes or plain data."""

_BLOCKS: Final = (Kernel, Function, If, For, Loop)
"""Nodes that are compared part by part; any other is replaced whole."""


@dataclass(frozen=True, slots=True)
class Replace:
    """What stands at `path` becomes `new`."""

    path: Path
    old: Value
    new: Value


@dataclass(frozen=True, slots=True)
class Insert:
    """`new` comes in front of the node at `path`, or last in its tuple."""

    path: Path
    new: Node


@dataclass(frozen=True, slots=True)
class Delete:
    """The node at `path` goes."""

    path: Path
    old: Node


Edit = Replace | Insert | Delete


# ---- finding edits ---------------------------------------------------------------------------------------------------


def diff(source: Kernel, target: Kernel) -> tuple[Edit, ...]:
    """Edits that turn `source` into `target`, in the order of the source; none if the two are the same text."""
    return tuple(_diff(source, target, ()))


def _key(value: Value) -> str:
    """Equal for equal text. Structural equality would take 0.0 for -0.0 and 1 for 1.0."""
    return repr(value)


def _diff(old: Value, new: Value, path: Path) -> Iterator[Edit]:
    if _key(old) == _key(new):
        return
    if isinstance(old, tuple) and isinstance(new, tuple) and _is_nodes(old) and _is_nodes(new):
        yield from _diff_tuples(old, new, path)
    elif isinstance(old, _BLOCKS) and type(old) is type(new):
        for name in field_names(type(old)):
            yield from _diff(getattr(old, name), getattr(new, name), (*path, name))
    else:
        yield Replace(path, old, new)


def _is_nodes(values: tuple[Value, ...]) -> bool:
    return all(isinstance(v, Node) for v in values)


def _diff_tuples(old: Sequence[Node], new: Sequence[Node], path: Path) -> Iterator[Edit]:
    matcher = SequenceMatcher(None, [_key(x) for x in old], [_key(x) for x in new], autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        paired = min(end - start, new_end - new_start)
        for at in range(paired):
            yield from _diff(old[start + at], new[new_start + at], (*path, start + at))
        for at in range(start + paired, end):
            yield Delete((*path, at), old[at])
        for at in range(new_start + paired, new_end):
            yield Insert((*path, end), new[at])


# ---- applying them ---------------------------------------------------------------------------------------------------


def apply(edits: Iterable[Edit], source: Kernel) -> Kernel:
    """The tree after all edits at once. Errors: CU606 where an edit does not fit what `source` has at its path."""
    result = _apply(source, [(e.path, e) for e in edits])
    if not isinstance(result, Kernel):
        raise CuError(Diagnostic("CU606", "an edit puts something else in place of the kernel"))
    return result


Pending = list[tuple[Path, Edit]]
"""Edits with what is left of their paths."""


def _apply(value: Value, pending: Pending) -> Value:
    if not pending:
        return value
    here = [edit for rest, edit in pending if not rest]
    if here:
        return _replaced(value, here, len(pending))
    if isinstance(value, tuple):
        return _apply_tuple(cast(tuple[Node, ...], value), pending)
    if not isinstance(value, Node):
        raise _misfit(pending[0][1])
    changed = {str(name): _apply(_field(value, name, group), group) for name, group in _by_step(pending).items()}
    return replace(value, **changed)


def _replaced(value: Value, here: Sequence[Edit], count: int) -> Value:
    edit = here[0]
    if count != 1 or not isinstance(edit, Replace) or _key(edit.old) != _key(value):
        raise _misfit(edit)
    return edit.new


def _field(node: Node, name: str | int, group: Pending) -> Value:
    if name not in field_names(type(node)):
        raise _misfit(group[0][1])
    return getattr(node, str(name))


def _apply_tuple(items: tuple[Node, ...], pending: Pending) -> tuple[Node, ...]:
    groups = _by_step(pending)
    unknown = [group for step, group in groups.items() if step not in range(len(items) + 1)]
    if unknown:
        raise _misfit(unknown[0][0][1])
    out: list[Node] = []
    for at in range(len(items) + 1):
        inserts = [e for rest, e in groups.get(at, []) if not rest and isinstance(e, Insert)]
        others = [(rest, e) for rest, e in groups.get(at, []) if rest or not isinstance(e, Insert)]
        out += [e.new for e in inserts]
        if at < len(items):
            out += _apply_item(items[at], others)
        elif others:
            raise _misfit(others[0][1])
    return tuple(out)


def _apply_item(item: Node, pending: Pending) -> list[Node]:
    deletion = next((edit for rest, edit in pending if not rest and isinstance(edit, Delete)), None)
    if deletion is None:
        return [cast(Node, _apply(item, pending))]
    if len(pending) != 1 or _key(deletion.old) != _key(item):
        raise _misfit(deletion)
    return []


def _by_step(pending: Pending) -> Mapping[str | int, Pending]:
    groups: dict[str | int, Pending] = {}
    for rest, edit in pending:
        groups.setdefault(rest[0], []).append((rest[1:], edit))
    return groups


def _misfit(edit: Edit) -> CuError:
    path = "/".join(str(step) for step in edit.path) or "the kernel"
    return CuError(Diagnostic("CU606", f"the source has nothing at {path} that this edit fits", span_of(edit)))


def span_of(edit: Edit) -> Span:
    """Where the edit's text stands: of what goes, else of what comes."""
    nodes = [edit.new] if isinstance(edit, Insert) else [edit.old, *([edit.new] if isinstance(edit, Replace) else [])]
    return next((n.span for n in nodes if isinstance(n, Node) and n.span is not NOWHERE), NOWHERE)


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
    match edit.path:
        case ("regions", int(at), *_) if at < len(source.regions):
            return source.regions[at].name
        case ("schedule", *_):
            return source.schedule.name
        case ("body", *_):
            return source.name
        case ("params", *_):
            return "params"
        case (str(section), *_):
            return {"constants": "const"}.get(section, section)
        case _:
            return "kernel"


_FORMS: Final[dict[str | int, str]] = {"result": "return {}", "condition": "if {}:"}
"""How a part of a block reads in its place."""


def _render(edit: Edit) -> list[str]:
    match edit:
        case Replace(path, old, new):
            form = _FORMS.get(path[-1], "{}")
            return _marked("-", form.format(_text(old))) + _marked("+", form.format(_text(new)))
        case Insert(_, new):
            return _marked("+", _text(new))
        case Delete(_, old):
            return _marked("-", _text(old))
        case _:
            assert_never(edit)


def _marked(mark: str, text: str) -> list[str]:
    return [f"{mark} {line}" for line in text.split("\n")]


def _text(value: Value) -> str:
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
