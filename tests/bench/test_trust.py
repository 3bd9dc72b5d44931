"""The trusted base: published as it is, and each row of it tested on a GPU."""

from __future__ import annotations

import pytest
import torch

from bench.trust.gpu import TARGETS, TESTS, TrustTest, compiled
from bench.trust.page import PAGE, gpu_tests, page
from cubridge.frontend.cuda.lemmas import load_lemmas
from cubridge.frontend.cuda.vocabulary import INSTRUCTIONS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: python -m bench.trust.page --write"


def test_every_row_has_a_gpu_test() -> None:
    untested = [n for n in (*INSTRUCTIONS, *(m.name for m in load_lemmas().rows)) if not gpu_tests(n)]
    assert untested == []


def test_tests_cover_rows_that_exist() -> None:
    names = {m.name for m in load_lemmas().rows}
    for test in TESTS:
        assert [c for c in test.covers if c not in names and not any(i.startswith(c) for i in INSTRUCTIONS)] == []


@pytest.mark.parametrize("arch", TARGETS)
def test_the_gpu_tests_compile(arch: str) -> None:
    output = compiled(arch, "bf16")
    assert output.cubin is not None, output.log


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
    reason="needs a GPU of compute capability 9.0",
)
@pytest.mark.parametrize("test", TESTS, ids=lambda t: t.name)
def test_on_this_gpu(test: TrustTest) -> None:
    for arch in test.architectures:
        for dtype in ("bf16", "fp16"):
            test.run(arch, dtype)
