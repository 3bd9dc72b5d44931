"""Options of the test run."""

from __future__ import annotations

import gc
import os

import pytest

# Before torch is imported: a second thread of a worker only waits for a core, and burns another one while it waits.
os.environ.setdefault("OMP_NUM_THREADS", "1")


# Reading a reference makes garbage fast, and each full collection walks all that was imported and collected.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-cases", action="store_true", help="write what the tool gives into the case files; read the diff"
    )
