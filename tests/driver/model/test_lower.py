"""Lowering by a model: what its tools do, what they refuse, and what is accepted at the end."""

from __future__ import annotations

import pytest

from cubridge.driver.lower import patched_source
from cubridge.driver.model.guard import Guard
from cubridge.driver.model.lower import helper_signatures, lower_system
from cubridge.driver.model.policy import Accept
from cubridge.driver.model.region_editor import RegionEditor
from cubridge.driver.sandbox import texts
from cubridge.driver.sandbox.process import InProcess
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.llm.tools import read_calls
from tests.driver.model.lowering_replies import chosen, edit, edits, lower, patched, region_lines, text_judge, tool
from tests.driver.model.talk import Scripted, lifted


def right_mask() -> list[str]:
    """The mask that the rules write."""
    return region_lines(patched("prefix_lm"), "mask")


def right_range() -> str:
    return edit("kv_range", region_lines(patched("prefix_lm"), "kv_range"))


def faults(reply: str, *accept: Accept) -> list[str]:
    """The codes of what a reply was refused for."""
    with pytest.raises(CuError) as caught:
        lower("prefix_lm", reply, accept=accept)
    assert caught.value.diagnostics[0].code == "CU705"
    return [d.code for d in caught.value.diagnostics[1:]]


def mask(*lines: str) -> str:
    """The mask of the rules with these lines at the head of its inner loop."""
    body = right_mask()
    at = next(n for n, line in enumerate(body) if "const int j" in line)
    return edit("mask", [*body[:at], *lines, *body[at:]])


def test_the_rules_text_by_edits() -> None:
    lowered, talk = lower("prefix_lm", tool("read_region mask"), edits("prefix_lm") + tool("check"), tool("finish"))
    assert lowered.patched == patched("prefix_lm")
    assert lowered.is_lifted
    assert isinstance(talk.provider, Scripted)
    prompts = [r.prompt for r in talk.provider.asked]
    assert "   7 |             s[r][c] = j < p.len_kv ? s[r][c] : -INFINITY;" in prompts[1]
    assert "emulator: 1 runs right" in prompts[2]
    assert [e["tool"] for e in talk.transcript.events if e["event"] == "tool"] == [
        "read_region", "edit_region", "edit_region", "check", "finish",
    ]  # fmt: skip


def two_columns() -> list[str]:
    """The mask of the rules, two columns a step."""
    body = [line.replace("++c", "c += 2") for line in right_mask()]
    at = next(n for n, line in enumerate(body) if "const int j" in line)
    body[at : at + 2] = [
        "            s[r][c] = kv_start + frag_col(c) <= last ? s[r][c] : -INFINITY;",
        "            s[r][c + 1] = kv_start + frag_col(c + 1) <= last ? s[r][c + 1] : -INFINITY;",
    ]
    return body


def test_text_that_lifting_cannot_read_is_judged_by_runs() -> None:
    """Two columns a step: right, and no form of the vocabulary."""
    body = two_columns()
    reply = right_range() + edit("mask", body) + tool("finish")
    assert faults(reply) == ["CU725", "CU425"]
    lowered, talk = lower("prefix_lm", reply, accept=(Accept.RUNS,))
    assert not lowered.is_lifted
    assert "runs alone judge it" in str(talk.transcript.events[-2]["result"])
    wrong = [line.replace("frag_col(c + 1) <= last", "frag_col(c + 1) <= last + 1") for line in body]
    assert faults(right_range() + edit("mask", wrong) + tool("finish"), Accept.RUNS) == ["CU844"]


def test_the_source_text_is_not_the_target() -> None:
    assert faults(tool("finish")) == ["CU316"]


def test_line_edits() -> None:
    last = "        const int last = imin(imax(i, p.len_q / 4 - 1), p.len_kv - 1);"
    call = tool(
        "edit_region mask", "@insert 3", "        const int i = tile.q_start + frag_row(r);", last,
        "@modify 7", "            s[r][c] = j <= last ? s[r][c] : -INFINITY;",
    )  # fmt: skip
    lowered, _ = lower("prefix_lm", right_range() + call, tool("finish"))
    assert lowered.patched == patched("prefix_lm")


