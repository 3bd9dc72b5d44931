"""The child process that judges what models write ends with the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _sandbox() -> Iterator[None]:
    yield
    from tests.driver.model.talk import BOX

    BOX.close()
