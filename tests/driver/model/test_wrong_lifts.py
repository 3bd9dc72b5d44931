"""Wrong CuIR of a text that no rule reads, built to be well-formed or to compute the same numbers: none is accepted."""
# ruff: noqa: E501  (a row of the table stays on one line)

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cubridge.driver.kernels import ChosenKernel, choose_kernel
from cubridge.driver.model.judge import ValueJudge
from cubridge.driver.model.lift_judge import LiftJudge
from cubridge.driver.sandbox.process import InProcess
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Shape
from cubridge.judge.attention import full_attention
from cubridge.judge.plan import Case
from tests.driver.model.foreign import annotated, write_foreign

CASES = (Case("index-coded V", Shape(1, 2, 1, 70, 130, 64), 1), Case("large scores", Shape(1, 2, 1, 70, 130, 64), 1))


@dataclass(frozen=True, slots=True)
class Lift:
    """Changes of the right CuIR, and what is said of it."""

    changes: tuple[tuple[str, str], ...]
    says: str


def change(says: str, *changes: tuple[str, str]) -> Lift:
    return Lift(changes, says)


def swapped(says: str, a: int, b: int) -> Lift:
    """The lines that statements stand for, one for the other."""
    count = min(annotated().count(f"# {x}\n") for x in (a, b))
    return Lift(
        ((f"# {a}\n", "# @\n"),) * count + ((f"# {b}\n", f"# {a}\n"),) * count + (("# @\n", f"# {b}\n"),) * count, says
    )


WRONG = {
    # the same numbers, another program
    "waits for all": change("the lines of this `wait_group` say 1, not 0", ("wait_group(1)  # 229", "wait_group(0)  # 229")),
    "waits for all of V": change("`wait_group` say 1, not 0", ("wait_group(1)  # 241", "wait_group(0)  # 241")),
    "anchors of sync": swapped("comes before line 242", 230, 242),
    "anchors of commit": swapped("comes before line 222", 220, 222),
    "anchors of commit in the loop": swapped("comes before line 244", 232, 244),
    "anchors of waits": swapped("comes before line 241", 229, 241),
    "anchors of K and V": swapped("are about `p.v`, not `p.k`", 219, 221),
    "anchors of K and V in the loop": swapped("are about `p.v`, not `p.k`", 231, 243),
    "anchors of conditions": change("comes before line 243", ("count:  # 231", "count:  # @"), ("count:  # 243", "count:  # 231"), ("count:  # @", "count:  # 243")),
    "anchors of Q and K": swapped("are about `p.k`, not `p.q`", 218, 219),
    "anchors of the gemms": swapped("comes before line 245", 233, 245),
    "anchors of score and update": swapped("comes before line 236", 234, 236),
    "anchors of rescale and cast": swapped("comes before line 240", 239, 240),
    "a commit of the loop before it": swapped("comes before line 232", 222, 232),
    "a sync that is a comment": change("do not reach its instruction", ("block_sync()  # 230", "block_sync()  # 229")),
    "a copy that waits for nothing": change("do not reach its instruction", ("copy_async(smem.q", "copy(smem.q")),
    "a sync more": change("stands for these lines already", ("block_sync()  # 230", "block_sync()  # 230\n        block_sync()  # 230")),
    "a commit more": change("stands for these lines already", ("commit()  # 244", "commit()  # 244\n        commit()  # 244")),
    "all lines for one": change("the text has `commit` 4 times", ("    commit()  # 220", "    commit()  # 201-250\n        commit()  # 201-250")),
    "o where lse is": change("are about `p.lse`, not `p.o`", ("src=o)  # 251", "src=o)  # 252")),
    # another program
    "K is V": change("CU217", ("p.k[tile.b, tile.hk], row=key_tile(keys, 0)", "p.v[tile.b, tile.hk], row=key_tile(keys, 0)")),
    "Q of the key head": change("CU", ("p.q[tile.b, tile.h]", "p.q[tile.b, tile.hk]")),
    "no sync": change("CU251", ("        block_sync()  # 230\n", "")),
    "no wait": change("CU2", ("        wait_group(1)  # 229\n", "")),
    "a weaker wait": change("CU2", ("wait_group(1)  # 229", "wait_group(2)  # 229")),
    "no commit": change("CU2", ("        commit()  # 232\n", "")),
    "the other slot": change("CU2", ("smem.k[slot].T", "smem.k[slot ^ 1].T")),
    "no mask": change("CU214", ("            mask(s, n * BLOCK_KV, tile)  # 235\n", "            score(s, n * BLOCK_KV, tile)  # 235\n")),
    "every tile but the last": change("CU217", ("range(0, count)", "range(0, count - 1)")),
    "one macro": change("`STAGES` is 2 in this instantiation", ("STAGES=2", "STAGES=3")),
    "one host value": change("not the one in its comment", ("host=ceil_div(Lq, BLOCK_Q)", "host=ceil_div(Lk, BLOCK_Q)")),
    # another computation
    "tile of the wrong head": change("CU317", ("tile.hk = tile.h // (Hq // Hk)", "tile.hk = tile.h % Hk")),
    "no rescale of the sum": change("CU316", ("row.l = row.l * row.o_scale +", "row.l = row.l +")),
    "a key more": change("CU316", ("where(j < Lk, s, -inf)", "where(j <= Lk, s, -inf)")),
    "half of the sum": change("CU316", ("1.0 / l)", "0.5 / l)")),
    "masked tiles as full": change("CU316", ("full_hi = Lk // BLOCK_KV", "full_hi = ceil_div(Lk, BLOCK_KV)")),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ChosenKernel:
    return choose_kernel(str(write_foreign(tmp_path_factory.mktemp("foreign"))))


def judged(kernel: ChosenKernel, changes: tuple[tuple[str, str], ...]) -> str:
    """What is said of the right CuIR after changes, or nothing; all but what runs the text itself."""
    text = annotated()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    jobs = InProcess()
    try:
        lifted, _ = LiftJudge(kernel, "bf16", 64, jobs).read(SourceFile.from_text("answer.cuir", text))
        ValueJudge(jobs, full_attention(), "bf16", CASES).judge(lifted.kernel)
    except CuError as error:
        return str(error)
    return ""


def test_the_right_one_is_accepted(kernel: ChosenKernel) -> None:
    assert judged(kernel, ()) == ""


@pytest.mark.parametrize("name", WRONG)
def test_no_wrong_one_is(kernel: ChosenKernel, name: str) -> None:
    said = judged(kernel, WRONG[name].changes)
    assert WRONG[name].says in said, said
