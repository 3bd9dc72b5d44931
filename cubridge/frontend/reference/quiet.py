"""While the user's code runs: nothing that it prints may reach our stdout, its warnings are its own, and nothing is compiled."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Generator
from typing import TextIO


@contextlib.contextmanager
def quiet() -> Generator[None]:
    with warnings.catch_warnings(), off_stdout(), uncompiled():
        warnings.simplefilter("ignore")
        yield


def off_stdout() -> contextlib.redirect_stdout[TextIO]:
    return contextlib.redirect_stdout(sys.stderr)


@contextlib.contextmanager
def uncompiled() -> Generator[None]:
    """What `torch.compile` made runs as it was written. Only its own import brings torch._dynamo, which takes a second."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    from torch.compiler import set_stance

    with set_stance("force_eager"):
        yield
