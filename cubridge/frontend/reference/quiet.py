"""While the user's code runs: nothing that it prints may reach our stdout, and its warnings are its own."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Generator


@contextlib.contextmanager
def quiet() -> Generator[None]:
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
