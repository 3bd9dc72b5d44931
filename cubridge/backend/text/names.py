"""How a kernel text spells what CuIR names: the fields behind sizes, the arguments of a region's function, names CUDA refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cubridge.ir.capture_names import is_cuda_name
from cubridge.ir.contract import LaunchContract
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Name
from cubridge.ir.source import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class Names:
    """`size_fields`: the field of `Params` that holds a size, by size. `head_dim`: the macro that is D. `params`: the fields of
    `Params` that no patch changes."""

    size_fields: Mapping[str, str]
    head_dim: str | None = "HEAD_DIM"
    params: frozenset[str] = frozenset()

    @staticmethod
    def of(contract: LaunchContract) -> Names:
        """From the fields whose host value is one size, `int len_kv;  // @host Lk`, and the macro that has the value D."""
        sizes = {f.size: f.name for f in contract.params if f.size is not None}
        head_dim = next((m.name for m in contract.macros if m.values == (Name("D"),)), None)
        return Names(sizes, head_dim, frozenset(f.name for f in contract.params if not f.patched))


@dataclass(frozen=True, slots=True)
class Spelling:
    """Names inside one function: `arguments` from CuIR's name of an argument to the kernel's, `params` what it calls Params.
    `rows`, `score_columns`, `output_columns` are the extents of fragments, `r` and `c` the variables of loops over them."""

    names: Names
    arguments: Mapping[str, str]
    params: str = "p"
    rows: str = "ROWS"
    score_columns: str = "S_COLS"
    output_columns: str = "O_COLS"
    r: str = "r"
    c: str = "c"

    def argument(self, name: str) -> str:
        return self.arguments.get(name, name)


def check_name(name: str, what: str, span: Span = NOWHERE) -> None:
    """Errors: CU604 if CUDA text cannot have `name` for a new field or local."""
    if not is_cuda_name(name):
        raise CuError(
            Diagnostic("CU604", f"{what} `{name}` is not a name that CUDA text can have", span, help="rename it")
        )
