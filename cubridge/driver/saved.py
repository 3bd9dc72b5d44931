"""Operators in files: `torch.save`, pickle and `copy.deepcopy` keep the kernel text and how to read the reference again, which
tells the captures by their paths. The kernel is compiled where the operator wakes up."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor

from cubridge.backend.compile.cache import content_key
from cubridge.driver.kernels import PACKAGED, choose_kernel
from cubridge.driver.reference import TracedReference, read_reference
from cubridge.frontend.reference.traced import says
from cubridge.ir.diagnostics import CuError, Diagnostic

if TYPE_CHECKING:
    from cubridge.driver.adapted import Adapted
    from cubridge.driver.backward import Lowered
    from cubridge.ir.spec import Shape


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A reference of a file: its text, and what its tensors held, by path."""

    path: str
    name: str
    data: bytes = field(repr=False)
    state: Mapping[str, Tensor] = field(repr=False)

    def read(self, shape: Shape, dtype: str) -> TracedReference:
        """The file where it was, if it still holds this text, else a copy. Errors: CU47x to CU49x."""
        there = Path(self.path)
        if there.is_file() and there.read_bytes() == self.data:
            found = read_reference(there, self.name, shape, dtype=dtype)
        else:
            folder = tempfile.mkdtemp(prefix="cubridge-reference-")  # tracebacks and diagnostics show its lines later
            copy = Path(folder, there.name)
            copy.write_bytes(self.data)
            found = replace(read_reference(copy, self.name, shape, dtype=dtype), path=self.path)
        with torch.no_grad():
            for path, tensor in found.traced.state().items():
                tensor.copy_(self.state[path])
        return found


@dataclass(frozen=True, slots=True)
class SavedCallable:
    """A live reference: a module with its parameters, or a function by its name."""

    function: Callable[..., object]
    extra_inputs: Callable[..., object] | None

    def read(self, shape: Shape, dtype: str) -> TracedReference:
        """Errors: CU47x to CU49x."""
        return read_reference(self.function, None, shape, self.extra_inputs, dtype)


@dataclass(frozen=True, slots=True)
class Saved:
    """`adapted` without its reference, which `reference` reads again; `backward`: its backward pass, where there is one; `spec`: a
    hash of what it said."""

    adapted: Adapted
    backward: Lowered | None
    reference: SavedFile | SavedCallable
    spec: str
    device: str

    @staticmethod
    def of(adapted: Adapted, backward: Lowered | None, device: str) -> Saved:
        without = replace(adapted, reference=cast("Any", None))
        return Saved(without, backward, _reference(adapted.reference), _spec_key(adapted.reference), device)

    def with_copied_reference(self, memo: dict[int, object]) -> Saved:
        """For `copy.deepcopy`: modules are copied, and share what the rest of the copy has."""
        return replace(self, reference=deepcopy(self.reference, memo))

    def restore(self) -> tuple[Adapted, Lowered | None]:
        """Errors: CU846 where the reference says something else now; those of reading it."""
        adapted = self.adapted
        reference = self.reference.read(adapted.shape, adapted.dtype)
        if _spec_key(reference) != self.spec:
            message = f"`{reference.name}` computes something else than when the operator was saved"
            raise CuError(Diagnostic("CU846", message, help="adapt it again"))
        if adapted.kernel.name not in PACKAGED:
            return replace(adapted, reference=reference), self.backward
        kernel = choose_kernel(adapted.kernel.name)  # its headers lie elsewhere on another machine
        found = replace(adapted, reference=reference, kernel=kernel, text=kernel.with_text(adapted.text.source))
        return found, None if self.backward is None else self.backward.here()

    def check_savable(self) -> None:
        """Errors: CU846 for a function that Python finds by no name."""
        saved = self.reference
        if isinstance(saved, SavedFile):
            return
        for function in (saved.function, saved.extra_inputs):
            if inspect.isfunction(function) and not _UNNAMED.isdisjoint(function.__qualname__.split(".")):
                message = f"`{function.__qualname__}` cannot be saved: it has no name that another process finds"
                raise CuError(Diagnostic("CU846", message, help="define it at the top of a module, or adapt a file"))


_UNNAMED: Final = frozenset(("<locals>", "<lambda>"))


def _reference(reference: TracedReference) -> SavedFile | SavedCallable:
    traced = reference.traced
    if reference.path is None:
        return SavedCallable(traced.reference.function, traced.reference.extra_inputs)
    state = {path: tensor.detach().clone() for path, tensor in traced.state().items()}
    return SavedFile(reference.path, traced.reference.name, traced.reference.file.data, state)


def _spec_key(reference: TracedReference) -> str:
    return content_key(says(reference.attention.spec))
