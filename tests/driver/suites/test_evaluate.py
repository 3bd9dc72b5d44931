"""Suites: the same table to the byte, also where the run was killed in between; the estimator; what a suite may say."""

from __future__ import annotations

import json
from itertools import combinations
from math import comb
from pathlib import Path

import pytest

from cubridge.driver.stopwatch import Step
from cubridge.driver.suites.evaluate import STATE, State, evaluate
from cubridge.driver.suites.results import Outcome, make_results, pass_at_k
from cubridge.driver.suites.suite import read_suite
from cubridge.ir.diagnostics import CuError
from cubridge.judge.findings import Verdict
from tests.driver.model.lowering_replies import chosen, edits, patched, tool
from tests.driver.model.talk import EXAMPLES, pipeline_reply

pytestmark = pytest.mark.slow

REPLIES = Path(__file__).parents[2] / "llm" / "replies"


def test_a_killed_run_goes_on_and_gives_the_same_table(tmp_path: Path) -> None:
    suite = read_suite(REPLIES / "suite.toml")
    begun: list[Step] = []

    def killed(step: Step) -> None:
        begun.append(step)
        if len(begun) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(suite, tmp_path, killed)
    with (tmp_path / STATE).open("a") as state:
        state.write('{"method": "recorded", "vari')  # a line that was being written
    evaluate(suite, tmp_path, begun.append)
    assert len(begun) == 4 + 3  # three were known; the one that was killed ran again
    for name in ("table.md", "results.json"):
        assert (tmp_path / name).read_bytes() == (REPLIES / name).read_bytes()
    evaluate(suite, tmp_path, begun.append)
    assert len(begun) == 7


def test_the_estimator_counts_subsets() -> None:
    for n in range(1, 7):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = list(combinations([True] * c + [False] * (n - c), k))
                assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / comb(n, k))
    assert pass_at_k(2, 1, 3) is None


def outcome(method: str, variant: str, sample: int, accepted: bool, speed: float | None, cost: float | None) -> Outcome:
    reason = "" if accepted else "CU316"
    return Outcome(method, variant, 64, sample, accepted, "gpu", reason, False, speed, 1, 100, cost)


def suite_file(tmp_path: Path, text: str = "") -> Path:
    file = tmp_path / "small.toml"
    variants = "".join(f'[[variant]]\nname = "{v}"\nreference = "{v}.py"\n' for v in ("a", "b"))
    method = '[[method]]\nname = "m"\nproposer = "command:true"\nsamples = 2\n'
    file.write_text(f"lengths = [64]\nk = [1, 2, 3]\n{text}\n{method}{variants}")
    return file


def test_speed_cost_and_means(tmp_path: Path) -> None:
    outcomes = [
        outcome("m", "a", 1, True, 100.0, 0.5), outcome("m", "a", 2, True, 200.0, 0.25),
        outcome("m", "b", 1, True, 800.0, None), outcome("m", "b", 2, False, None, None),
    ]  # fmt: skip
    results = make_results(read_suite(suite_file(tmp_path)), outcomes)
    [total] = results.methods
    assert total.speed == pytest.approx(400.0)  # of 200, the best of its problem, and 800
    assert (total.cost_usd, total.tokens, total.solved) == (0.75, 400, 2)
    assert total.passes == (0.75, 1.0, None)
    assert "| m | 2/2 | 75.0 % | 100.0 % |  | 400 | 400 | $0.7500 |" in results.to_text()
    assert json.loads(json.dumps(results.to_json()))["problems"][1]["reasons"] == ["CU316"]


def test_a_failure_of_any_kind_is_an_outcome(tmp_path: Path) -> None:
    """A reference that is not there, a program that fails, one that answers nonsense."""
    file = suite_file(tmp_path, 'level = "interpreted"')
    (tmp_path / "b.py").write_text("def attention(q, k, v):\n    return undefined\n")
    results = (
        evaluate(read_suite(file), tmp_path / "out", lambda _: None) if (tmp_path / "out").mkdir() is None else None
    )
    assert results is not None
    assert [p.accepted for p in results.problems] == [0, 0]
    assert [p.reasons for p in results.problems] == [("CU470",), ("CU474",)]


