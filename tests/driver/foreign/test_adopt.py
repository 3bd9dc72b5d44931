"""Copies of foreign kernels with hooks: the same bits, another mask by their header, and no place where there is none."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cubridge.backend.text.hooks import SAME_SCORE, hook_header
from cubridge.driver.foreign import adopt as module
from cubridge.driver.foreign.adopt import adopt
from cubridge.driver.foreign.scores import score_hook
from cubridge.frontend.ptx.sites import bound_site, mask_site
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.parser import parse, parse_expr
from cubridge.ir.source import SourceFile, Span
from cubridge.judge.attention import full_attention
from cubridge.judge.proof.read import read_spec
from tests.driver.foreign.kernels import FOLDER, changed
from tests.support.command import cuirc
from tests.support.variants import EXAMPLES


def at(source: SourceFile, text: str) -> Span:
    assert source.text.count(text) == 1
    start = source.data.index(text.encode())
    return Span(source, start, start + len(text.encode()))


def test_places_of_hooks() -> None:
    source = SourceFile.read(FOLDER / "pipelined.cu")
    mask = mask_site(source, at(source, "x = j < len_kv && j <= i ? x : -INFINITY;"))
    assert (
        mask.condition.text == "j < len_kv && j <= i"
        and mask.operands == ("j", "len_kv", "i")
        and mask.keeps_where_true
    )
    bound = bound_site(source, at(source, "for (int t = 0; t < count; ++t) {"))
    assert (bound.bound.text, bound.unit) == ("(end + KEYS - 1) / KEYS", "tiles")
    source = SourceFile.read(FOLDER / "plain.cu")
    bound = bound_site(source, at(source, "for (int start = 0; start < len_kv; start += KEYS) {"))
    assert (bound.bound.text, bound.unit) == ("len_kv", "keys")


STATEMENT = "if (!(j < len_kv && j <= i)) x = -INFINITY;"


@pytest.mark.parametrize("text", [STATEMENT, "if (!(j < len_kv && j <= i)) { x = -INFINITY; }"])
def test_a_mask_that_is_a_statement(text: str) -> None:
    """Only where it assigns -INFINITY, and nothing else."""
    source = SourceFile.from_text("kernel.cu", f"void f() {{\n{text}\n}}\n")
    mask = mask_site(source, at(source, text))
    assert (mask.choice.text, mask.score.text, mask.assigns, mask.keeps_where_true) == (text, "x", True, False)
    assert mask.condition.text == "!(j < len_kv && j <= i)" and mask.operands == ("j", "len_kv", "i")
    for old, new in (("x = -INF", "x = INF"), ("x = -INF", "x += -INF"), (text, f"{text} else y = 1;")):
        other = SourceFile.from_text("kernel.cu", source.text.replace(old, new))
        with pytest.raises(CuError):
            mask_site(other, Span(other, 11, len(other.data)))


@pytest.mark.slow
def test_a_copy_of_a_mask_that_is_a_statement(tmp_path: Path) -> None:
    path = changed("pipelined", "x = j < len_kv && j <= i ? x : -INFINITY;", STATEMENT, tmp_path)
    made = adopt(path, path.with_suffix(".toml"))
    assert b"x = cubridge_hide(cubridge_keep(i, j, heads, len_q, len_kv," in made.text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("const float base = larger == -INFINITY ? 0.f : larger;", "no one choice"),
        ("sum = sum * shrink + total;", "no one choice"),
    ],
)
def test_no_place_for_a_mask(line: str, says: str) -> None:
    source = SourceFile.read(FOLDER / "plain.cu")
    with pytest.raises(CuError) as caught:
        mask_site(source, at(source, line))
    assert caught.value.diagnostics[0].code == "CU856" and says in caught.value.diagnostics[0].message


def test_a_score_in_the_units_of_a_kernel() -> None:
    """`plain` multiplies scores by 0.25 first, `pipelined` exponents by 32 ** -0.5 later."""
    tanh = replace(full_attention().spec, score=parse_expr("tanh(s * D ** -0.5 / 30.0) * 30.0"))
    distance = replace(tanh, score=parse_expr("s * D ** -0.5 - f32(abs(i - j))"))
    for name, unit, dim in (("plain", 1.0, 16), ("pipelined", 32**-0.5, 32)):
        own = read_spec(parse((FOLDER / f"{name}.cuir").read_text()))
        assert score_hook(own, full_attention().spec, dim) == SAME_SCORE
        hook = score_hook(own, tanh, dim)
        for x in (-70.0, 0.5, 9.0):
            natural = x if name == "plain" else x * unit
            said = float(evaluate_number(hook, {"x": x}))  # pyright: ignore
            assert said * unit == pytest.approx(30 * math.tanh(natural / 30), rel=1e-5)
        with pytest.raises(CuError) as caught:
            score_hook(own, distance, dim)
        assert caught.value.diagnostics[0].code == "CU603"


def test_a_header_says_what_regions_say() -> None:
    kernel = parse((FOLDER / "pipelined.cuir").read_text().replace("j <= i)", "j <= (i - Lq) // 3 + Hq % 8)"))
    header = hook_header(kernel, ["Hq", "Lq", "Lk"], 16)
    assert "(j < Lk) && (j <= (cubridge_floor_div((i - Lq), 3) + (Hq & 7)))" in header
    assert "((min((q_start + 64), Lk) + 15) >> 4)" in header
    with pytest.raises(CuError) as caught:
        hook_header(kernel, ["Lq", "Lk"], 16)
    assert caught.value.diagnostics[0].code == "CU603" and "`Hq`" in caught.value.diagnostics[0].message


def test_a_copy_with_hooks(tmp_path: Path) -> None:
    """The same bits, and a patch that applies where the kernel is."""
    path = changed("pipelined", "__launch_bounds__(128)", "__launch_bounds__(128)", tmp_path)
    made = adopt(path, path.with_suffix(".toml"))
    assert (
        b"x = cubridge_hide(cubridge_keep(i, j, heads, len_q, len_kv," in made.text
        and b"count = cubridge_key_tiles(" in made.text
    )
    (tmp_path / "made.patch").write_bytes(made.patch)
    subprocess.run(["git", "apply", "made.patch"], cwd=tmp_path, check=True)
    assert path.read_bytes() == made.text


def test_no_hook_where_some_tiles_have_no_mask(tmp_path: Path) -> None:
    path = changed("peeled", "peeled(const", "peeled(const", tmp_path)
    with pytest.raises(CuError) as caught:
        adopt(path, path.with_suffix(".toml"))
    first = caught.value.diagnostics[0]
    assert (
        first.code == "CU856" and "in the first key tiles alone" in first.message and "j >= min(keys" in first.span.text
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "pipelined"])
@pytest.mark.parametrize(
    "variant", ["prefix_lm", "sliding_window_causal", "causal_bottom_right", "full", "causal_top_left"]
)
def test_other_masks(name: str, variant: str, tmp_path: Path) -> None:
    """Lifted again, each is proved but for its schedule."""
    out = adopted(name, variant, tmp_path)
    assert out.count("tested, because") == 1 and "schedule: tested" in out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "pipelined"])
def test_another_score(name: str, tmp_path: Path) -> None:
    """One kernel has scores in units of e, and is proved; the other in units of what it multiplies by later, a number."""
    out = adopted(name, "softcap", tmp_path)
    assert ("score: tested" in out) == (name == "pipelined")
    assert "tanhf(" in (tmp_path / "cubridge_hooks.cuh").read_text()
    assert "tanh_approx(" in (tmp_path / f"{name}.cuir").read_text()


def adopted(name: str, variant: str, tmp_path: Path) -> str:
    """What the command prints."""
    ended = cuirc(
        "adopt", FOLDER / f"{name}.cu", "--contract", FOLDER / f"{name}.toml", "--reference", EXAMPLES / f"{variant}.py",
        "-o", tmp_path,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert {p.name for p in tmp_path.iterdir()} >= {f"{name}.cu", f"{name}.patch", f"{name}.cuir", "cubridge_hooks.cuh"}
    return ended.out.decode()


@pytest.mark.slow
def test_a_copy_that_is_another_kernel_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mask is off by one in the header."""
    path = changed("pipelined", "__launch_bounds__(128)", "__launch_bounds__(128)", tmp_path)
    made = module.hook_header
    monkeypatch.setattr(module, "hook_header", lambda *given: made(*given).replace("(j <= i)", "(j < i)"))
    with pytest.raises(CuError) as caught:
        adopt(path, path.with_suffix(".toml"))
    assert caught.value.diagnostics[0].code == "CU857"


@pytest.mark.slow
def test_a_reference_with_other_weights_is_refused() -> None:
    with pytest.raises(CuError) as caught:
        adopt(FOLDER / "pipelined.cu", FOLDER / "pipelined.toml", EXAMPLES / "relu.py")
    first = caught.value.diagnostics[0]
    assert first.code == "CU844" and first.help is not None and "weights and what they sum to" in first.help
