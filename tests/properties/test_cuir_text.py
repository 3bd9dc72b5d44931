"""Text and tree say the same, whatever the tree; whatever the text, the parser answers with a tree or a diagnostic."""

from __future__ import annotations

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.ir.canonical import canonical
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Expr, Kernel, Node
from cubridge.ir.parser import parse, parse_expr
from cubridge.ir.paths import Path, get, paths
from cubridge.ir.printer import print_expr, to_text
from cubridge.ir.source import SourceFile
from cubridge.ir.walk import walk
from tests.support.golden_texts import golden_file
from tests.support.strategies import exprs, kernels


@given(exprs)
@settings(derandomize=True, max_examples=200, deadline=None)
def test_an_expression_survives_its_text(expr: Expr) -> None:
    text = print_expr(expr)
    assert parse_expr(text) == expr
    assert print_expr(parse_expr(text)) == text
    ast.parse(text, mode="eval")


@given(kernels)
@settings(derandomize=True, max_examples=20, deadline=None)
def test_a_kernel_survives_its_text(kernel: Kernel) -> None:
    text = to_text(kernel)
    again = parse(SourceFile.from_text("k.cuir", text))
    assert again == kernel
    assert to_text(again) == text
    ast.parse(text)


@given(st.text(alphabet="sij0129.+-*/%<>=&|^~()[],: #\n\t\"'éeE_", max_size=40))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_any_text_is_an_expression_or_a_diagnostic(text: str) -> None:
    try:
        expr = parse_expr(text)
    except CuError as error:
        assert error.diagnostics[0].code in ("CU101", "CU103")
        assert str(error)
        return
    assert parse_expr(print_expr(expr)) == expr
    ast.parse(text.strip("\n "), mode="eval")


_TEXT = golden_file("sm80").text


@given(
    st.integers(0, len(_TEXT)),
    st.integers(0, 30),
    st.sampled_from(["", "(", ")", "\n", "    ", "@", "é", "0", "if", "\x00", ","]),
)
@settings(derandomize=True, max_examples=60, deadline=None)
def test_a_damaged_kernel_is_a_kernel_or_a_diagnostic(at: int, cut: int, put: str) -> None:
    text = _TEXT[:at] + put + _TEXT[at + cut :]
    try:
        kernel = parse(SourceFile.from_text("k.cuir", text))
    except CuError as error:
        assert error.diagnostics[0].code in ("CU101", "CU102", "CU103")
        assert str(error)
        return
    ast.parse(text)
    assert parse(SourceFile.from_text("k.cuir", to_text(kernel))) == kernel


@given(kernels)
@settings(derandomize=True, max_examples=8, deadline=None)
def test_paths_lead_to_their_nodes(kernel: Kernel) -> None:
    seen: list[Node] = []
    for path, node in paths(kernel):
        if len({r.name for r in kernel.regions}) == len(kernel.regions):
            assert get(kernel, Path.parse(str(path))) is node
        seen.append(node)
    assert len(seen) == sum(1 for _ in walk(kernel))


@given(kernels)
@settings(derandomize=True, max_examples=10, deadline=None)
def test_canonical_is_idempotent(kernel: Kernel) -> None:
    once = canonical(kernel)
    assert canonical(once) == once
