"""The table of tested helpers: in step with the shipped headers, and readable only in its own shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.frontend.cuda.digest import Digests
from cubridge.frontend.cuda.lemmas import OPERATIONS, TABLE, load_lemmas, meaning
from cubridge.frontend.cuda.register import SHIPPED, current_digests, programs, register
from cubridge.frontend.cuda.vocabulary import INSTRUCTIONS, normal_ptx
from cubridge.ir.diagnostics import CuError
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import OPS
from tests.frontend.cuda.kernels import edited_headers, kernel_text, lift_text, shipped

OWN_ROW = """
[[lemma]]
name = "scores_of"
kind = "operation"
params = ["s", "k"]
op = "zero"
fields = { dst = "s" }
claims = "zero scores"
digests = []
"""


def _row(kind: str, *columns: str) -> str:
    lines = ["[[lemma]]", 'name = "x"', f'kind = "{kind}"', 'claims = "x"', *columns]
    return "\n".join(lines if any(c.startswith("digests") for c in columns) else [*lines, "digests = []"])


def test_digests_are_those_of_the_shipped_headers() -> None:
    stale = [row.name for row, digests in current_digests() if row.digests != set(digests)]
    assert stale == [], "register them again: python -m cubridge.frontend.cuda.register"


def test_every_row_is_complete() -> None:
    for row in load_lemmas().rows:
        assert row.claims, row.name
        assert row.digests, row.name
        if row.kind == "operation":
            assert row.op in OPERATIONS
            assert all(isinstance(f, bool) or meaning(f) for f in row.fields.values())


def test_a_digest_means_one_thing() -> None:
    rows = load_lemmas().rows
    assert sum(len(r.digests) for r in rows) == len(load_lemmas().by_digest)


def test_a_digest_covers_what_a_helper_calls() -> None:
    arch_programs = dict(programs(SHIPPED))
    program = arch_programs["sm_80"]
    digests = Digests(program)
    words = digests.function(program.functions["frag_row"][0])
    headers = edited_headers(
        ("common/tile_sm80.cuh", "return thread_index() / 32 * WARP_ROWS;", "return thread_index() / 32;")
    )
    with pytest.raises(CuError) as caught:
        lift_text("sm80", kernel_text("sm80"), headers)
    assert words in load_lemmas().by_digest
    assert any("no tested lane map of rows" in d.message for d in caught.value.diagnostics)


def test_a_kernel_brings_rows_of_its_own(tmp_path: Path) -> None:
    """A helper under a new name, with a new body, is a row more and no code."""
    header, old = "common/tile_sm80.cuh", "DEVICE void gemm_qk("
    body = (
        "DEVICE void scores_of(float (&s)[ROWS][S_COLS], const SharedTile<BLOCK_KV, HEAD_DIM>& k) { s[0][0] = 0.f; }\n"
    )
    headers = edited_headers((header, old, body + old))
    text = kernel_text("sm80").replace("gemm_qk(s, smem.q, smem.k[slot]);", "scores_of(s, smem.k[slot]);")
    with pytest.raises(CuError):
        lift_text("sm80", text, headers)
    table = tmp_path / "own.toml"
    table.write_text(OWN_ROW)
    folder = tmp_path / "kernels"
    for name in ("base", "ptx_sm80", "views", "fragments", "tile_sm80"):
        file = headers(f"common/{name}.cuh")
        assert file is not None
        (folder / "common").mkdir(parents=True, exist_ok=True)
        (folder / "common" / f"{name}.cuh").write_bytes(file.data)
    (folder / "sm80").mkdir()
    (folder / "sm80" / "attention_forward.cu").write_text(text)
    contract = folder / "sm80" / "attention_forward.toml"
    contract.write_bytes(SHIPPED[0].read_bytes())
    register(table, (contract,))
    kernel = lift_text("sm80", text, headers, lemmas=load_lemmas(table)).kernel
    assert kernel != shipped("sm80").kernel


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[lemma", "Expected"),
        ('[[lemma]]\nname = "x"\n', "digests"),
        ('[[lemma]]\nname = "x"\ndigests = []\nodd = 1\n', "odd"),
        (
            _row("macro", 'digests = ["a"]') + "\n" + _row("macro", 'digests = ["b", "a"]'),
            "another row claims the body of digest a",
        ),
        (_row("operator"), "no kind `operator`; there are value, operation"),
        (_row("value", 'means = "a +"'), "`a +` in `means` is no expression of CuIR"),
        (_row("value"), "`` in `means`"),
        (_row("type", 'means = "tiles"'), "no means `tiles`; there are tile, registers"),
        (_row("columns"), "`lanes`"),
        (_row("rows", 'team = "warp"', 'tile_rows = "8"', 'row_origin = "0"'), "no team `warp`"),
        (_row("operation", 'op = "no_such"'), "no op `no_such`"),
        (_row("operation", 'op = "zero"', 'fields = { to = "t" }'), "no fields `to`; there are dst"),
        (_row("operation", 'op = "cast"', 'fields = { dst = "t" }'), "`fields` of `cast` lacks src"),
    ],
)
def test_a_table_of_another_shape_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "table.toml"
    path.write_text(text)
    with pytest.raises(CuError) as caught:
        load_lemmas(path)
    assert caught.value.diagnostics[0].code == "CU424"
    assert says in caught.value.diagnostics[0].message


def test_a_fault_of_a_row_is_at_its_heading(tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    path.write_text(OWN_ROW + _row("operator"))
    with pytest.raises(CuError) as caught:
        load_lemmas(path)
    assert caught.value.diagnostics[0].span.location[0] == 1 + OWN_ROW.count("\n")


def test_registering_leaves_the_rest_of_the_table(tmp_path: Path) -> None:
    copy = tmp_path / "lemmas.toml"
    copy.write_bytes(TABLE.read_bytes())
    register(copy)
    assert copy.read_bytes() == TABLE.read_bytes()


def test_instructions_are_in_normal_form_and_mean_something() -> None:
    for text, instruction in INSTRUCTIONS.items():
        assert normal_ptx(text) == text
        assert instruction.claims
        assert instruction.op in (OPS if instruction.result is None else FUNCTIONS)
