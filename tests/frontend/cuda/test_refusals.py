"""What a kernel text must not say is refused at its place, with what to do; all faults at once, never a traceback."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from cubridge.ir.diagnostics import render
from tests.frontend.cuda.direct import direct_faults
from tests.frontend.cuda.kernels import edited, faults_of, kernel_text

CASES = Path(__file__).parents[2] / "cases" / "lift"


@dataclass(frozen=True, slots=True)
class Case:
    """Edits of a text; the code, the words of the message and the text that the fault points at."""

    name: str
    edits: tuple[tuple[str, str], ...]
    code: str
    says: str
    at: str
    arch: str = "sm80"


def _cases() -> list[Case]:
    table = tomllib.loads((CASES / "refusals.toml").read_text(encoding="utf-8"))
    return [Case(**{**row, "edits": tuple((old, new) for old, new in row["edits"])}) for row in table["case"]]


@pytest.mark.parametrize("case", _cases(), ids=lambda c: c.name)
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
        ("s[r][c] = j < p.len_kv ? s[r][c] : -INFINITY;", "s[r][c] = sigmoid(s[r][c]);"),
        ("const float inv = l == 0.f ? 0.f : 1.f / l;", "const float inv = l == 0.f ? 0.f : reciprocal(l);"),
        (
            "DEVICE void tile_setup(WorkTile& tile, const Params& p) {}",
            "DEVICE void tile_setup(WorkTile& tile, const Params& p) { tile.h = 0; }",
        ),
    )
    faults = faults_of("sm80", text)
    places = [(f.span.location[0], f.message) for f in faults]
    assert places == sorted(places)
    names = ("only the schedule", "`sigmoid`", "`reciprocal`", "`wait_for_it`")
    assert [next(n for n in names if n in message) for _, message in places] == list(names)


def test_what_follows_a_fault_is_not_a_fault() -> None:
    faults = faults_of(
        "sm80", edited("sm80", ("const int count = key_count(keys, p);", "const int count = number_of(keys, p);"))
    )
    assert [f.message for f in faults] == ["`number_of` is not in the vocabulary"]


def test_a_fault_inside_a_helper_is_told_at_the_call() -> None:
    helper = "DEVICE int twice(int x) { return x * atomicCAS(x); }\nKERNEL("
    faults = faults_of("sm80", edited("sm80", ("KERNEL(", helper), ("slot ^= 1;", "slot = twice(slot);")))
    assert [f.message for f in faults] == ["`atomicCAS` is not in the vocabulary"]
    assert faults[0].span.text == "atomicCAS(x)"


@pytest.mark.parametrize("text", [b"", b" \n\n", b"\xef\xbb\xbf"])
def test_an_empty_text(text: bytes) -> None:
    assert [f.code for f in direct_faults(text)] == ["CU420"]


@pytest.mark.parametrize("cut", range(400, 10000, 700))
def test_a_cut_text_is_refused_without_a_traceback(cut: int) -> None:
    assert direct_faults(kernel_text("sm80").encode()[:cut])


@pytest.mark.parametrize("byte", [b"\x00", b"\xff", b"\xf0\x9f", b'"', b"'", b"/*", b"\\", b"#", b"(", b"}"])
def test_odd_bytes_do_no_harm(byte: bytes) -> None:
    data = kernel_text("sm80").encode()
    for at in range(500, len(data), 1900):
        direct_faults(data[:at] + byte + data[at:])


def test_random_edits_end_in_diagnostics() -> None:
    """Tokens deleted, replaced and put in at random; whatever comes of it, nothing but a CuError may."""
    random, text = Random(0), kernel_text("sm80")
    tokens = list(re.finditer(r"[A-Za-z_]\w*|\d[\w.]*|\S", text))
    for _ in range(40):
        where, other = random.choice(tokens), random.choice(tokens)[0]
        new = random.choice(("", other, f"{other} {where[0]}"))
        assert "Traceback" not in render(direct_faults((text[: where.start()] + new + text[where.end() :]).encode()))
