"""Places of nodes in a tree, `regions.score.body[0].value.left`, and edits that say where later places moved to.

Where a tuple holds named nodes (fields, regions, constants, arguments), a step is the name; otherwise it is the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Argument, Constant, Field, Function, Node
from cubridge.ir.walk import field_names

_NAMED: Final = (Argument, Constant, Field, Function)
_STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(0|[1-9][0-9]*)\]")

Step = str | int


@dataclass(frozen=True, slots=True)
class Path:
    """Steps from a root down to a node, or to a tuple of nodes; `Path()` is the root itself."""

    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        parts = (f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.steps)
        return "".join(parts).removeprefix(".")

    def __truediv__(self, step: Step) -> Path:
        return Path((*self.steps, step))

    @property
    def parent(self) -> Path:
        return Path(self.steps[:-1])

    def is_below(self, other: Path) -> bool:
        """Is this place inside of, or equal to, `other`."""
        return self.steps[: len(other.steps)] == other.steps

    @staticmethod
    def parse(text: str) -> Path:
        """The inverse of `str`. Errors: CU104."""
        steps: list[Step] = []
        dotted = text if text[:1] in ("", "[") else f".{text}"
        at = 0
        while at < len(dotted):
            match = _STEP.match(dotted, at)
            if match is None:
                raise CuError(Diagnostic("CU104", f"`{text}` is no path of a node"))
            steps.append(match.group(1) or int(match.group(2)))
            at = match.end()
        return Path(tuple(steps))


def paths(root: Node, path: Path = Path()) -> Iterator[tuple[Path, Node]]:
    """Every node below and including `root` with its path, parents first."""
    yield path, root
    for name in field_names(type(root)):
        value = getattr(root, name)
        if isinstance(value, Node):
            yield from paths(value, path / name)
        elif isinstance(value, tuple):
            for step, item in _items(value):
                yield from paths(item, path / name / step)


def get(root: Node, path: Path) -> Node:
    """The node at `path`. Errors: CU104 if there is none."""
    value: object = root
    for depth, step in enumerate(path.steps):
        value = _down(value, step)
        if value is None:
            raise _nowhere(Path(path.steps[: depth + 1]))
    if not isinstance(value, Node):
        raise _nowhere(path)
    return value


def put(root: Node, path: Path, node: Node) -> Node:
    """`root` with the node at `path` replaced. Errors: CU104 if there is none."""
    get(root, path)
    changed = _put(root, path.steps, node)
    assert isinstance(changed, Node)
    return changed


@dataclass(frozen=True, slots=True)
class Splice:
    """In the tuple of nodes at `at`, those from `start` on that equal `old` become `new`."""

    at: Path
    start: int
    old: tuple[Node, ...]
    new: tuple[Node, ...]

    def apply(self, root: Node) -> Node:
        """Errors: CU104 if the tuple is not there or does not hold `old`."""
        parent = get(root, self.at.parent)
        items = _down(parent, self.at.steps[-1])
        end = self.start + len(self.old)
        if not isinstance(items, tuple) or items[self.start : end] != self.old:
            raise _nowhere(self.at / self.start)
        changed = (*items[: self.start], *self.new, *items[end:])
        name = str(self.at.steps[-1])
        return put(root, self.at.parent, replace(parent, **{name: changed}))  # pyright: ignore[reportArgumentType]

    def forward(self, path: Path) -> Path | None:
        """Where the node of `path` is after `apply`; None if it was taken out."""
        if not path.is_below(self.at) or len(path.steps) == len(self.at.steps):
            return path
        step = path.steps[len(self.at.steps)]
        if isinstance(step, str):
            removed = _names(self.old) - _names(self.new)
            return None if step in removed else path
        if step < self.start:
            return path
        if step < self.start + len(self.old):
            return None
        moved = step + len(self.new) - len(self.old)
        return Path((*self.at.steps, moved, *path.steps[len(self.at.steps) + 1 :]))


def _items(value: tuple[object, ...]) -> Iterator[tuple[Step, Node]]:
    for index, item in enumerate(value):
        if isinstance(item, Node):
            yield (item.name if isinstance(item, _NAMED) else index), item


def _down(value: object, step: Step) -> object:
    if isinstance(value, tuple):
        nodes: tuple[object, ...] = value
        return next((item for own, item in _items(nodes) if own == step), None)
    if isinstance(value, Node) and step in field_names(type(value)):
        return getattr(value, str(step))
    return None


def _put(value: object, steps: tuple[Step, ...], node: Node) -> object:
    if not steps:
        return node
    step, rest = steps[0], steps[1:]
    if isinstance(value, Node):
        return replace(value, **{str(step): _put(getattr(value, str(step)), rest, node)})  # pyright: ignore[reportArgumentType]
    assert isinstance(value, tuple)
    nodes: tuple[object, ...] = value
    changed: list[object] = list(nodes)
    index = next(i for i, (own, _) in enumerate(_items(nodes)) if own == step)
    changed[index] = _put(nodes[index], rest, node)
    return tuple(changed)


def _names(nodes: tuple[Node, ...]) -> set[str]:
    return {n.name for n in nodes if isinstance(n, _NAMED)}


def _nowhere(path: Path) -> CuError:
    return CuError(
        Diagnostic("CU104", f"there is no node at `{path}`", help="the path is of another version of the text")
    )
