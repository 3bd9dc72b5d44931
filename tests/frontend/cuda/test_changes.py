"""The lifter reads code: whatever is deleted or changed in a kernel changes the CuIR or is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tree_sitter import Node

from cubridge.frontend.cuda.text import parse_snippet
from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import print_function
from tests.frontend.cuda.kernels import (
    ARCHITECTURES,
    edited,
    edited_headers,
    faults_of,
    kernel_text,
    lift_text,
    shipped,
)

_DELETABLE = ("expression_statement", "if_statement", "for_statement", "break_statement", "return_statement")
_DELETIONS = 3
_SAMPLE = 7
# Every so many of the deletions and of the changes of tokens; 1 tries all, in a minute.
_TOKENS = {
    r"(?<![\w.])\d+(?![\w.])": lambda t: str(int(t) + 1),
    r"(?<![<>=])<(?=[ ])(?!=)": lambda _: "<=",
    r" \+ ": lambda _: " - ",
    r"\.slot\b": lambda _: ".phase",
    r"\bsmem\.k\b": lambda _: "smem.v",
    r"_full\b": lambda _: "_empty",
    r"\btile\.hk\b": lambda _: "tile.h",
    r"\brow\.m\b": lambda _: "row.o_scale",
    r"\bROWS; \+\+r": lambda _: "S_COLS; ++r",
}


def _changes(arch: str, text: str) -> bool:
    """Does the text lift to something else, or not at all?"""
    try:
        return lift_text(arch, text).kernel != shipped(arch).kernel
    except CuError:
        return True


def _deletions(text: str, after: bytes) -> Iterator[tuple[int, str, str]]:
    """(line, statement, text without it) for each statement of each function behind `after`."""
    data = text.encode()
    start = data.index(after)
    stack = [parse_snippet(re.sub(r"\bDEVICE\b", "      ", data.decode("latin-1"))).root_node]
    while stack:
        node = stack.pop()
        if node.type in _DELETABLE and node.start_byte > start:
            yield _without(data, node)
        stack += reversed(node.named_children)


def _without(data: bytes, node: Node) -> tuple[int, str, str]:
    left = b"{}" if node.parent is not None and node.parent.type in ("if_statement", "for_statement") else b";"
    text = data[: node.start_byte] + left + data[node.end_byte :]
    return node.start_point[0] + 1, data[node.start_byte : node.end_byte].decode(), text.decode()


# The regions of both kernels are the same text.
@pytest.mark.parametrize(
    ("arch", "after", "least"), [("sm80", b"// @region tile_setup", 70), ("sm90a", b"KERNEL(", 90)]
)
def test_every_deleted_statement_shows(arch: str, after: bytes, least: int) -> None:
    deletions = list(_deletions(kernel_text(arch), after))
    assert len(deletions) >= least
    unseen = [(line, what) for line, what, text in deletions[::_DELETIONS] if not _changes(arch, text)]
    assert unseen == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_changed_tokens_show(arch: str) -> None:
    text = kernel_text(arch)
    code = text.index("// @region tile_setup")
    places = [(m, new) for pattern, new in _TOKENS.items() for m in re.compile(pattern).finditer(text, code)]
    unseen: list[str] = []
    for match, new in places[::_SAMPLE]:
        line = text[text.rfind("\n", 0, match.start()) + 1 : text.find("\n", match.end())]
        in_comment = "//" in line and line.index("//") < match.start() - text.rfind("\n", 0, match.start()) - 1
        if not in_comment and not _changes(arch, text[: match.start()] + new(match[0]) + text[match.end() :]):
            unseen.append(line)
    # A first unrolling factor is for the compiler alone.
    assert [line for line in unseen if "#pragma" not in line] == []


CHANGED_CONSTANTS = (
    ("sm80", "<= RESCALE_LAG", "<= LN2"),
    ("sm90a", "NEXT_TURN = 2", "NEXT_TURN = 3"),
    ("sm90a", "registers_take<232>", "registers_take<224>"),
    ("sm80", "cp_async_wait<1>", "cp_async_wait<0>"),
    ("sm80", "@host D ** -0.5 * LOG2E", "@host D ** -0.5"),
    ("sm80", "o[ROWS][O_COLS];", "o[ROWS][S_COLS];"),
    ("sm90a", "SharedTile<64, HEAD_DIM> o[CONSUMERS]", "SharedTile<64, HEAD_DIM> o[STAGES]"),
)


@pytest.mark.parametrize(("arch", "old", "new"), CHANGED_CONSTANTS)
def test_changed_constants_show(arch: str, old: str, new: str) -> None:
    assert _changes(arch, edited(arch, (old, new)))


CHANGED_WRAPPERS = (
    ("sm80", "ptx_sm80", "cp.async.commit_group;", "cp.async.wait_all;", "CU423", "cp.async.wait_all"),
    ("sm80", "ptx_sm80", '"n"(PENDING) : "memory"', '"n"(PENDING)', "CU423", "does not clobber"),
    (
        "sm80",
        "ptx_sm80",
        'asm volatile("cp.async.commit_group;"',
        'asm("cp.async.commit_group;"',
        "CU423",
        "not volatile",
    ),
    ("sm90a", "ptx_sm90a", "bar.arrive %0, %1;", "bar.sync %0, %1;", "", ""),
    ("sm90a", "ptx_sm90a", "arrive.shared::cta.b64 _, [%0];", "arrive.shared::cta.b64 _, [%0], 2;", "CU423", "[%0], 2"),
    ("sm90a", "ptx_sm90a", "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;", "", ""),
)


@pytest.mark.parametrize(("arch", "header", "old", "new", "code", "said"), CHANGED_WRAPPERS)
def test_wrappers_are_known_by_their_instruction(
    arch: str, header: str, old: str, new: str, code: str, said: str
) -> None:
    headers = edited_headers((f"common/{header}.cuh", old, new))
    if not code:
        assert lift_text(arch, kernel_text(arch), headers).kernel != shipped(arch).kernel
        return
    faults = faults_of(arch, kernel_text(arch), headers)
    assert {f.code for f in faults} == {code}
    assert all(said in f.message for f in faults)


def test_a_wrapper_may_have_any_name() -> None:
    headers = edited_headers(("common/ptx_sm80.cuh", "void cp_async_commit()", "void close_group()"))
    text = edited("sm80", ("cp_async_commit();", "close_group();"))
    assert lift_text("sm80", text, headers).kernel == shipped("sm80").kernel


CHANGED_HELPERS = (
    (
        "sm80",
        "tile_sm80",
        "* HEAD_DIM * 2 + (((lane >> 4) ^ (lane & 7)) << 4);",
        "* HEAD_DIM * 2 + ((lane >> 4) << 4);",
        "gemm_qk",
    ),
    ("sm80", "fragments", "x = fmaxf(x, shuffle_xor(x, 1));", "", "row_max"),
    (
        "sm90a",
        "fragments",
        "if (row < dst.rows && thread_index() % 4 == 0)",
        "if (thread_index() % 4 == 0)",
        "store_rows",
    ),
    ("sm90a", "tile_sm90a", "panel * 64, row0", "panel * 32, row0", "load_tile_async"),
    ("sm90a", "persistent_sm90a", "phase ^= 1;", "phase = 1;", "Ring"),
    ("sm80", "base", "return a < b ? a : b;", "return a < b ? a : a;", "imin"),
)


@pytest.mark.parametrize(("arch", "header", "old", "new", "name"), CHANGED_HELPERS)
def test_helpers_are_known_by_their_body(arch: str, header: str, old: str, new: str, name: str) -> None:
    faults = faults_of(arch, kernel_text(arch), edited_headers((f"common/{header}.cuh", old, new)))
    assert any(f.code == "CU424" and f"`{name}`" in f.message for f in faults)
    assert all(f.span.file.name == "kernel.cu" for f in faults)


def test_layout_comments_and_locals_of_helpers_do_not_matter() -> None:
    head = "DEVICE float row_max(const float (&row)[S_COLS]) {"
    headers = edited_headers(
        ("common/fragments.cuh", head, head.replace("(const", "( // largest\n const")),
        ("common/fragments.cuh", "chain", "parts"),
    )
    assert lift_text("sm80", kernel_text("sm80"), headers).kernel == shipped("sm80").kernel


def test_a_helper_that_becomes_another_proved_one_is_that_one() -> None:
    headers = edited_headers(("common/base.cuh", "return a < b ? a : b;", "return a > b ? a : b;"))
    schedule = lift_text("sm80", kernel_text("sm80"), headers).kernel.schedule
    assert "heads = maximum(p.group_heads, B * Hq - first)" in print_function(schedule, "@schedule")
