"""The examples as they are read, each once in a process."""

from __future__ import annotations

from functools import cache

from cubridge.driver.reference import TracedReference, read_reference
from tests.support.variants import VARIANTS


@cache
def reading(variant: str) -> TracedReference:
    return read_reference(VARIANTS[variant].path)
