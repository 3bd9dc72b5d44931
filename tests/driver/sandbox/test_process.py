"""What a model wrote may be a bomb: each is refused within the limits, and the next job runs as if nothing had been."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from cubridge.driver.sandbox.process import Limits, Sandbox
from cubridge.ir.diagnostics import CuError, Diagnostic, InternalError
from cubridge.ir.source import NOWHERE
from tests.driver.model.talk import BOX, answer, cuir_reply
from tests.driver.sandbox import bombs


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(Limits(seconds=20.0), bombs.PROGRAM) as sandbox:
        yield sandbox


FAILURES = [(bombs.eat, "CU721"), (bombs.die, "CU721"), (bombs.fail, "CU722"), (bombs.refuse, "CU601")]


@pytest.mark.parametrize(("bomb", "code"), FAILURES)
def test_failures(box: Sandbox, bomb: Callable[[], object], code: str) -> None:
    with pytest.raises(CuError) as caught:
        box.run(bomb)
    assert caught.value.diagnostics[0].code == code
    assert box.run(bombs.echo, "fine") == "fine"


def test_diagnostics_come_through(box: Sandbox) -> None:
    with pytest.raises(CuError) as caught:
        box.run(bombs.refuse)
    assert caught.value.exit_code == 4
    assert caught.value.diagnostics == (Diagnostic("CU601", "no", help="x"),)
    assert caught.value.diagnostics[0].span is NOWHERE


def test_time_is_limited(box: Sandbox) -> None:
    box.limits = Limits(seconds=1.0)
    start = time.monotonic()
    with pytest.raises(CuError, match="does not end within 1 s"):
        box.run(bombs.loop)
    assert time.monotonic() - start < 10
    box.limits = Limits(seconds=20.0)
    assert box.run(bombs.echo, "fine") == "fine"


def test_what_is_printed_is_no_answer(box: Sandbox) -> None:
    box.run(bombs.chatter)
    assert box.run(bombs.echo, "fine") == "fine"


def test_a_function_outside_the_table_is_not_run(box: Sandbox) -> None:
    with pytest.raises(InternalError, match="unlisted` is no job"):
        box.run(bombs.unlisted)
    assert box.run(bombs.echo, "fine") == "fine"


POWER = "host=((((9 ** 30) ** 60) ** 60) ** 60) ** 60 + 0 * LOG2E"
_SQUARES = "".join(f"    x{n} = x{n - 1} * x{n - 1} + x{n - 1}\n" for n in range(1, 61))
BOMBS = {
    "a tower of powers": ("host=D ** -0.5 * LOG2E", POWER, "CU301"),
    "a padded table": ("variant_params(", "variant_params(\n    t=Captured(f32, Lk, pad=1000000000000),", "CU723"),
    "deep brackets": ("j <= last", "(" * 3000 + "j <= last" + ")" * 3000, "CU101"),
    "a long sum": ("last = minimum", "last = " + "i + " * 3000 + "minimum", "CU101"),
    "squares of squares": ("    last = ", "    x0 = i\n" + _SQUARES + "    last = ", "CU723"),
    "many key tiles": ("return maximum(keys.hi - keys.lo, 0)", "return 2000000000", "CU721"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_in_a_target(name: str) -> None:
    old, new, code = BOMBS[name]
    text = cuir_reply("prefix_lm").replace(old, new, 1)
    assert new in text
    limits = BOX.limits
    if code == "CU721":
        BOX.limits = Limits(seconds=3.0)
    try:
        with pytest.raises(CuError) as caught:
            answer("prefix_lm", text)
    finally:
        BOX.limits = limits
    assert caught.value.diagnostics[1].code == code
