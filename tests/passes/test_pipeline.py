from __future__ import annotations

import pytest
from hypothesis import given, settings

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Expr, Kernel
from cubridge.ir.parser import parse_expr
from cubridge.ir.source import SourceFile
from cubridge.passes.base import Pass
from cubridge.passes.mask import RewriteMask
from cubridge.passes.normalize import RewriteNormalize
from cubridge.passes.options import RowTerm
from cubridge.passes.pipeline import Pipeline, parse_text, parse_toml
from cubridge.passes.registry import PASSES
from cubridge.passes.runner import PassFault, Watch, run_pipeline
from tests.passes.strategies import masks
from tests.support.golden_texts import golden_kernel

TEXT = 'rewrite-mask{keep="(j <= i) | (j < Lk // 4)"},infer-kv-range'


def test_text_and_toml_say_the_same() -> None:
    pipeline = parse_text(TEXT)
    assert pipeline.to_text() == TEXT
    assert pipeline.to_toml() == (
        '[[pass]]\nname = "rewrite-mask"\nkeep = "(j <= i) | (j < Lk // 4)"\n\n[[pass]]\nname = "infer-kv-range"\n'
    )
    assert parse_toml(pipeline.to_toml()) == pipeline


def test_every_kind_of_option_prints_back() -> None:
    rows = (
        RowTerm("l", "sum", parse_expr("exp(x - m)")),
        RowTerm("a", "max", parse_expr("abs(x)"), parse_expr("(j <= i) & (j > 3)")),
    )
    step = RewriteNormalize(parse_expr("exp(x - m)"), parse_expr("acc / maximum(l, a)"), rows)
    text = (
        'bind-captured{capture="table",dtype="f32",extents="B, maximum(Lq, Lk), 3"},'
        'rewrite-normalize{weight="exp(x - m)",finalize="acc / maximum(l, a)",'
        'rows="l = sum of exp(x - m); a = max of abs(x) over (j <= i) & (j > 3)"},approximate{exact="tanh, exp"}'
    )
    pipeline = parse_text(text)
    assert pipeline.passes[1] == step
    assert pipeline.to_text() == text
    assert parse_toml(pipeline.to_toml()) == pipeline


@given(masks)
@settings(max_examples=60, deadline=None)
def test_any_expression_survives(mask: Expr) -> None:
    pipeline = Pipeline((RewriteMask(mask),))
    once = parse_text(pipeline.to_text())
    assert once.to_text() == pipeline.to_text()
    assert parse_toml(once.to_toml()) == once


def test_the_empty_pipeline() -> None:
    assert parse_text(" \n") == parse_toml("") == Pipeline(())


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("rewrite-mask", "CU504", (1, 1)),
        ('rewrite-mask{kep="j"}', "CU502", (1, 19)),
        ("rewrit-mask", "CU501", (1, 1)),
        ("infer-kv-range,\n  nothing", "CU501", (2, 3)),
        ('rewrite-mask{keep="j <= "}', "CU101", (1, 24)),
        ('rewrite-mask{keep="foo(j)"}', "CU103", (1, 20)),
        ("rewrite-mask{keep=j}", "CU503", (1, 19)),
        ('rewrite-mask{keep="j"', "CU503", (1, 22)),
        ('rewrite-mask{keep="j",keep="i"}', "CU503", (1, 23)),
        ("infer-kv-range,", "CU503", (1, 16)),
        ("infer-kv-range infer-kv-range", "CU503", (1, 16)),
        ("é", "CU503", (1, 1)),
        ('rewrite-normalize{weight="x",finalize="acc",rows="l of x"}', "CU504", (1, 51)),
    ],
)
def test_a_fault_of_the_text_has_its_place(text: str, code: str, place: tuple[int, int]) -> None:
    with pytest.raises(CuError) as raised:
        parse_text(text)
    (fault,) = raised.value.diagnostics
    assert (fault.code, fault.span.location) == (code, place)
    assert str(raised.value).startswith("<pipeline>:")


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("x = 1", "CU503", (1, 1)),
        ("x = " + "[" * 200_000, "CU503", (1, 1)),
        ("[[pass]\n", "CU503", (1, 7)),
        ('[[pass]]\nname = "infer-kv-range"\n[[pass]]\n', "CU503", (3, 1)),
        ('[[pass]]\nname = "infer-kv-range"\nx = 3\n', "CU503", (1, 1)),
        ('[[pass]]\nname = "rewrite-mask"\nkeep = "j <"\n', "CU101", (3, 12)),
        ('[[pass]]\nname = "rewrite-mask"\nkeep = "k < 1"\n', "CU505", (3, 9)),
        ('[[pass]]\nname = "rewrit-mask"\n', "CU501", (2, 9)),
    ],
)
def test_a_fault_of_the_toml_has_its_place(text: str, code: str, place: tuple[int, int]) -> None:
    with pytest.raises(CuError) as raised:
        run_pipeline(golden_kernel("sm80"), parse_toml(SourceFile.from_text("p.toml", text)))
    (fault,) = raised.value.diagnostics
    assert (fault.code, fault.span.location) == (code, place)


def test_the_registry_has_every_pass() -> None:
    import pkgutil
    from importlib import import_module

    import cubridge.passes

    modules = [import_module(f"cubridge.passes.{m.name}") for m in pkgutil.iter_modules(cubridge.passes.__path__)]
    found = {c for m in modules for c in vars(m).values() if isinstance(c, type) and issubclass(c, Pass)} - {Pass}
    assert set(PASSES.values()) == found
    assert all(name == cls.name for name, cls in PASSES.items())


class Names(Watch):
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def after(self, step: Pass, before: Kernel, kernel: Kernel) -> None:
        self.seen.append(step.name)


def test_the_runner_names_the_pass_and_keeps_the_kernel_before_it() -> None:
    kernel = golden_kernel("sm80")
    masked = run_pipeline(kernel, parse_text('rewrite-mask{keep="j <= i"}'))

    def verify(given: Kernel) -> None:
        if given.region("key_sequence") not in (kernel.region("key_sequence"), masked.region("key_sequence")):
            raise CuError(Diagnostic("CU201", "planted"))

    seen: list[str] = []
    with pytest.raises(PassFault) as raised:
        run_pipeline(
            kernel,
            parse_text('rewrite-mask{keep="j <= i"},infer-kv-range'),
            verify=verify,
            watches=[Names(seen)],
        )
    assert raised.value.pass_name == "infer-kv-range"
    assert raised.value.kernel == masked
    assert "in pass `infer-kv-range`" in str(raised.value)
    assert seen == ["rewrite-mask"]


def test_the_input_is_verified_first() -> None:
    def verify(given: Kernel) -> None:
        raise CuError(Diagnostic("CU201", "planted"))

    with pytest.raises(PassFault) as raised:
        run_pipeline(golden_kernel("sm80"), Pipeline(()), verify=verify)
    assert raised.value.pass_name is None
