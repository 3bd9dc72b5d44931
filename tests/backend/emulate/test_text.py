"""Which declarations the emulator's copy of a text poisons."""

from __future__ import annotations

import pytest

from cubridge.backend.emulate.text import with_poison


def poisoned(statement: str) -> str:
    text = f"DEVICE void f() {{\n    {statement}\n}}\n"
    return with_poison(text.encode()).decode().splitlines()[1].strip()


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("float s[ROWS][S_COLS];  // scores", "s"),
        ("RowState row;", "row"),
        ("float a, b[2];", "a, b"),
        ("Ring<STAGES> k_ring, v_ring;", "k_ring, v_ring"),
        ("int* p;", ""),
        ("float x = 0.f;", ""),
        ("return x;", ""),
        ("zero(o);", ""),
        ("const float x;", ""),
        ("x = y;", ""),
        ("// float x;", ""),
    ],
)
def test_declarations_without_initialiser(statement: str, names: str) -> None:
    if not names:
        assert poisoned(statement) == statement
        return
    declaration, _, rest = statement.partition(";")
    assert poisoned(statement) == f"{declaration}; emu_poison({names});{rest}"


def test_fields_and_globals_stay_and_lines_keep_their_numbers() -> None:
    struct = b"struct A {\n    int field;\n};\n"
    text = b"int global;\n" + struct + b"void f() {\n" + struct + b"    int local;\n}\n"
    changed = with_poison(text)
    assert changed == text.replace(b"    int local;", b"    int local; emu_poison(local);")
