"""Only fenced blocks with the right tag are read, whatever else a reply holds."""

from __future__ import annotations

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.llm.reply import blocks, fenced, one_block

TAGS = ("pipeline", "cuir")


def text_of(reply: str) -> str:
    return one_block(reply, TAGS).source.text


@pytest.mark.parametrize(
    "reply",
    [
        "```pipeline\na,b\n```",
        "First some thoughts.\n\n```pipeline\na,b\n```\nThat is all.",
        "```python\nx = 1\n```\n```pipeline\na,b\n```",
        "````pipeline\na,b\n````",
        '   ```Pipeline title="mine"\na,b\n   ```   ',
        "```pipeline\r\na,b\r\n```\r\n",
        "a line with ``` in it\n```pipeline\na,b\n```",
        "odd \x0b separators \u2028 in prose\n```pipeline\na,b\n```",
    ],
)
def test_the_block_is_found(reply: str) -> None:
    assert text_of(reply) == "a,b\n"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("no block at all", "CU712"),
        ("```python\na,b\n```", "CU712"),
        ("```pipeline\na\n```\n```cuir\nb\n```", "CU712"),
        ("```pipeline\na\n```\n```pipeline\na\n```", "CU712"),
        ("```pipeline\na,b\n", "CU711"),
        ("```pipeline\n```cuir\na\n```\n```", "CU711"),
        ("```pipeline\na,b\n``", "CU711"),
        ("````pipeline\na,b\n```", "CU711"),
        ("```pipeline\na,\x1b[2Jb\n```", "CU711"),
        ("```pipeline\na,\u202eb\n```", "CU711"),
    ],
)
def test_anything_else_is_refused(reply: str, code: str) -> None:
    with pytest.raises(CuError) as caught:
        text_of(reply)
    assert caught.value.diagnostics[0].code == code
    assert "\x1b" not in str(caught.value)


def test_places_are_those_of_the_block() -> None:
    found = blocks("prose\n\n```cuir\nfirst\nsecond\n```\n")
    assert found[0].source.line(2) == "second"
    assert found[0].span.location == (3, 1)


@pytest.mark.parametrize("text", ["plain", "```\ninner\n```", "`````x\n`````"])
def test_what_a_prompt_quotes_stays_inside_its_fence(text: str) -> None:
    [block] = blocks(fenced("text", text))
    assert block.source.text == text + "\n"


def test_a_byte_order_mark_hides_no_fence() -> None:
    assert one_block("\ufeff```pipeline\ndce\n```", ("pipeline",)).source.text == "dce\n"
