"""References as people write them. Each file is one theme; importing it fills the table."""

from tests.frontend.reference.references import (
    captures,
    flex,
    heads,
    in_place,
    masks,
    modules,
    normalizers,
    public,
    refused,
    scores,
    spellings,
    windows,
)

__all__ = [
    "captures", "flex", "heads", "in_place", "masks", "modules", "normalizers", "public", "refused", "scores", "spellings",
    "windows",
]  # fmt: skip
