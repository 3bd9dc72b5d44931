"""A kernel that calls its macros, helpers, structs and shared tiles by other names, with headers of its own: rows of a table, and
no change of code, make it one of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cubridge.cli import main
from cubridge.driver.kernels import FOLDER
from cubridge.frontend.cuda import register
from cubridge.frontend.cuda.lemmas import TABLE
from cubridge.judge import tools

EXAMPLES = Path(__file__).parents[2] / "examples"
MACROS = {"HEAD_DIM": "DIM", "BLOCK_Q": "QUERIES", "BLOCK_KV": "KEYS", "WARPS": "WARP_COUNT", "STAGES": "SLOTS"}
NAMES = MACROS | {
    "SharedTiles": "Slots", "SharedTile": "Tile", "ProbTile": "Weights", "WorkTile": "Place", "RowState": "Running",
    "HeadView": "Rows", "RowView": "RowValues", "OutputView": "OutRows", "head_view": "rows_of", "row_view": "values_of",
    "load_tile_async": "fetch", "gemm_qk": "dot", "gemm_pv": "add_product", "cast_probs": "narrow", "zero": "clear",
    "store_tile": "put", "store_rows": "put_values", "exponent_scale": "unit_log2", "attention_forward": "renamed",
    "q_blocks": "query_tiles", "len_kv": "keys_count",
}  # fmt: skip
HEADERS = ("tile_sm80.cuh", "fragments.cuh", "views.cuh")


def renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b(" + "|".join(names) + r")\b", lambda m: names[m[1]], text)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """renamed.cu with its contract, its header and its table."""
    tiles, fragments, views = ((FOLDER / "common" / name).read_text().replace("#pragma once", "") for name in HEADERS)
    views = views.replace('#include "common/base.cuh"', "")
    fragments = fragments.replace('#include "common/ptx_sm80.cuh"', "").replace('#include "common/views.cuh"', views)
    header = tiles.replace('#include "common/fragments.cuh"', fragments)
    (tmp_path / "tiles.cuh").write_text(renamed(header, NAMES))
    text = (FOLDER / "sm80" / "attention_forward.cu").read_text().replace("common/tile_sm80.cuh", "tiles.cuh")
    for old, new in (("smem.q", "smem.query"), ("smem.k", "smem.key"), ("smem.v", "smem.value")):
        text = re.sub(rf"{re.escape(old)}\b", new, text)
    text = text.replace("> q;", "> query;").replace("> k[STAGES], v[STAGES]", "> key[STAGES], value[STAGES]")
    (tmp_path / "renamed.cu").write_text(renamed(text, NAMES))
    contract = (FOLDER / "sm80" / "attention_forward.toml").read_text().replace('include = ".."', 'include = "."')
    (tmp_path / "renamed.toml").write_text(renamed(contract, NAMES))
    (tmp_path / "renamed.lemmas.toml").write_text(table(tmp_path / "tiles.cuh"))
    return tmp_path / "renamed.cu"


def table(header: Path) -> str:
    """The packaged rows of what the header declares, by its names."""
    rows: list[str] = []
    for row in TABLE.read_text().split("[[lemma]]")[1:]:
        row = re.sub(r"(?m)^# ---.*\n", "", row)
        row = re.sub(r'name = "(\w+)"', lambda m: f'name = "{NAMES.get(m[1], m[1])}"', renamed(row, MACROS))
        name = re.search(r'name = "(\w+)"', row)
        assert name is not None
        if "sm_90a" not in row and '"full"' not in row and re.search(rf"\b{name[1]}\b", header.read_text()):
            rows.append(re.sub(r"digests = .*", "digests = []", row))
    return "".join(f"[[lemma]]{row}" for row in rows)


def refuse(*_: object) -> None:
    raise AssertionError("a text of a user is compiled or run in this process")


def test_it_is_lifted_broken_and_adapted(
    kernel: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("compile", "emulator"):
        monkeypatch.setattr(tools.Here, name, refuse)
    contract, rows = str(kernel.with_suffix(".toml")), str(kernel.with_suffix(".lemmas.toml"))
    assert main(["lift", str(kernel)]) == 1
    assert "is a row of kind `rows` in FILE.lemmas.toml" in capfd.readouterr().err
    assert register.main([contract, rows]) == 0
    assert main(["verify", str(kernel), "--head-dim", "64"]) == 0
    assert main(["faults", str(kernel), "--head-dim", "64", "--every", "96"]) == 0
    variant = [str(EXAMPLES / "documents.py"), "--kernel", str(kernel), "--shape", "1,4,2,200,200,64"]
    assert main(["adapt", *variant, "-o", str(tmp_path)]) == 0


def test_a_row_of_nothing_is_a_fault(kernel: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = kernel.with_suffix(".lemmas.toml")
    rows.write_text(rows.read_text().replace('name = "fetch"', 'name = "fetches"'))
    assert register.main([str(kernel.with_suffix(".toml")), str(rows)]) == 1
    assert "no text declares `fetches` with 3 parameters" in capfd.readouterr().err
