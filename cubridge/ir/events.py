"""Event graphs: the orchestration of a kernel up to the bodies of its regions, and what a target may differ in from its source.

Nodes are statements, by path; `label` is the statement's text without the blocks it opens, `role` the branch of warpgroups that
runs it. Edges say what must come after what (`kind="after"`) and what lies in which block (`kind="in"`). Statements that commute
have no edge, so that two kernels which differ in their order alone have equal graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import networkx as nx

from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.effects import Effects, commute, effects
from cubridge.ir.nodes import For, Function, If, Kernel, Loop, Name, Node, Stmt
from cubridge.ir.paths import Path
from cubridge.ir.printer import print_stmts
from cubridge.ir.source import Span
from cubridge.ir.walk import walk

EVERYONE: Final = "all"


@dataclass(frozen=True, slots=True)
class Event:
    """One statement. `key` stands for it, for what is inside of it and for all that must come before it in its block."""

    path: Path
    role: str
    label: str
    span: Span
    key: str


def event_graph(kernel: Kernel) -> nx.DiGraph:
    """The graph of a kernel body; nodes are paths, with the attributes `event`, `label` and `role`."""
    graph: nx.DiGraph = nx.DiGraph()
    _block(graph, kernel.body, Path(("body",)), EVERYONE, None)
    return graph


def events(graph: nx.DiGraph) -> Iterator[Event]:
    """The events of a graph in the order of the text."""
    for _, event in graph.nodes(data="event"):
        yield event


def graph_key(graph: nx.DiGraph) -> str:
    """Equal for graphs of kernels whose orchestration is the same up to the order of statements that commute."""
    return _digest(sorted(f"{e.role} {e.key}" for e in events(graph)))


def structure_difference(source: Kernel, target: Kernel) -> tuple[Diagnostic, ...]:
    """Where the orchestration of `target` is not that of `source`; () if only what a variant may change differs.

    A variant may change region bodies, and the fields of `variant_params`, `tile_state` and `row_state`; nothing else.
    Errors: CU270 an event, CU271 a declaration or trait."""
    found = [*_declarations(source, target)]
    ours, theirs = ([*events(event_graph(k))] for k in (source, target))
    wanted, given = (Counter((e.role, e.key) for e in es) for es in (ours, theirs))
    missing = [e for e in ours if (e.role, e.key) not in given]
    extra = [e for e in theirs if (e.role, e.key) not in wanted]
    found += [*_pairs(_innermost(missing), _innermost(extra))]
    if not found and wanted != given:
        found.append(Diagnostic("CU270", "statements of the source are repeated or dropped", _at(target)))
    return tuple(found)


# ---- building --------------------------------------------------------------------------------------------------------


def _block(graph: nx.DiGraph, body: tuple[Stmt, ...], path: Path, role: str, parent: Path | None) -> str:
    """Adds the statements of a block; gives the key of the block."""
    done: list[tuple[Path, Effects, str]] = []
    for x, stmt in enumerate(body):
        here, own = path / x, effects(stmt)
        graph.add_node(here)
        inner = [_block(graph, *block, here) for block in _blocks(stmt, here, role)]
        before = [(p, k) for p, e, k in done if not commute(e, own)]
        label = print_stmts((stmt,)).split("\n", 1)[0]
        key = _digest([label, *inner, "after", *sorted(k for _, k in before)])
        graph.nodes[here].update(event=Event(here, role, label, stmt.span, key), label=label, role=role)
        if parent is not None:
            graph.add_edge(parent, here, kind="in")
        graph.add_edges_from(((p, here) for p, _ in before), kind="after")
        done.append((here, own, key))
    return _digest(sorted(key for *_, key in done))


def _blocks(stmt: Stmt, path: Path, role: str) -> Iterator[tuple[tuple[Stmt, ...], Path, str]]:
    match stmt:
        case If(condition, then, orelse):
            splits = role == EVERYONE and any(n == Name("warpgroup") for n in walk(condition))
            label = print_stmts((stmt,)).split("\n", 1)[0].removeprefix("if ").removesuffix(":")
            yield then, path / "then", label if splits else role
            yield orelse, path / "orelse", f"not {label}" if splits else role
        case For(_, _, _, body) | Loop(body):
            yield body, path / "body", role
        case _:
            pass


def _digest(parts: Iterable[str]) -> str:
    return blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


# ---- comparing -------------------------------------------------------------------------------------------------------

_FIXED: Final = ("arch", "threads", "team", "row_origin", "constants", "shared")
"""Parts of a kernel that no variant changes."""


def _declarations(source: Kernel, target: Kernel) -> Iterator[Diagnostic]:
    for name in _FIXED:
        if getattr(source, name) != getattr(target, name):
            yield Diagnostic("CU271", f"`{name}` of the kernel is not the source's", _at(target), _source_note(source))
    fixed = [tuple(f for f in k.params if f.fixed) for k in (source, target)]
    if fixed[0] != fixed[1]:
        yield Diagnostic("CU271", "the fixed parameters are not the source's", _at(target), _source_note(source))
    for ours, theirs in zip(_functions(source), _functions(target), strict=False):
        if (ours.name, ours.params) != (theirs.name, theirs.params):
            yield Diagnostic("CU271", f"`{theirs.name}` stands where the source has `{ours.name}`", theirs.span)
    if len(_functions(source)) != len(_functions(target)):
        yield Diagnostic("CU271", "the kernel has other regions than the source", _at(target), _source_note(source))
    if (source.schedule.body, source.schedule.result) != (target.schedule.body, target.schedule.result):
        note = Note("the source's", source.schedule.span)
        yield Diagnostic("CU271", f"`{target.schedule.name}` is not the source's", target.schedule.span, (note,))


def _functions(kernel: Kernel) -> tuple[Function, ...]:
    return (*kernel.regions, kernel.schedule)


def _source_note(kernel: Kernel) -> tuple[Note, ...]:
    return (Note("the source", _at(kernel)),)


def _at(node: Node) -> Span:
    return node.span


def _innermost(found: list[Event]) -> list[Event]:
    """Without events that differ only because something inside or before them does."""
    return [e for e in found if not any(o is not e and o.path.is_below(e.path) for o in found)]


def _pairs(missing: list[Event], extra: list[Event]) -> Iterator[Diagnostic]:
    """One fault for each statement that only one side has; a chain of followers is named by its first."""
    labels = Counter((e.role, e.label) for e in extra)
    gone = [e for e in missing if not labels[e.role, e.label]]
    ours = Counter((e.role, e.label) for e in missing)
    new = [e for e in extra if not ours[e.role, e.label]]
    for event in new:
        note = (Note("the source has this here", gone[0].span),) if gone else ()
        yield Diagnostic("CU270", f"`{event.label}` is not in the source", event.span, note)
    if not new:
        for event in gone:
            yield Diagnostic("CU270", f"`{event.label}` of the source is missing", event.span)
    if not new and not gone and (extra or missing):
        event = (extra or missing)[0]
        yield Diagnostic("CU270", f"`{event.label}` has another place than in the source", event.span)
