"""Numbers of numpy, as the numbers of Python that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A number of numpy as Python's; anything else as it is."""
    return value.item() if isinstance(value, (np.number, np.bool_, np.str_)) else value
