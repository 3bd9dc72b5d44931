"""Loads a reference: a Python file with a function, module, closure or partial `attention`, or a live callable."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from cubridge.frontend.reference.places import error_span, forget_sources, source_file
from cubridge.frontend.reference.refusal import fail
from cubridge.frontend.reference.unchanged import settings_unchanged
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import NOWHERE, SourceFile, Span
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from torch import Tensor

    ExtraInputs = Callable[[Shape, str], dict[str, Tensor | int | float | bool]]

DEFAULT_FUNCTION: Final = "attention"


@dataclass(frozen=True, slots=True)
class Reference:
    """What the user wrote. `extra_inputs(shape, device)` gives the arguments besides q, k, v by name."""

    function: Callable[..., object]
    extra_inputs: ExtraInputs | None
    file: SourceFile
    name: str

    @staticmethod
    def of(function: Callable[..., object], extra_inputs: ExtraInputs | None = None) -> Reference:
        """A reference from a live callable. Errors: CU472 if it cannot be called with q, k, v."""
        function = getattr(function, "_torchdynamo_orig_callable", function)  # of torch.compile
        code = getattr(_underlying(function), "__code__", None)
        file = source_file(code.co_filename) if code is not None else NOWHERE.file
        reference = Reference(function, extra_inputs, file, getattr(function, "__name__", type(function).__name__))
        reference.parameters()
        return reference

    @property
    def span(self) -> Span:
        """The line of the definition."""
        code = getattr(_underlying(self.function), "__code__", None)
        if code is None or not self.file.data or code.co_firstlineno > len(self.file.line_starts):
            return NOWHERE
        return Span.whole_line(self.file, code.co_firstlineno)

    @property
    def builder_span(self) -> Span:
        """The line of the definition of `extra_inputs`."""
        code = getattr(_underlying(self.extra_inputs), "__code__", None) if self.extra_inputs is not None else None
        if code is None:
            return self.span
        here = Path(code.co_filename).resolve() == Path(self.file.name).resolve()
        file = self.file if here else source_file(code.co_filename)
        return Span.whole_line(file, code.co_firstlineno) if code.co_firstlineno <= len(file.line_starts) else self.span

    @property
    def globals(self) -> dict[str, object]:
        """The namespace that the reference's names come from."""
        return getattr(_underlying(self.function), "__globals__", {})

    def takes(self, name: str) -> bool:
        """May the function be called with this argument?"""
        parameters = self.signature().parameters
        return name in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())

    def signature(self) -> inspect.Signature:
        """How it is called. Errors: CU472."""
        try:
            return inspect.signature(_entry(self.function))
        except (TypeError, ValueError):
            span = self.span if self.span is not NOWHERE or not self.file.data else _start(self.file)
            help_ = "wrap it: `def attention(q, k, v): return ...`"
            fail("CU472", f"`{self.name}` is no Python function, or cannot be called", span, help_)

    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters. Errors: CU472."""
        parameters = self.signature().parameters
        positional = [n for n, p in parameters.items() if p.kind in POSITIONAL]
        if len(positional) < 3 and not any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values()):
            fail("CU472", f"`{self.name}` does not take q, k, v", self.span, "write `def attention(q, k, v, ...)`")
        for names in (("q", "k", "v"), ("query", "key", "value")):
            if tuple(positional[:3]) != names and sorted(positional[:3]) == sorted(names):
                message = f"`{self.name}` takes {', '.join(positional[:3])} in this order, and is called with q, k, v"
                fail("CU472", message, self.span, "write `def attention(q, k, v, ...)`")
        function = _underlying(self.function)
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            fail("CU472", f"`{self.name}` returns no value when it is called", self.span, "drop `async` or `yield`")
        return tuple(parameters)


POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _entry(function: Callable[..., object]) -> Callable[..., object]:
    """What carries the signature: a module's `forward`."""
    return getattr(function, "forward", function) if hasattr(function, "named_buffers") else function


def _underlying(function: Callable[..., object]) -> object:
    """The Python function below partials, wrappers, modules and bound methods."""
    found: object = _entry(function)
    while True:
        if hasattr(found, "_torchdynamo_orig_callable"):
            found = found._torchdynamo_orig_callable  # pyright: ignore
        elif hasattr(found, "func"):
            found = found.func  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
        elif hasattr(found, "__wrapped__"):
            found = found.__wrapped__  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
        elif inspect.ismethod(found):
            found = found.__func__
        elif (
            not hasattr(found, "__code__") and inspect.isfunction(getattr(type(found), "__call__", None))  # noqa: B004
        ):
            found = type(found).__call__
        else:
            return found