OUTSIDE = {
    "a region that does not differ": tool("edit_region row_finalize", "@delete 1"),
    "the schedule": tool("edit_region work_tile", "@delete 1"),
    "the kernel's body": tool("edit_region attention_forward", "@delete 1-20"),
    "a file": tool("edit_region ../../../etc/passwd", "@insert 0", "root"),
    "a file to read": tool("read_region /etc/passwd"),
    "past the end": tool("edit_region mask", "@modify 9-12", "}"),
    "before the beginning": tool("edit_region mask", "@delete 0-3"),
    "a marker": tool("edit_region mask", "@insert 10", "// @endregion mask", "int evil;", "// @region mask"),
    "two edits of a line": tool("edit_region mask", "@modify 3-5", "x", "@delete 4"),
    "a long region": tool("edit_region mask", "@insert 1", *["// x"] * 500),
    "a long line": tool("edit_region mask", "@insert 1", "// " + "x" * 500),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_edits_outside_the_regions_that_differ(name: str) -> None:
    assert faults(OUTSIDE[name]) == ["CU716"]


UNREADABLE = {
    "no tool": "I think it is done.",
    "a tool of its own": tool("run_shell rm -rf /"),
    "no name": tool(""),
    "an edit without operation": tool("edit_region mask", "const int x = 1;"),
    "an operation of its own": tool("edit_region mask", "@replace 3", "x"),
    "a deletion with lines": tool("edit_region mask", "@delete 3", "x"),
    "too many calls": tool("compile") * 30,
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_calls_that_cannot_be_read(name: str) -> None:
    assert faults(UNREADABLE[name]) == ["CU715"]


FORBIDDEN = [
    '#include "/etc/passwd"', '%:include "common/base.cuh"', "#define j0 system", "#if 0", 'asm volatile("trap;");',
    '__asm__("nop");', 'system("true");', "printf(1);", "emu_fault(1);", "block_sync();", "cp_async_wait<0>();",
    "const int t = threadIdx.x;", "float* x = (float*)p.exponent_scale;", "s[0][0] = *p.lse;", "p.o[0] = 1;",
    "p.lse[0] = 0.f;", "while (true) {}", "do {} while (true);", "goto end;", "auto f = [] { return 1; };", "throw 1;",
    "static int x;", "volatile int x = 1;", "const int x = sizeof(int);", "new int;", "using X = int;", "extern int y;",
    "_Pragma(unroll)", "// a comment \\", "// ??/", "/* not closed", "} } } } void evil() { { { {", "const char c = 'x';",
    "std::abort();", "::abort();", "(&s)[0][0][0] = 1;", "__trap();", "exit(0);", "const float x = p.q[0];", "union U { int a; };",
    "s[0][0] = undeclared;", "operator new(1);", "(system)(1);", "(p).o[0] = 1;", "const float x = (p).v[0];",
    "float x; s[0][0] = x;", "int n, m = 1;",
]  # fmt: skip


@pytest.mark.parametrize("line", FORBIDDEN)
def test_cuda_that_a_model_may_not_write(line: str) -> None:
    editor = RegionEditor(chosen().text.source, lifted().source_map, ("mask",))
    [call] = read_calls(mask(f"            {line}"))
    editor.edit(call)
    source, instance = patched_source(editor.patched()), chosen().instantiation("bf16", 64)
    with pytest.raises(CuError) as caught:
        Guard.of(chosen(), instance).check(chosen(), source, ["mask"], instance)
    assert {d.code for d in caught.value.diagnostics} <= {"CU717", "CU420"}


TENSORS = {
    "in brackets": ("", "(p).lse"),
    "behind a call": ("DEVICE const Params& same(const Params& p) { return p; }", "same(p).lse"),
    "in a struct that is made": ("struct Zed { Params p; };", "Zed{p}.p.lse"),
    "in a struct": ("struct Zed { Params p; };", "z.p.lse"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_is_known_by_its_object(name: str) -> None:
    head, tensor = TENSORS[name]
    local = "            const Zed z = {p};\n" if "z.p" in tensor else ""
    body = [*([head] if head else []), *right_mask()]
    at = next(n for n, line in enumerate(body) if "const int j" in line)
    body[at:at] = [f"{local}            s[r][c] = {tensor}[0];"]
    assert {*faults(right_range() + edit("mask", body) + tool("check"))} == {"CU717"}


@pytest.mark.parametrize(
    "head",
    [
        "DEVICE void row_rescale(float (&o)[ROWS][O_COLS], RowState& row, WorkTile& tile, Params& p) {}",
        "DEVICE float exp2_approx(int x) { return 1.f; }",
        "DEVICE void zero(float (&t)[ROWS][S_COLS]) {}",
        "DEVICE void mask(float (&s)[ROWS][S_COLS], long kv_start, const WorkTile& tile, const Params& p) {}",
    ],
)
def test_a_region_overloads_nothing(head: str) -> None:
    """A better match than what the body calls now would take over its call."""
    said = faults(right_range() + edit("mask", [head, *right_mask()]) + tool("check"))
    assert {*said} == {"CU717"}


def test_text_that_lifting_cannot_read_has_no_numbers_of_its_own() -> None:
    special = [line.replace("<= last ?", "<= last || p.len_q > 1000 ?") for line in two_columns()]
    assert faults(right_range() + edit("mask", special) + tool("finish"), Accept.RUNS) == ["CU717"]


@pytest.mark.parametrize(("is_reply", "exit_code"), [(True, 1), (False, 6)])
def test_an_endless_run_ends_its_reply_alone(is_reply: bool, exit_code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply is refused with an exit code below that of a tool that is out of time, which ends an adaptation."""

    class Endless:
        def run(self, *_: object) -> None:
            raise CuError(Diagnostic("CU837", "emulator: the kernel does not end"), exit_code=6)

    monkeypatch.setattr(texts, "emulate", lambda *_: Endless())
    problem = text_judge("prefix_lm").values._problems(lifted().kernel)[0]  # pyright: ignore
    runner = texts.SandboxTools(InProcess(), is_reply=is_reply).emulator(chosen().text, "bf16")
    with pytest.raises(CuError, match="does not end") as caught:
        runner.run(problem, lse=False)
    assert caught.value.exit_code == exit_code


def test_no_tool_compiles_or_runs_it() -> None:
    evil = mask('            system("true");')
    for name in ("compile", "check", "finish"):
        assert {*faults(evil + tool(name))} == {"CU717"}


def test_a_region_may_define_a_function_of_its_own() -> None:
    helper = "DEVICE bool sees(int last, int j) { return j <= last; }"
    body = [helper, *(line.replace("j <= last ?", "sees(last, j) ?") for line in right_mask())]
    assert lower("prefix_lm", right_range() + edit("mask", body) + tool("finish"))[0].is_lifted


def test_what_the_prompt_says() -> None:
    system = lower_system(chosen())
    for part in (
        "float row_max(const float (&row)[S_COLS])",
        "`finish`",
        "edit_region mask",
        "// @captured doc[B, Lk] pad 128",
    ):
        assert part in system
    signatures = "\n".join(helper_signatures(chosen("sm90a")))
    assert "frag_row" in signatures
    assert "block_sync" not in signatures
    _, talk = lower("alibi", edits("alibi") + tool("finish"))
    assert isinstance(talk.provider, Scripted)
    prompt = talk.provider.asked[0].prompt
    for part in ("+ slopes=Captured(f32, Hq)", "tile.slopes = p.slopes[tile.h] * p.slopes_scale", "struct Params {"):
        assert part in prompt
