"""SourceMap: where the regions of a kernel text are, and what they define. A stale map is an error, never a wrong patch."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

SOURCE_REGIONS = (
    "params", "tile_state", "row_state", "tile_setup", "kv_range", "score", "mask", "row_init", "row_update", "row_probs",
    "row_rescale", "row_finalize",
)  # fmt: skip
"""Names of the regions of a kernel text, in the order of the text."""


@dataclass(frozen=True, slots=True)
class ArgumentText:
    """An argument of a function; `extents`: of an array, as they are spelled."""

    name: str
    extents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionText:
    """A function of a region. `body`: from brace to brace. `lead`: the comment lines that open the region, if the function follows
    them; else nothing."""

    name: str
    arguments: tuple[ArgumentText, ...]
    body: Span
    lead: Span


@dataclass(frozen=True, slots=True)
class StructText:
    """A struct of a region. `definition`: from `struct` to its semicolon. `lead`: as a function's."""

    name: str
    definition: Span
    lead: Span


@dataclass(frozen=True, slots=True)
class SourceRegion:
    """The bytes between `// @region NAME` and `// @endregion NAME`, both lines excluded, and what they define."""

    name: str
    span: Span
    functions: tuple[FunctionText, ...] = ()
    structs: tuple[StructText, ...] = ()

    def function(self, name: str) -> FunctionText:
        """Errors: CU606 if the region does not define it."""
        found = next((f for f in self.functions if f.name == name), None)
        if found is None:
            raise self._without(f"the function `{name}`")
        return found

    def struct(self, name: str) -> StructText:
        """Errors: CU606 if the region does not define it."""
        found = next((s for s in self.structs if s.name == name), None)
        if found is None:
            raise self._without(f"the struct `{name}`")
        return found

    def _without(self, what: str) -> CuError:
        return CuError(Diagnostic("CU606", f"region `{self.name}` does not define {what}", self.span))

    @property
    def digest(self) -> str:
        return sha256(self.span.file.data[self.span.start : self.span.end]).hexdigest()


@dataclass(frozen=True, slots=True)
class SourceMap:
    """The regions of one text, with the hash of the whole text when it was read."""

    file: SourceFile
    regions: tuple[SourceRegion, ...]

    def region(self, name: str) -> SourceRegion:
        return next(r for r in self.regions if r.name == name)

    def check(self, text: bytes) -> None:
        """Errors: CU601 if `text` is not the text that this map was made from."""
        if text != self.file.data:
            raise CuError(
                Diagnostic(
                    "CU601",
                    f"the text of {self.file.name} changed after its source map was made",
                    help="lift the kernel again",
                )
            )
