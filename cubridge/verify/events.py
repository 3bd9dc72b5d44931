"""Event graphs: the orchestration of a kernel up to the bodies of its regions, and what a target may differ in from its source.

Nodes are statements, by path; `label` is the statement's text without the blocks it opens, `role` the branch of warpgroups that
runs it. Edges say what must come after what (`kind="after"`) and what lies in which block (`kind="in"`). Statements that commute
have no edge, so that two kernels which differ in their order alone have equal graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from hashlib import blake2b
from typing import Final

import networkx as nx

from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.nodes import For, Function, If, Kernel, Loop, Name, Stmt
from cubridge.ir.paths import Path
from cubridge.ir.printer import print_expr, print_stmts
from cubridge.ir.source import Span
from cubridge.ir.walk import walk
from cubridge.verify.effects import NOTHING, Effects, around, commute, effects, joined

EVERYONE: Final = "all"


@dataclass(frozen=True, slots=True)
class Event:
    """One statement. `key` stands for it, for what is inside of it and for all that must come before it in its block."""

    path: Path
    role: str
    label: str
    span: Span
    key: str


def event_graph(kernel: Kernel) -> nx.DiGraph[Path]:
    """The graph of a kernel body; nodes are paths, with the attributes `event`, `label` and `role`."""
    graph: nx.DiGraph[Path] = nx.DiGraph()
    _block(graph, kernel.body, Path(("body",)), EVERYONE, None)
    return graph


def events(graph: nx.DiGraph[Path]) -> Iterator[Event]:
    """The events of a graph in the order of the text."""
    for _, attributes in graph.nodes(data=True):
        yield attributes["event"]


def graph_key(graph: nx.DiGraph[Path]) -> str:
    """Equal for graphs of kernels whose orchestration is the same up to the order of statements that commute."""
    return _digest(sorted(f"{e.role} {e.key}" for e in events(graph)))


def structure_difference(source: Kernel, target: Kernel) -> tuple[Diagnostic, ...]:
    """Where the orchestration of `target` is not that of `source`; () if only what a variant may change differs.

    A variant may change region bodies, and the fields of `variant_params`, `tile_state`, `row_state` and `score_state` alone.
    Errors: CU270 an event, CU271 a declaration or trait."""
    found = [*_declarations(source, target)]
    graphs = [event_graph(k) for k in (source, target)]
    if graph_key(graphs[0]) != graph_key(graphs[1]):
        found += _differing(*([*events(g)] for g in graphs))
    return tuple(found)


# ---- building --------------------------------------------------------------------------------------------------------


def _block(
    graph: nx.DiGraph[Path], body: tuple[Stmt, ...], path: Path, role: str, parent: Path | None
) -> tuple[str, Effects]:
    """Adds the statements of a block; gives the key of the block and its effects."""
    done: list[tuple[Path, Effects, str]] = []
    total = NOTHING
    for x, stmt in enumerate(body):
        here, label = path / x, head(stmt)
        graph.add_node(here)
        inner = [_block(graph, *block, here) for block in _blocks(stmt, here, role)]
        own = around(stmt, joined(e for _, e in inner)) if isinstance(stmt, If | For | Loop) else effects(stmt)
        before = [(p, k) for p, e, k in done if not commute(e, own)]
        key = _digest([label, *(k for k, _ in inner), "after", *sorted(k for _, k in before)])
        graph.nodes[here].update(event=Event(here, role, label, stmt.span, key), label=label, role=role)
        if parent is not None:
            graph.add_edge(parent, here, kind="in")
        graph.add_edges_from(((p, here) for p, _ in before), kind="after")
        done.append((here, own, key))
        total |= own
    return _digest(sorted(key for *_, key in done)), total


def _blocks(stmt: Stmt, path: Path, role: str) -> Iterator[tuple[tuple[Stmt, ...], Path, str]]:
    match stmt:
        case If(condition, then, orelse):
            splits = role == EVERYONE and any(n == Name("warpgroup") for n in walk(condition))
            label = print_expr(condition)
            yield then, path / "then", label if splits else role
            yield orelse, path / "orelse", f"not {label}" if splits else role
        case For(_, _, _, body) | Loop(body):
            yield body, path / "body", role
        case _:
            pass


def head(stmt: Stmt) -> str:
    """The first line of a statement's text."""
    match stmt:
        case If():
            return f"if {print_expr(stmt.condition)}:"
        case For() | Loop():
            return print_stmts((replace(stmt, body=()),)).split("\n", 1)[0]
        case _:
            return print_stmts((stmt,))


def _digest(parts: Iterable[str]) -> str:
    return blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


# ---- comparing -------------------------------------------------------------------------------------------------------

_FIXED: Final = ("family", "arch", "threads", "team", "row_origin", "constants", "shared")
"""Parts of a kernel that no variant changes."""


def _declarations(source: Kernel, target: Kernel) -> Iterator[Diagnostic]:
    for name in _FIXED:
        if getattr(source, name) != getattr(target, name):
            yield Diagnostic("CU271", f"`{name}` of the kernel is not the source's", target.span, _source_note(source))
    fixed = [tuple(f for f in k.params if f.fixed) for k in (source, target)]
    if fixed[0] != fixed[1]:
        yield Diagnostic("CU271", "the fixed parameters are not the source's", target.span, _source_note(source))
    for ours, theirs in zip(_functions(source), _functions(target), strict=False):
        if (ours.name, ours.params) != (theirs.name, theirs.params):
            yield Diagnostic("CU271", f"`{theirs.name}` stands where the source has `{ours.name}`", theirs.span)
    if len(_functions(source)) != len(_functions(target)):
        yield Diagnostic("CU271", "the kernel has other regions than the source", target.span, _source_note(source))
    if (source.schedule.body, source.schedule.result) != (target.schedule.body, target.schedule.result):
        note = Note("the source's", source.schedule.span)
        yield Diagnostic("CU271", f"`{target.schedule.name}` is not the source's", target.schedule.span, (note,))


def _functions(kernel: Kernel) -> tuple[Function, ...]:
    return (*kernel.regions, kernel.schedule)


def _source_note(kernel: Kernel) -> tuple[Note, ...]:
    return (Note("the source", kernel.span),)


def _differing(source: list[Event], target: list[Event]) -> Iterator[Diagnostic]:
    """One fault for each statement that only one side has at its place."""
    lines = [[(e.role, len(e.path.steps), e.label) for e in side] for side in (source, target)]
    for kind, a, a_end, b, b_end in SequenceMatcher(None, *lines, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        instead = tuple(Note("the source has this here", e.span) for e in source[a:a_end])
        yield from (
            Diagnostic("CU270", f"`{e.label}` is not at this place in the source", e.span, instead)
            for e in target[b:b_end]
        )
        if kind == "delete":
            gone = source[a:a_end]
            yield from (Diagnostic("CU270", f"`{e.label}` of the source is missing", e.span) for e in gone)