@pytest.mark.parametrize(
    "text",
    ["odd = 1", "lengths = []", 'level = "perfect"', "heads = [3, 2]", 'dtype = "fp8"', "k = [0]", "samples = true",
     "[[method]]\nname = '../x'", "[[method]]\nname = 'm'", "[[method]]\nname = 'n'\nproposer = 3", "lengths = [64",
     "[[method]]\nname = 'n'\nlowering = 'magic'", "[[method]]\nname = 'n'\nkey = 'secret'",
     "[[method]]\nname = 'n'\napproach = 'magic'"],
)  # fmt: skip
def test_suites_that_say_something_else(tmp_path: Path, text: str) -> None:
    with pytest.raises(CuError) as caught:
        read_suite(suite_file(tmp_path, text))
    assert caught.value.diagnostics[0].code == "CU720"


def test_state_of_another_suite(tmp_path: Path) -> None:
    State(tmp_path / STATE, "one").read()
    with pytest.raises(CuError, match="another suite"):
        State(tmp_path / STATE, "two").read()
    (tmp_path / STATE).write_text('{"suite": "one"}\n{"method": 3}\n')
    with pytest.raises(CuError, match="no state"):
        State(tmp_path / STATE, "one").read()


def test_broken_trials_run_again(tmp_path: Path) -> None:
    suite = read_suite(suite_file(tmp_path, 'level = "interpreted"'))
    source = (REPLIES / "../../../examples/full.py").resolve().read_text()
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(source)
    state = State(tmp_path / STATE, suite.digest)
    state.read()
    for name in ("a", "b"):
        for sample in (1, 2):
            state.add(Outcome("m", name, 64, sample, False, "", "CU701", sample == 2, None, 0, 0, None))
    begun: list[Step] = []
    results = evaluate(suite, tmp_path, begun.append)
    assert begun == [Step("evaluate", 0, 2, "m a 64 2"), Step("evaluate", 1, 2, "m b 64 2")]
    assert [p.reasons for p in results.problems] == [("CU701", "CU703")] * 2
    assert suite.level is Verdict.INTERPRETED


def test_methods_without_cuir_are_judged_as_the_one_with(tmp_path: Path) -> None:
    """The same right text by three ways, and the source's own by two."""
    right = patched("prefix_lm").text.decode()
    for folder, replies in {
        "cubridge": {"transfer.1": pipeline_reply("prefix_lm")},
        "one-shot": {"one-shot.1": f"```cuda\n{right}```\n"},
        "react": {"react.1": edits("prefix_lm"), "react.2": tool("finish")},
        "one-shot-wrong": {"one-shot.1": f"```cuda\n{chosen().text.source.text}```\n"},
        "react-wrong": {"react.1": tool("finish")},
    }.items():
        (tmp_path / folder).mkdir()
        for name, text in replies.items():
            (tmp_path / folder / f"{name}.md").write_text(text)
    names = ("cubridge", "one-shot", "react", "one-shot-wrong", "react-wrong")
    methods = "".join(
        f'[[method]]\nname = "{n}"\nproposer = "replay:{n}"\nallow_model_cuda = true\napproach = "{n.removesuffix("-wrong")}"\n'
        for n in names
    )
    file = tmp_path / "suite.toml"
    variant = f'[[variant]]\nname = "prefix_lm"\nreference = "{EXAMPLES / "prefix_lm.py"}"\n'
    file.write_text(f'level = "emulated"\nlengths = [150]\nheads = [2, 1]\n{methods}{variant}')
    (tmp_path / "out").mkdir()
    results = evaluate(read_suite(file), tmp_path / "out", lambda _: None)
    assert {p.method: (p.accepted, p.reasons) for p in results.problems} == {
        "cubridge": (1, ()), "one-shot": (1, ()), "react": (1, ()),
        "one-shot-wrong": (0, ("CU316",)), "react-wrong": (0, ("CU705 CU316",)),
    }  # fmt: skip
    texts = {(tmp_path / "out" / "trials" / n / "prefix_lm" / "150" / "1" / "kernel.cu").read_text() for n in names[:3]}
    assert texts == {right}
