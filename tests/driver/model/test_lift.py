"""Lifting by a model: an answer must be anchored in the text and right; then it is used again while the text is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.driver.kernels import ChosenKernel, choose_kernel
from cubridge.driver.lift_source import lift_verified
from cubridge.driver.model.lift import lift_by_model, lift_prompt, lift_system
from cubridge.driver.model.lift_judge import JudgedLift, LiftJudge
from cubridge.driver.model.sidecar import sidecar_path
from cubridge.frontend.cuda.lift import Lifted
from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import to_text
from cubridge.ir.spec import Shape
from cubridge.judge.plan import Case
from tests.driver.model.foreign import annotated, foreign_text, lift_reply, original, write_foreign
from tests.driver.model.talk import BOX, Scripted, conversation

pytestmark = pytest.mark.slow

CASES = (Case("index-coded V", Shape(1, 2, 1, 70, 130, 64), 1),)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ChosenKernel:
    return choose_kernel(str(write_foreign(tmp_path_factory.mktemp("foreign"))))


def judge(kernel: ChosenKernel) -> LiftJudge:
    return LiftJudge(kernel, "bf16", 64, BOX, CASES, CASES)


def lift(kernel: ChosenKernel, *replies: str, finished: bool = True) -> Lifted:
    return lift_by_model(judge(kernel), (), conversation(*replies, finished=finished))


def faults(kernel: ChosenKernel, reply: str) -> str:
    with pytest.raises(CuError) as caught:
        lift(kernel, reply)
    assert caught.value.diagnostics[0].code == "CU708"
    return str(CuError(*caught.value.diagnostics[1:]))


def changed(*changes: tuple[str, str]) -> str:
    text = annotated()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return lift_reply(text)


def test_rules_cannot_read_it(kernel: ChosenKernel) -> None:
    with pytest.raises(CuError, match="CU423"):
        lift_verified(kernel, "bf16", 64)


def test_an_accepted_lift_is_used_again(kernel: ChosenKernel) -> None:
    talk = conversation("```cuir\nno\n```", lift_reply())
    lifted = lift_by_model(judge(kernel), (), talk)
    assert to_text(lifted.kernel) == to_text(original().kernel)
    place = next(s.span for s in lifted.kernel.body if s.span.text.startswith("zero(o)"))
    assert place.file.name.endswith("attention_forward.cu")
    again = lift_verified(kernel, "bf16", 64)
    assert isinstance(again, JudgedLift)
    assert again.kernel == lifted.kernel
    path = Path(kernel.text.source.name)
    path.write_text(foreign_text() + "\n// another text\n")
    with pytest.raises(CuError, match="CU719"):
        lift_verified(choose_kernel(str(path)), "bf16", 64)
    path.write_text(foreign_text())
    sidecar_path(kernel, "bf16", 64).unlink()


ANCHORS = {
    "no lines": ("commit()  # 220", "commit()", "does not say which lines"),
    "lines past the end": ("commit()  # 220", "commit()  # 2200", "the text has lines 1 to"),
    "lines backwards": ("commit()  # 220", "commit()  # 222-220", "the text has lines 1 to"),
    "another instruction": ("commit()  # 220", "commit()  # 221", "do not reach its instruction"),
    "a comment of the text": ("block_sync()", "block_sync()  # 2\n        block_sync()", "do not reach its instruction"),
    "one line for two": ("block_sync()", "block_sync()  # 230\n        block_sync()", "stands for these lines already"),
    "a gemm elsewhere": ("# 233\n        score", "# 245\n        score", "line 233 of the text reaches `gemm`"),
    "other macros": ("BLOCK_KV=64", "BLOCK_KV=32", "`BLOCK_KV` is 64"),
    "another host value": ("host=D ** -0.5 * LOG2E", "host=D ** -0.5 * LN2", "`exponent_scale` is not the one"),
    "a field of its own": ("variant_params(", "variant_params(\n    x=Scalar(f32, host=1.0),", "no field `x`"),
    "a fixed field that varies": (
        "variant_params(\n    exponent_scale=Scalar(f32, host=D ** -0.5 * LOG2E),\n)",
        "variant_params()",
        "CU201",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANCHORS)
def test_what_is_not_anchored(kernel: ChosenKernel, name: str) -> None:
    old, new, said = ANCHORS[name]
    assert said in faults(kernel, changed((old, new)))


def test_other_values(kernel: ChosenKernel) -> None:
    assert "CU316" in faults(kernel, changed(("1.0 / l", "2.0 / l")))


def test_lines_without_effect(kernel: ChosenKernel, tmp_path: Path) -> None:
    """A barrier that is there in the text and never runs: all else about it is right."""
    text = foreign_text().replace("    lse[ROWS];\n", "    lse[ROWS];\n")
    at = text.index("    float lse[ROWS];")
    path = write_foreign(tmp_path)
    path.write_text(text[:at] + "    if (false) block_sync();\n" + text[at:])
    line = text[:at].count("\n") + 1
    cuir = "\n".join(_moved(row, line) for row in annotated().split("\n"))
    cuir = cuir.replace("    lse = register", f"    block_sync()  # {line}\n    lse = register", 1)
    assert "the compiled kernel is the same without" in faults(choose_kernel(str(path)), lift_reply(cuir))


def _moved(row: str, line: int) -> str:
    head, mark, number = row.rpartition("  # ")
    return f"{head}{mark}{int(number) + 1}" if mark and int(number) >= line else row


@pytest.mark.parametrize(
    ("reply", "code"),
    [(lift_reply().replace("```workers", "```text"), "CU712"), (lift_reply().replace("cuir(version=1)", "cuir(2)"), "CU10"),
     (lift_reply().replace("        wait_group(1)  # 229\n", ""), "CU2"), (lift_reply() + lift_reply(), "CU712")],
)  # fmt: skip
def test_answers_that_are_refused_unread(kernel: ChosenKernel, reply: str, code: str) -> None:
    assert code in faults(kernel, reply)


def test_an_answer_that_was_cut_off(kernel: ChosenKernel) -> None:
    with pytest.raises(CuError) as caught:
        lift(kernel, lift_reply(), finished=False)
    assert caught.value.diagnostics[1].code == "CU713"


def test_what_the_prompt_says(kernel: ChosenKernel) -> None:
    prompt = lift_prompt(judge(kernel), (), ())
    lines = foreign_text().split("\n")
    assert f" 225 | {lines[224]}" in prompt
    assert "BLOCK_KV=64" in prompt
    assert "DEVICE void gemm_qk(" in prompt
    assert "| `commit` | `cp.async.commit_group;` |" in lift_system()
    assert isinstance(conversation().provider, Scripted)
