"""The program of a child process, and the one table of what it may be asked to do with what a user or a model wrote."""

from __future__ import annotations

from typing import Final

from cubridge.driver.foreign.adopt import adopt
from cubridge.driver.foreign.lift import lift_foreign
from cubridge.driver.model.checks import (
    check_key_sequence,
    find_blame,
    run_values,
    verify_lifted,
    verify_target,
)
from cubridge.driver.model.lift_judge import assemble
from cubridge.driver.model.policy import prove_target
from cubridge.driver.model.text import lift_patched
from cubridge.driver.sandbox.child import serve
from cubridge.driver.sandbox.texts import build, run_emulated, run_launched
from cubridge.driver.suites.bench import time_folder
from cubridge.driver.transfer import transfer_before_checks
from cubridge.judge.long_lengths import check_long_lengths
from cubridge.judge.tools import compile_text

JOBS: Final = (
    # CuIR
    transfer_before_checks, verify_target, verify_lifted, check_key_sequence, check_long_lengths, run_values, find_blame,
    prove_target,
    # CUDA text
    lift_patched, compile_text, build, assemble, run_emulated, run_launched, time_folder, lift_foreign, adopt,
)  # fmt: skip

if __name__ == "__main__":
    serve(*JOBS)
