"""Rewrites that preserve behaviour lift to the same kernel."""

from __future__ import annotations

import pytest

from cubridge.ir.canonical import canonical
from tests.frontend.cuda.kernels import ARCHITECTURES, kernel_text, lift_text, shipped
from tests.frontend.cuda.rewrites import REWRITES, Rewrite

CASES = [(arch, r) for r in REWRITES for arch in ARCHITECTURES if r.only in ("", arch)]


@pytest.mark.parametrize(("arch", "rewrite"), CASES, ids=[f"{r.name}-{a}" for a, r in CASES])
def test_rewrite_lifts_equal(arch: str, rewrite: Rewrite) -> None:
    text = rewrite.apply(kernel_text(arch))
    assert text != kernel_text(arch)
    assert canonical(lift_text(arch, text).kernel) == canonical(shipped(arch).kernel)
