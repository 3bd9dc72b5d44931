"""What a kernel text must not say is refused at its place, with what to do; all faults at once, never a traceback."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cubridge.ir.diagnostics import render
from tests.frontend.cuda.kernels import edited, faults_of, kernel_text


@dataclass(frozen=True, slots=True)
class Case:
    """Edits of a text; the code, the words of the message and the text that the fault points at."""

    name: str
    edits: tuple[tuple[str, str], ...]
    code: str
    says: str
    at: str
    arch: str = "sm80"


MASK_LINE = "s[r][c] = j < p.len_kv ? s[r][c] : -INFINITY;"
PROBS_LINE = "s[r][c] = exp2_approx(s[r][c] * p.exponent_scale - row.m_exponent[r]);"
UPDATE_LINE = "row.m[r] = m_new;"
SETUP = "DEVICE void tile_setup(WorkTile& tile, const Params& p) {}"


def in_setup(code: str) -> tuple[str, str]:
    return (SETUP, SETUP.replace("{}", "{\n    " + code + "\n}"))


CASES = (
    # markers
    Case("region not closed", (("// @endregion score\n", ""),), "CU422", "`score` is not closed", "// @region score"),
    Case("region closed twice", (("// @endregion mask\n", "// @endregion mask\n// @endregion mask\n"),), "CU422", "closes nothing", "// @endregion mask"),
    Case("unknown region", (("// @region mask\n", "// @region masque\n"),), "CU422", "no region `masque`", "// @region masque"),
    Case("region missing", (("// @region mask\n", ""), ("// @endregion mask\n", "")), "CU422", "no region `mask`", ""),
    Case("region twice", (("// @region row_init\n", "// @region score\n// @endregion score\n// @region row_init\n"),), "CU422", "marked twice", "// @region score"),
    Case("region inside a region", (("// @region row_init\n", "// @region row_init\n// @region row_init\n"),), "CU422", "not closed", "// @region row_init"),
    Case("function outside its region", (("// @region row_init\n", ""), ("// @endregion row_init\n", "// @region row_init\n// @endregion row_init\n")), "CU429", "not inside its region", "void row_init"),
    # text
    Case("syntax", (("int slot = 0;", "int slot = = 0;"),), "CU420", "does not read", "="),
    Case("missing bracket", (("block_sync();        //", "block_sync(;  //"),), "CU420", "", ""),
    Case("header", (('#include "common/tile_sm80.cuh"', '#include "common/tile_sm81.cuh"'),), "CU421", "`common/tile_sm81.cuh` is not there", "#include"),
    Case("condition", (("#ifndef WARPS", "#if WARPS >"),), "CU421", "cannot decide", "#if WARPS >"),
    Case("no endif", (("#ifndef STAGES\n", "#ifndef STAGE_COUNT\n#ifndef STAGES\n"),), "CU421", "no `#endif`", "#ifndef STAGE_COUNT"),
    Case("macro again", (("#include", "#define WARPS 8\n#include"),), "CU421", "`WARPS` is defined again", "#define WARPS 8"),
    # vocabulary
    Case("unknown call", (("gemm_qk(s, smem.q, smem.k[slot]);", "gemm_qq(s, smem.q, smem.k[slot]);"),), "CU423", "`gemm_qq` is not in the vocabulary", "gemm_qq("),
    Case("pointer arithmetic", (("const HeadView q_gmem = head_view(p.q,", "const HeadView q_gmem = head_view(p.q + 1,"),), "CU423", "pointer arithmetic", "p.q + 1"),
    Case("auto", (("const int n = key_tile(keys, t, p);\n        float", "const auto n = key_tile(keys, t, p);\n        float"),), "CU423", "`auto` hides the type", "const auto n"),
    Case("double", ((UPDATE_LINE, "row.m[r] = m_new + 1.0;"),), "CU423", "`1.0` is a double", "1.0"),
    Case("unsigned", (("slot ^= 1;", "slot ^= 1u;"),), "CU423", "unsigned", "1u"),
    Case("cast of a pointer", (("p.lse != nullptr", "(i64)p.lse != 0"),), "CU423", "", ""),
    Case("goto", (("slot ^= 1;", "goto done; done: slot ^= 1;"),), "CU423", "no CuIR meaning for goto statement", "goto done;"),
    Case("do", (("slot ^= 1;", "do { slot ^= 1; } while (slot == 3);"),), "CU423", "no CuIR meaning for do statement", "do {"),
    Case("asm in the kernel", (("slot ^= 1;", 'slot ^= 1; asm volatile("trap;");'),), "CU423", "`trap;` is not in the vocabulary", 'asm volatile("trap;")'),
    Case("value dropped", (("slot ^= 1;", "slot ^= 1; key_count(keys, p);"),), "CU423", "is dropped", "key_count(keys, p);"),
    Case("copy of a tile", (("slot ^= 1;", "slot ^= 1; SharedTile<BLOCK_KV, HEAD_DIM> copy = smem.k[0];"),), "CU423", "a copy of", "SharedTile"),
    Case("early return", (("slot ^= 1;", "slot ^= 1; if (slot == 5) { slot = 0; return; }"),), "CU423", "`return` must end a branch", "return;"),
    Case("changed loop bound", (("slot ^= 1;", "slot ^= 1; count_ = 0;"), ("const int count = key_count(keys, p);", "int count_ = key_count(keys, p);\n    const int count = count_;")), "", "", ""),
    # element loops
    Case("lane index as a value", ((MASK_LINE, "s[r][c] = (float)c;"),), "CU425", "used as a value", "(float)c"),
    Case("constant subscript", ((MASK_LINE, "s[r][0] = -INFINITY;"),), "CU425", "must be the variable of a loop", "0"),
    Case("subscripts swapped", ((MASK_LINE, "s[c][r] = -INFINITY;"),), "CU425", "must be the variable of a loop over the rows", "c"),
    Case("partial loop", (("for (int c = 0; c < S_COLS; ++c) {\n            const int j", "for (int c = 1; c < S_COLS; ++c) {\n            const int j"),), "CU425", "counts from 0 by 1", "for (int c = 1"),
    Case("half a loop", (("for (int c = 0; c < S_COLS; ++c) {\n            const int j", "for (int c = 0; c < S_COLS / 2; ++c) {\n            const int j"),), "CU425", "does not run over all", "S_COLS / 2"),
    Case("reduction in its loop", ((MASK_LINE, "s[r][c] = s[r][c] - row_max(s[r]);"),), "CU425", "reads all columns inside a loop over them", "row_max(s[r])"),
    Case("row value written per column", ((PROBS_LINE, PROBS_LINE + "\n        row.m[r] = s[r][c];"),), "CU425", "written once per column", "row.m[r] = s[r][c];"),
    Case("scalar written per row", ((UPDATE_LINE, UPDATE_LINE + "\n        seen = m_new;"), ("    #pragma unroll\n    for (int r = 0; r < ROWS; ++r) {\n        const float m_max", "    float seen;\n    #pragma unroll\n    for (int r = 0; r < ROWS; ++r) {\n        const float m_max")), "CU425", "written once per row", "seen = m_new;"),
    Case("tile coordinate of a row", ((MASK_LINE, "s[r][c] = frag_row(0) < p.len_kv ? s[r][c] : -INFINITY;"),), "CU425", "lane map of rows", "frag_row(0)"),
    Case("branch in a region", ((UPDATE_LINE, "if (m_new > 0.f) { row.m[r] = m_new; row.l[r] = 0.f; }"),), "CU423", "a branch in a region", "if (m_new > 0.f)"),
    Case("vote per row", (("bool moved[ROWS];", "bool moved[ROWS];\n    for (int r = 0; r < ROWS; ++r) { moved[r] = any_lane(row.o_scale[r] != 1.f); }"),), "CU425", "a vote inside an element loop", "any_lane("),
    # integers
    Case("division that truncates", (in_setup("const int x = (tile.q_start - p.len_kv) / 4;"),), "CU426", "the dividend may be negative", "(tile.q_start - p.len_kv) / 4"),
    Case("remainder that truncates", (in_setup("const int x = tile.h % (p.len_q - p.len_kv);"),), "CU426", "the divisor may be negative", "tile.h %"),
    # the contract
    Case("stride of another tensor", (("head_view(p.k, p.k_batch, p.k_head", "head_view(p.k, p.k_batch, p.v_head"),), "CU428", "stride 1 of `v`", "head_view(p.k"),
    Case("length of another tensor", (("p.k_row, tile.b, tile.hk, p.len_kv)", "p.k_row, tile.b, tile.hk, p.len_q)"),), "CU428", "the rows of this view are not those of `k`", "head_view(p.k"),
    Case("no such parameter", (("p.len_kv / BLOCK_KV", "p.len_k / BLOCK_KV"),), "CU423", "no parameter `len_k`", "p.len_k"),
    Case("stride as a number", (in_setup("const int x = p.q_row;"),), "CU423", "has no value in CuIR", "p.q_row"),
    # structure
    Case("region function missing", (("DEVICE int key_count(", "DEVICE int keys_count("),), "CU429", "no function `key_count`", ""),
    Case("arguments of a region", (("DEVICE void score(float (&s)[ROWS][S_COLS], int kv_start, ", "DEVICE void score(float (&s)[ROWS][S_COLS], "),), "CU429", "`score` takes s, kv_start, tile", "void score"),
    Case("type of an argument", (("DEVICE int key_tile(const KeySequence& keys, int t,", "DEVICE int key_tile(const KeySequence& keys, float t,"),), "CU429", "argument `t` of `key_tile` has another type", "float t"),
    # thread tests
    Case("thread test", (("slot ^= 1;", "if (thread_index() < 32) block_sync();\n        slot ^= 1;"),), "CU427", "test of the thread index", "thread_index()"),
    Case("leader does more", (("if (leader) barrier_arrive(smem.v_empty[v_slot]);", "if (leader) { barrier_arrive(smem.v_empty[v_slot]); v_ring.next(); }"),), "CU427", "guards more than arrivals", "if (leader)", "sm90a"),
    Case("another leader", (("const bool leader = thread_index() % WARPGROUP == 0;", "const bool leader = thread_index() % WARPGROUP < 2;"),), "CU427", "test of the thread index", "thread_index()", "sm90a"),
)  # fmt: skip


@pytest.mark.parametrize("case", [c for c in CASES if c.code], ids=lambda c: c.name)
def test_refused_at_its_place(case: Case) -> None:
    text = edited(case.arch, *case.edits)
    faults = faults_of(case.arch, text)
    fitting = [f for f in faults if f.code == case.code and case.says in f.message and f.span.text.startswith(case.at)]
    assert fitting, render(faults)
    assert "Traceback" not in render(faults)


def test_all_faults_are_listed() -> None:
    text = edited(
        "sm80",
        ("slot ^= 1;", "slot ^= 1; wait_for_it();"),
        (MASK_LINE, "s[r][c] = sigmoid(s[r][c]);"),
        ("const float inv = l == 0.f ? 0.f : 1.f / l;", "const float inv = l == 0.f ? 0.f : reciprocal(l);"),
        in_setup("tile.q_start = 0;"),
    )
    faults = faults_of("sm80", text)
    places = [(f.span.location[0], f.message) for f in faults]
    assert places == sorted(places)
    names = ("only the schedule", "`sigmoid`", "`reciprocal`", "`wait_for_it`")
    assert [next(n for n in names if n in message) for _, message in places] == list(names)


def test_what_follows_a_fault_is_not_a_fault() -> None:
    faults = faults_of("sm80", edited("sm80", ("const int count = key_count(keys, p);", "const int count = number_of(keys, p);")))
    assert [f.message for f in faults] == ["`number_of` is not in the vocabulary"]


def test_a_fault_inside_a_helper_is_told_at_the_call() -> None:
    helper = "DEVICE int twice(int x) { return x * atomicCAS(x); }\nKERNEL("
    faults = faults_of("sm80", edited("sm80", ("KERNEL(", helper), ("slot ^= 1;", "slot = twice(slot);")))
    assert [f.message for f in faults] == ["`atomicCAS` is not in the vocabulary"]
    assert faults[0].span.text == "atomicCAS(x)"


@pytest.mark.parametrize("text", [b"", b" \n\n", b"\xef\xbb\xbf"])
def test_an_empty_text(text: bytes) -> None:
    from tests.frontend.cuda.direct import direct_faults

    assert [f.code for f in direct_faults(text)] == ["CU420"]


@pytest.mark.parametrize("cut", range(400, 10000, 700))
def test_a_cut_text_is_refused_without_a_traceback(cut: int) -> None:
    from tests.frontend.cuda.direct import direct_faults

    assert direct_faults(kernel_text("sm80").encode()[:cut])


@pytest.mark.parametrize("byte", [b"\x00", b"\xff", b"\xf0\x9f", b'"', b"'", b"/*", b"\\", b"#", b"(", b"}"])
def test_odd_bytes_do_no_harm(byte: bytes) -> None:
    from tests.frontend.cuda.direct import direct_faults

    data = kernel_text("sm80").encode()
    for at in range(500, len(data), 1900):
        direct_faults(data[:at] + byte + data[at:])
