"""Parameters in structures: filled by the names of their fields, wherever the compiler puts those."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cubridge.backend.ptx.machine import Schedule
from cubridge.driver.foreign.build import build
from cubridge.driver.foreign.given import given_of
from cubridge.driver.foreign.launch import launch_of, outputs_of, placed_values
from cubridge.frontend.ptx.contract import read_foreign_contract
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError
from cubridge.ir.foreign import ForeignContract
from cubridge.ir.nodes import Name
from cubridge.ir.source import SourceFile
from tests.driver.foreign.kernels import FOLDER


def contract() -> ForeignContract:
    return read_foreign_contract(FOLDER / "peeled.toml")


def test_a_kernel_with_a_structure_runs() -> None:
    """Fields of inner structures, a flag between them, and a pointer that is null."""
    said = contract()
    built = build(SourceFile.read(FOLDER / "peeled.cu"), said, FOLDER)
    layout = built.layouts["params"]
    assert (layout.bytes, layout.fields["params.is_bf16"].offset, layout.fields["params.lengths.queries"].offset) == (
        128, 96, 100,
    )  # fmt: skip
    launch = launch_of(built, said, said.shapes[0])
    out = outputs_of(said, launch.shape, built.machine.run(launch.ptx, Schedule.FORWARD, 10.0))["o"].double()
    q, k, v = (launch.inputs[name].double() for name in "qkv")
    hidden = torch.arange(launch.shape.Lk) > torch.arange(launch.shape.Lq)[:, None] + launch.shape.Lk - launch.shape.Lq
    scores = (q @ k.transpose(-1, -2) * launch.shape.D**-0.5).masked_fill(hidden, -torch.inf)
    torch.testing.assert_close(out, scores.softmax(-1) @ v, atol=8e-3, rtol=0)
    given = given_of(said, launch.shape, placed_values(built, said), 128)
    lengths = layout.fields["params.lengths.queries"].offset
    assert given.read(lengths, 4) == Poly.atom(Name("Lq")) and given.read(lengths, 8) is None
    assert given.read(88, 8) == Poly(()) and given.read(128, 4) is None


def test_a_contract_over_another(tmp_path: Path) -> None:
    """It has the keys of both, its own first; what is wrong is told at the line of the file that says it."""
    for name, text in (
        ("one", 'base = "two.toml"\nthreads = 32'),
        ("two", f'base = "{FOLDER}/peeled.toml"\nshared_bytes = 1'),
    ):
        end = '[parameters.params]\nright = "int 3"\n' if name == "one" else ""
        (tmp_path / f"{name}.toml").write_text(f'version = 1\nkind = "foreign"\n{text}\n{end}')
    said, base = read_foreign_contract(tmp_path / "one.toml"), contract()
    assert (said.threads, said.shared_bytes, said.entry, said.shapes) == (32, 1, base.entry, base.shapes)
    changed = {p.name for p, q in zip(said.values, base.values, strict=True) if p != q}
    assert changed == {"params.right"} and said.place("entry").file.name == str(FOLDER / "peeled.toml")
    (tmp_path / "two.toml").write_text('version = 1\nkind = "foreign"\nbase = "one.toml"\n')
    with pytest.raises(CuError) as caught:
        read_foreign_contract(tmp_path / "two.toml")
    assert caught.value.diagnostics[0].code == "CU451" and "its own base" in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ('queries = "int Lq"', 'rows = "int Lq"', "CU852", 'has no member "rows"'),
        ('row = "long D"\n\n[parameters.params.of_keys]', 'row = "int D"\n\n[parameters.params.of_keys]', "CU852",
         "`params.of_queries.row` has 8 bytes in the kernel, not those of `int`"),
        ('struct = "Params"', 'struct = "Lengths"', "CU852", "has no member"),
        ('struct = "Params"\n', "", "CU451", "the key `struct` is missing in [parameters.params]"),
    ],
)  # fmt: skip
def test_a_structure_that_does_not_fit(old: str, new: str, code: str, says: str, tmp_path: Path) -> None:
    """Told at its line of the contract."""
    text = (FOLDER / "peeled.toml").read_text()
    assert text.count(old) == 1
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(CuError) as caught:
        build(SourceFile.read(FOLDER / "peeled.cu"), read_foreign_contract(path), FOLDER)
    first = caught.value.diagnostics[0]
    assert first.code == code and first.span.file.name == str(path) and says in first.message, first
