"""What a kernel text must not say is refused at its place, with what to do; all faults at once, never a traceback."""

from __future__ import annotations

import re
import time
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


# ---- size ------------------------------------------------------------------------------------------------------------


def _doubled(define: str, first: str) -> str:
    return f"{first}\n" + "".join(define.format(new=n + 1, old=n) + "\n" for n in range(30))


BOMBS = {
    "macros": (_doubled("#define A{new} A{old} A{old}", "#define A0 1"), "macros become more than"),
    "condition": (
        _doubled("#define A{new} A{old} + A{old}", "#define A0 1") + "#if A30\n#endif",
        "macros become more than",
    ),
    "arguments": (
        "#define F(x) (x + x)\nconstexpr int z = " + "F(" * 30 + "1" + ")" * 30 + ";",
        "macros become more than",
    ),
    "conditions": ("#if 1\n" * 1000 + "#endif\n" * 1000, "nested deeper than 32"),
    "many conditions": ("#if 1\n" * 50_000 + "#endif\n" * 50_000, "longer than"),
    "directives": ("#define Q 1\n" * 3000, "more than 2000 directives"),
    "brackets": (f"constexpr int z = {'(' * 20_000}0{')' * 20_000};", "nested deeper than 64"),
    "signs": (f"constexpr int z = {'- ' * 20_000}1;", "nested deeper than 120"),
    "sums": (f"constexpr int z = 1{' + 1' * 20_000};", "nested deeper than 120"),
    "garbage": ("a b c ) ;" * 8000, "does not read"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_text_that_grows_is_refused_at_once(bomb: str) -> None:
    code, says = BOMBS[bomb]
    started = time.process_time()
    faults = direct_faults(edited("sm80", ("// @region mask", f"{code}\n// @region mask")).encode())
    assert says in faults[0].message, render(faults[:1])
    assert time.process_time() - started < 2


def _calls(width: int) -> str:
    def calls(n: int) -> str:
        return " + ".join([f"f{n}(x)"] * width)

    others = "".join(f"DEVICE int f{n + 1}(int x) {{ return {calls(n)}; }}\n" for n in range(8))
    return f"DEVICE int f0(int x) {{ return x + 1; }}\n{others}"


LONG_VALUES = {
    "functions": (_calls(12), "f7(1)", "`f3` is more than 1000 calls"),
    "nested calls": (
        "DEVICE int dd(int x) { return x + x; }\n",
        f"{'dd(' * 30}p.len_q{')' * 30}",
        "value of `dd` is too long",
    ),
}


@pytest.mark.parametrize("kind", LONG_VALUES)
def test_calls_that_grow_are_refused_at_once(kind: str) -> None:
    _refused_at_once(*LONG_VALUES[kind])


def _refused_at_once(declared: str, value: str, says: str) -> None:
    text = edited(
        "sm80", ("const int lo = 0;", f"const int lo = {value};"), ("// @region mask", f"{declared}// @region mask")
    )
    started = time.process_time()
    faults = direct_faults(text.encode())
    assert [f for f in faults if says in f.message], render(faults)
    assert time.process_time() - started < 2


def test_constants_that_double_are_read_once() -> None:
    text = _doubled("constexpr int C{new} = C{old} + C{old};", "constexpr int C0 = 1;")
    started = time.process_time()
    assert not direct_faults(
        edited("sm80", ("// @region mask", f"{text}static_assert(C30 > 0);\n// @region mask")).encode()
    )
    assert time.process_time() - started < 2


def _chain(value: str, length: int) -> str:
    return "".join(f"constexpr int Z{n + 1} = {value.replace('_', f'Z{n}')};\n" for n in range(length))


HOSTILE_CONSTANTS = {
    "squares": (f"constexpr int Z0 = 3;\n{_chain('_ * _', 31)}", "Z31", "more than 64 bits"),
    "shift": ("constexpr int Z = 1 << 99999999999;\n", "Z", "more than 64 bits"),
    "chain": (f"constexpr int Z0 = 3;\n{_chain('_ + 1', 700)}", "Z700", "is defined by more than"),
    "infinite": ("constexpr int Z = (int)1e999f;\n", "Z", "no integer has this value"),
    "digits": ("constexpr int Z = 1;\n", "9" * 5000, "no integer of 64 bits"),
}


@pytest.mark.parametrize("kind", HOSTILE_CONSTANTS)
def test_constants_without_a_value_are_refused_at_once(kind: str) -> None:
    _refused_at_once(*HOSTILE_CONSTANTS[kind])


def test_a_key_sequence_that_is_a_work_tile_is_refused() -> None:
    text = edited("sm80", ("DEVICE KeySequence key_sequence(", "DEVICE WorkTile key_sequence("))
    assert [f for f in direct_faults(text.encode()) if "which is another part" in f.message]


def test_proofs_about_locals_that_double_end() -> None:
    doubled = "".join(f"const int x{n + 1} = x{n} + x{n}; " for n in range(30))
    text = edited("sm80", ("const int lo = 0;", f"const int x0 = p.len_q; {doubled}const int lo = x30;"))
    started = time.process_time()
    direct_faults(text.encode())
    assert time.process_time() - started < 2
