"""Models that write CUDA without CuIR: what they are shown, and that they are judged as those that lower a target."""

from __future__ import annotations

import pytest

from cubridge.driver.model.config import ModelConfig
from cubridge.driver.model.lower import Lowered
from cubridge.driver.model.use import Approach
from cubridge.driver.model.without_ir import write_by_model
from cubridge.ir.diagnostics import CuError
from cubridge.llm.budget import Conversation
from tests.driver.model.lowering_replies import chosen, edits, patched, text_judge, tool
from tests.driver.model.talk import Scripted, conversation, lifted
from tests.support.readings import reading

NAME = "prefix_lm"
RIGHT = patched(NAME).text.decode()


def write(approach: Approach, *replies: str) -> tuple[Lowered, Conversation]:
    talk = conversation(*replies)
    return write_by_model(approach, chosen(), lifted(), reading(NAME), talk, text_judge(NAME)), talk


def whole(text: str) -> str:
    return f"The mask and the range change.\n\n```cuda\n{text}```\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("approach", "replies"),
    [(Approach.ONE_SHOT, (whole(RIGHT),)), (Approach.REACT, (tool("read_region mask"), edits(NAME) + tool("finish")))],
)
def test_a_right_text_is_taken(approach: Approach, replies: tuple[str, ...]) -> None:
    lowered, talk = write(approach, *replies)
    assert lowered.patched == patched(NAME) and lowered.is_lifted
    assert isinstance(talk.provider, Scripted)
    asked = talk.provider.asked
    assert len(asked) == len(replies) and {r.purpose for r in asked} == {str(approach)}
    for request in asked:
        assert "keep = (j <= i)" in request.prompt and "// @region mask" in request.prompt
        assert "cuir" not in (request.stable + request.prompt).lower().replace("new cuir", "")


LESS = RIGHT.replace("j <= last ?", "j < last ?")
WRONG = {
    "another mask": (LESS, "CU316"),
    "the body": (RIGHT.replace("cp_async_commit();", "", 1), "CU716"),
    "a region that is gone": (RIGHT.replace("// @region mask\n", "").replace("// @endregion mask\n", ""), "CU422"),
    "asm": (RIGHT.replace("        const int last", '        asm("trap;");\n        const int last'), "CU717"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if c == "CU316" else ()) for n, (_, c) in WRONG.items()]
)
def test_one_wrong_text_is_the_last(name: str) -> None:
    text, code = WRONG[name]
    assert text != RIGHT
    with pytest.raises(CuError) as caught:
        write(Approach.ONE_SHOT, whole(text), whole(RIGHT))
    assert caught.value.diagnostics[0].code == code


@pytest.mark.slow
def test_tools_say_what_is_wrong() -> None:
    at = next(n for n, line in enumerate(_mask(), 1) if "j <= last ?" in line)
    wrong = tool("edit_region mask", f"@modify {at}-{at}", "            s[r][c] = j < last ? s[r][c] : -INFINITY;")
    right = tool("edit_region mask", f"@modify {at}-{at}", _mask()[at - 1])
    lowered, talk = write(Approach.REACT, edits(NAME) + wrong + tool("finish"), right + tool("finish"))
    assert lowered.patched == patched(NAME)
    assert "CU316" in talk.provider.asked[1].prompt  # pyright: ignore


def _mask() -> list[str]:
    text = RIGHT.split("// @region mask\n")[1].split("// @endregion mask")[0]
    return text.split("\n")[:-1]


def test_cuda_of_a_model_is_run_where_that_is_allowed() -> None:
    for config, code in (
        (ModelConfig("command:true", approach=Approach.REACT), "CU717"),
        (ModelConfig(approach=Approach.ONE_SHOT), "CU706"),
    ):
        with pytest.raises(CuError) as caught:
            config.use(None, None)
        assert caught.value.diagnostics[0].code == code
