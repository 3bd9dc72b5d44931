"""Errors are data: they pass between processes whole."""

from __future__ import annotations

import pickle

import pytest

from cubridge.ir.diagnostics import CuError, Diagnostic, Note, Refused

WRONG = Diagnostic("CU844", "it is wrong", notes=(Note("here"),), help="mend it")


@pytest.mark.parametrize("error", [CuError(WRONG, WRONG, exit_code=3), Refused(WRONG)])
def test_an_error_in_another_process(error: CuError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.diagnostics, again.exit_code) == (type(error), error.diagnostics, error.exit_code)
    assert str(again) == str(error)
