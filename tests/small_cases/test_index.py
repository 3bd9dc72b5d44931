"""Which tests hold each small case: those of this folder by their names, `test_N_..`, and these besides."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

CASES: Final = range(1, 36)
ELSEWHERE: Final = {
    23: ("tests.backend.launch.test_runtime", "test_empty_problems_launch_nothing"),
    24: ("tests.backend.launch.test_runtime", "test_what_the_kernel_cannot_take_is_copied_and_said"),
    30: ("tests.backend.compile.test_compiler", "test_too_much_shared_memory_says_need_limit_and_what_to_change"),
    31: ("tests.kernels.test_attention_emulated", "test_fragment_maps_are_exact"),
    32: ("tests.engine.test_order", "test_a_fault_is_named_at_its_place"),
    33: ("tests.backend.compile.test_compiler", "test_if_all_forms_spill_the_least_is_taken_and_said"),
    34: ("tests.backend.launch.test_operator", "test_references_that_differ_in_a_constant_never_share_an_operator"),
}
_NAMED: Final = re.compile(r"^def test_(\d+)_", re.MULTILINE)


def test_every_case_has_a_test() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    here = {int(n) for file in files for n in _NAMED.findall(file.read_text(encoding="utf-8"))}
    assert here | ELSEWHERE.keys() == set(CASES)


@pytest.mark.parametrize("case", ELSEWHERE)
def test_those_elsewhere_are_there(case: int) -> None:
    module, name = ELSEWHERE[case]
    assert callable(getattr(import_module(module), name))
