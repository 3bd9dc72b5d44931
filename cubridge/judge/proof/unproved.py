"""What ends a proof that cannot be found."""

from __future__ import annotations


class Unproved(Exception):
    """No proof; the argument says why, as the end of the sentence `tested, because ..`. It is not a fault of anyone."""