def load_reference(path: Path, function: str | None = None) -> Reference:
    """Read REF.py. Errors: CU470 unreadable or not Python, CU471 fails while it is imported, CU472 no such function."""
    forget_sources()
    module, file = import_file(path, "reference")
    name = function or DEFAULT_FUNCTION
    found = getattr(module, name, None)
    if found is None and function is None:
        name, found = _only_candidate(module, name)
    if found is None:
        functions = [
            n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == module.__name__
        ]
        known = (
            f"the file defines {', '.join(f'`{n}`' for n in functions)}"
            if functions
            else "the file defines no function"
        )
        fail("CU472", f"no function `{name}`", _start(file), f"{known}; name one with --function")
    if inspect.isclass(found):
        found = _instance(found, name, file)
    if not callable(found):
        fail("CU472", f"`{name}` is not a function", _start(file))
    found = getattr(found, "_torchdynamo_orig_callable", found)
    extra = getattr(module, "extra_inputs", None)
    if extra is not None and not callable(extra):
        fail("CU473", "`extra_inputs` is not a function", _start(file), "write `def extra_inputs(shape, device)`")
    reference = Reference(found, extra, file, name)  # pyright: ignore[reportArgumentType]
    reference.parameters()
    return reference


def _start(file: SourceFile) -> Span:
    return Span(file, 0, 0)


def _read(path: Path) -> SourceFile:
    try:
        file = SourceFile.read(path)
    except OSError as error:
        fail("CU470", f"cannot read {path}: {error.strerror or error}")
    try:
        compile(file.data, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line, column = max(1, error.lineno or 1), max(1, error.offset or 1)
        at = file.offset(min(line, len(file.line_starts)), column)
        fail("CU470", f"not Python: {error.msg}", Span(file, at, at + 1))
    except ValueError as error:
        fail("CU470", f"not Python: {error}", _start(file))
    return file


def import_file(path: Path, kind: str) -> tuple[ModuleType, SourceFile]:
    """Run a Python file of the user's own. `kind`: what it is, as part of the module's name. Errors: CU470, CU471."""
    file = _read(path)
    name = f"_cubridge_{kind}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        fail("CU470", f"{path} is not a Python file", _start(file), "give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _import_folder(path.parent.resolve()), contextlib.redirect_stdout(sys.stderr), settings_unchanged():
        try:
            spec.loader.exec_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever the user's code raises
            span = error_span(error.__traceback__)
            span = span if span is not NOWHERE else _start(file)
            if isinstance(error, CuError):  # says itself what is wrong
                error.diagnostics = tuple(
                    d if d.span is not NOWHERE else replace(d, span=span) for d in error.diagnostics
                )
                raise
            fail("CU471", f"importing it fails: {type(error).__name__}: {error}", span)
    return module, file


@contextlib.contextmanager
def _import_folder(folder: Path) -> Generator[None]:
    """The reference may import what lies beside it: anew each time, as another folder may have another file of that name."""
    for name in _beside:
        sys.modules.pop(name, None)
    _beside.clear()
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        new = [(n, getattr(m, "__file__", None)) for n, m in sys.modules.items() if n not in before]
        _beside.update(n for n, file in new if file and folder in Path(file).parents)


_beside: Final[set[str]] = set()
"""Names of the modules that the last reference imported from its folder."""


def _only_candidate(module: ModuleType, name: str) -> tuple[str, object]:
    """The one public function of the file that takes at least three arguments."""
    found = [
        (n, v)
        for n, v in vars(module).items()
        if inspect.isfunction(v)
        and v.__module__ == module.__name__
        and not n.startswith("_")
        and n != "extra_inputs"
        and len(inspect.signature(v).parameters) >= 3
    ]
    return found[0] if len(found) == 1 else (name, None)


def _instance(kind: type, name: str, file: SourceFile) -> object:
    try:
        return kind()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's code raises
        span = error_span(error.__traceback__)
        fail(
            "CU472",
            f"`{name}()` fails: {error}",
            span if span is not NOWHERE else _start(file),
            f"bind an instance to `{name}`",
        )
