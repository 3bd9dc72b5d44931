"""Rewrites of the kernel texts that preserve behaviour, each as edits (old, new) of the shipped text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rewrite:
    """`only`: the architecture whose text it fits, "" for both."""

    name: str
    apply: Callable[[str], str]
    only: str = ""


def swap(*edits: tuple[str, str]) -> Callable[[str], str]:
    def apply(text: str) -> str:
        for old, new in edits:
            assert old in text, old
            text = text.replace(old, new)
        return text

    return apply


def rename(**names: str) -> Callable[[str], str]:
    """Whole words, outside the comments that mark regions and fields."""

    def apply(text: str) -> str:
        head, code = _code_of(text)
        for old, new in names.items():
            pattern = rf"(?<![.@\w]){old}\b(?!\s*\()"
            assert re.search(pattern, code), old
            code = re.sub(pattern, new, code)
        return head + code

    return apply


def _code_of(text: str) -> tuple[str, str]:
    """What comes before the functions, and the functions."""
    at = text.index("// @region tile_setup")
    return text[:at], text[at:]


def reflow(text: str) -> str:
    """Another layout of every line of code outside directives, markers and fields."""

    head, code = _code_of(text)
    lines = (
        line
        if "//" in line or "#" in line
        else line.replace("{\n", "\n{\n").replace(", ", " ,\n            ").replace("; ++", " ;++")
        for line in code.splitlines(keepends=True)
    )
    return head + "".join(lines)


def reindent(text: str) -> str:
    return re.sub(r"(?m)^( +)", lambda m: "\t" * (len(m[1]) // 4), text)


def comment(text: str) -> str:
    """A comment, with code in it, behind every statement and in the middle of calls."""
    text = re.sub(r";\n", "; /* block_sync(); ä */  // gemm_qk(s, q, k);\n", text)
    return text.replace("(s, row,", "(s, /* the state */ row,")


def without_comments(text: str) -> str:
    return "".join(
        re.sub(r"[ \t]*//(?! @).*", "", line) if "// @" not in line else line for line in text.splitlines(keepends=True)
    )


HELPER_COPY = """
DEVICE void load_keys(SharedTile<BLOCK_KV, HEAD_DIM>& to, const HeadView& from, const KeySequence& keys, int step,
                      const Params& p) {
    load_tile_async(to, from, key_tile(keys, step, p) * BLOCK_KV);
}
KERNEL("""

HELPER_SOFTMAX = """
DEVICE void absorb(float (&x)[ROWS][S_COLS], RowState& state, int start, const WorkTile& work, const Params& params) {
    row_update(x, state, start, work, params);
}
KERNEL("""

HELPER_SAFE = """
DEVICE float finite_or_zero(float x) {
    if (x == -INFINITY) return 0.f;
    return x;
}
// @region row_update"""

HELPER_RELEASE = """
DEVICE void release(Barrier& barrier, bool first) {
    if (first) barrier_arrive(barrier);
}
KERNEL("""

REWRITES = (
    Rewrite("layout", reflow),
    Rewrite("tabs", reindent),
    Rewrite("comments", comment),
    Rewrite("no comments", without_comments),
    Rewrite(
        "renamed locals",
        rename(
            m_new="reference",
            m_safe="shift",
            inv="scale",
            count="steps",
            o="acc",
            lse="logsum",
            t="step",
            n="key_block",
            heads="width",
        ),
    ),
    Rewrite(
        "renamed arguments",
        swap(
            (
                "DEVICE void mask(float (&s)[ROWS][S_COLS], int kv_start, const WorkTile& tile, const Params& p) {",
                "DEVICE void mask(float (&scores)[ROWS][S_COLS], int first, const WorkTile& where, const Params& params) {",
            ),
            ("const int j = kv_start + frag_col(c);", "const int j = first + frag_col(c);"),
            ("s[r][c] = j < p.len_kv ? s[r][c]", "scores[r][c] = j < params.len_kv ? scores[r][c]"),
        ),
    ),
    Rewrite(
        "loop variables and steps",
        swap(
            ("for (int r = 0; r < ROWS; ++r)", "for (int r = 0; r < ROWS; r++)"),
            ("for (int c = 0; c < O_COLS; ++c)", "for (int c = 0; O_COLS > c; c += 1)"),
            ("for (int t = 0; t < count; ++t)", "for (int t = 0; t <= count - 1; t++)"),
        ),
    ),
    Rewrite(
        "parentheses and braces",
        swap(
            (
                "if (key_masked(keys, t, p)) mask(s, n * BLOCK_KV, tile, p);",
                "if ((key_masked(keys, (t), p))) { { mask(s, (n * BLOCK_KV), tile, p); } }",
            ),
            (
                "s[r][c] * p.exponent_scale - row.m_exponent[r]",
                "((s[r][c] * (p.exponent_scale)) - (row.m_exponent[r]))",
            ),
            ("count > 0", "(count) > (0)"),
        ),
    ),
    Rewrite(
        "order of sums, index through locals",
        swap(
            (
                "            const int j = kv_start + frag_col(c);\n            s[r][c] = j < p.len_kv ?",
                "            const int column = frag_col(c);\n            s[r][c] = column + kv_start < p.len_kv ?",
            ),
        ),
    ),
    Rewrite(
        "declaration, then assignment",
        swap(
            (
                "        const float m_safe = m_new == -INFINITY ? 0.f : m_new;",
                "        float m_safe;\n        m_safe = m_new == -INFINITY ? 0.f : m_new;",
            ),
            ("const int count = key_count(keys, p);", "int count;\n            count = key_count(keys, p);"),
        ),
    ),
    Rewrite(
        "value helper",
        swap(("// @region row_update", HELPER_SAFE[1:]), ("m_new == -INFINITY ? 0.f : m_new", "finite_or_zero(m_new)")),
    ),
    Rewrite(
        "statement helper",
        swap(
            ("KERNEL(", HELPER_SOFTMAX[1:]),
            ("        row_update(s, row, n * BLOCK_KV, tile, p);", "        absorb(s, row, n * BLOCK_KV, tile, p);"),
        ),
    ),
    Rewrite(
        "copy helper",
        swap(
            ("KERNEL(", HELPER_COPY[1:]),
            (
                "if (t + 1 < count) load_tile_async(smem.k[slot ^ 1], k_gmem, key_tile(keys, t + 1, p) * BLOCK_KV);",
                "if (t + 1 < count) load_keys(smem.k[slot ^ 1], k_gmem, keys, t + 1, p);",
            ),
        ),
        only="sm80",
    ),
    Rewrite(
        "release helper",
        swap(
            ("KERNEL(", HELPER_RELEASE[1:]),
            ("if (leader) barrier_arrive(smem.v_empty[v_slot]);", "release(smem.v_empty[v_slot], leader);"),
        ),
        only="sm90a",
    ),
    Rewrite(
        "reference to a slot",
        swap(
            (
                "gemm_qk(s, smem.q, smem.k[slot]);",
                "SharedTile<BLOCK_KV, HEAD_DIM>& keys_here = smem.k[slot];\n        gemm_qk(s, smem.q, keys_here);",
            )
        ),
        only="sm80",
    ),
    Rewrite("while", swap(("for (;;) {", "while (true) {")), only="sm90a"),
    Rewrite("compound assignment", swap(("slot ^= 1;", "slot = slot ^ 1;")), only="sm80"),
    Rewrite("compound product", swap(("o[r][c] = o[r][c] * inv;", "o[r][c] *= inv;"))),
    Rewrite(
        "short circuit", swap(("(n < keys.full_lo) | (n >= keys.full_hi)", "n < keys.full_lo || n >= keys.full_hi"))
    ),
    Rewrite(
        "struct by fields",
        swap(
            (
                "    return KeySequence{lo, hi, full_lo, full_hi};",
                "    KeySequence keys{lo, hi, full_lo, full_hi};\n    return keys;",
            )
        ),
    ),
    Rewrite("CRLF", lambda text: text.replace("\n", "\r\n")),
)
