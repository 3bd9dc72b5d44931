"""Locals by number."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cubridge.ir.alpha import numbered_body
from cubridge.ir.canonical import canonical
from cubridge.ir.nodes import Kernel, Stmt
from cubridge.ir.parser import parse
from cubridge.ir.printer import print_stmts, to_text
from cubridge.ir.source import SourceFile
from tests.support.golden_texts import golden_kernel


def _body(kernel: Kernel, text: str) -> tuple[Stmt, ...]:
    head = to_text(replace(kernel, body=()))
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return parse(SourceFile.from_text("x.cuir", head.rstrip().removesuffix("pass").rstrip() + "\n" + lines)).body


CASES = (
    ("a = 1\nb = a + 1\na = b", "%0 = 1\n%1 = %0 + 1\n%0 = %1"),
    ("for x in range(0, n):\n    y = x\nx = 2", "for %0 in range(0, n):\n    %1 = %0\n%2 = 2"),
    ("if block_x == 0:\n    a = 1\nelse:\n    a = 2", "if block_x == 0:\n    %0 = 1\nelse:\n    %1 = 2"),
    ("a = 0\nif block_x == 0:\n    a = 1\nb = a", "%0 = 0\nif block_x == 0:\n    %0 = 1\n%1 = %0"),
    ("o = register(f32, 64, HEAD_DIM)\nzero(o)", "%0 = register(f32, 64, HEAD_DIM)\nzero(%0)"),
    ("keys = key_sequence(tile)\ncount = key_count(keys)", "keys = key_sequence(tile)\n%0 = key_count(keys)"),
)


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_numbers(text: str, expected: str) -> None:
    assert print_stmts(numbered_body(_body(golden_kernel("sm80"), text))).rstrip() == expected


def test_kernels_equal_up_to_names_of_locals() -> None:
    kernel = golden_kernel("sm80")
    text = to_text(kernel)
    for old, new in (("count", "steps"), ("slot", "stage"), ("probs", "weights")):
        text = re.sub(rf"\b{old}\b", new, text)
    renamed = parse(SourceFile.from_text("x.cuir", text))
    assert renamed != kernel
    assert canonical(renamed) == canonical(kernel)


def test_a_use_of_another_local_shows() -> None:
    kernel = golden_kernel("sm80")
    text = to_text(kernel).replace("slot = slot ^ 1", "slot = count ^ 1")
    assert canonical(parse(SourceFile.from_text("x.cuir", text))) != canonical(kernel)
