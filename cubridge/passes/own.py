"""Passes from outside: of files and notebooks, by a decorator; of installed packages, under the entry point group GROUP."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar

from cubridge.passes.base import Pass, fault
from cubridge.passes.options import unreadable
from cubridge.passes.registry import PASSES

GROUP: Final = "cubridge.passes"

P = TypeVar("P", bound=type[Pass])

_registered: dict[str, type[Pass]] = {}
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def register_pass(cls: P) -> P:
    """A class decorator: pipelines of `cuirc` and of `adapt` may name the pass from now on; replies of models may not.
    The class is a frozen dataclass derived from `Pass`. Errors: CU516."""
    problem = _problem(cls)
    if problem is not None:
        raise fault("CU516", f"`{getattr(cls, '__name__', cls)}` {problem}", help="docs/extending.md shows a pass")
    _registered[cls.name] = cls
    return cls


def all_passes() -> Mapping[str, type[Pass]]:
    """Those that are built in, those of installed packages, those that were registered. Errors: CU516."""
    _load_installed()
    return PASSES | _registered


def _problem(cls: object) -> str | None:
    """Why it cannot be a pass, to go on after its name."""
    if not (isinstance(cls, type) and issubclass(cls, Pass)):
        return "is not derived from `Pass`"
    if inspect.isabstract(cls):
        return "has no `run`"
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"is called {name!r}: a name has small letters, digits and hyphens"
    if name in PASSES or not _same(_registered.get(name, cls), cls):
        return f"is called `{name}`, as another pass is"
    if "__dataclass_fields__" not in vars(cls):
        return "is no dataclass of its own: write `@dataclass(frozen=True)` above it"
    return unreadable(cls)


def _same(old: type, new: type) -> bool:
    """Is it a class that was defined again, as by a notebook's cell that is run twice?"""
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


@cache
def _load_installed() -> None:
    for entry in entry_points(group=GROUP):
        _load(entry)


def _load(entry: EntryPoint) -> None:
    try:
        found = entry.load()
    except Exception as error:  # whatever that package raises
        message = f"the pass `{entry.name}` of {entry.value} cannot be loaded: {type(error).__name__}: {error}"
        raise fault("CU516", message, help="mend or remove the package that brings it") from error
    if isinstance(found, type):
        register_pass(found)
