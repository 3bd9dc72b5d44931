"""Numbers of a text that a model wrote: known in every spelling, and run past."""

from __future__ import annotations

import pytest

from cubridge.driver.lower import patched_source
from cubridge.driver.model.guard import read_text
from cubridge.driver.model.numbers import literal, numbers_in
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from tests.driver.model.lowering_replies import chosen, patched, text_judge

SPELLINGS = {
    "1000": "1000",
    "an unsigned one": "1000u",
    "a long one": "1'000ll",
    "a hexadecimal one": "0x3E8",
    "a binary one": "0b1111101000",
    "an octal one": "01750",
    "a float": "1000.f",
    "an exponent": "1e3",
    "a product": "8 * 5 * 5 * 5",
    "a shift": "(1 << 10) - 8 * 3",
    "a cast": "10 * (int)10 * 10",
    "of constants": "big * 10",
}


def source_with(condition: str) -> SourceFile:
    text = patched_source(patched("prefix_lm")).text
    old = "s[r][c] = j <= last ?"
    assert old in text
    return SourceFile(
        "kernel.cu", text.replace(old, f"const int big = 10 * 10;\n s[r][c] = j <= last || {condition} ?").encode()
    )


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_number_in_every_spelling(name: str) -> None:
    source = source_with(f"p.len_q > {SPELLINGS[name]}")
    text = read_text(chosen(), source, chosen().instantiation("bf16", 64)).unit.main
    assert 1000 in numbers_in(text)
    with pytest.raises(CuError, match="it holds"):
        text_judge("prefix_lm")._check_numbers(source)  # pyright: ignore[reportPrivateUsage]


def test_what_is_no_number() -> None:
    assert literal("0x") is None
    assert literal("1.2.3") is None


def test_the_target_has_its_numbers() -> None:
    text_judge("prefix_lm")._check_numbers(patched_source(patched("prefix_lm")))  # pyright: ignore[reportPrivateUsage]


def test_the_emulator_goes_past_a_number() -> None:
    """Of a case for 200 rows, that no run of the check reaches."""
    text = chosen().with_text(source_with("p.len_q > 200"))
    assert "1 runs right" in text_judge("prefix_lm").emulate(text)
    with pytest.raises(CuError, match="at 1,1,1,265,265,64"):
        text_judge("prefix_lm").emulate(text, past_numbers=True)
