"""Which kernel the user means: one that comes with the package, by its architecture, or a text of his own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cubridge.frontend.contract import read_contract
from cubridge.ir.contract import Instantiation, LaunchContract, instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

FOLDER: Final = Path(__file__).parents[1] / "kernels"
PACKAGED: Final = ("sm80", "sm90a")
DTYPES: Final = {"bf16": DType.BF16, "fp16": DType.F16}


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel text, its launch contract, and one instantiation of it. `include`: the root of its headers."""

    name: str
    source: SourceFile
    contract_path: Path
    contract: LaunchContract
    instantiation: Instantiation
    include: Path


def load_kernel(kernel: str, dtype: str, head_dim: int) -> KernelText:
    """The kernel `sm80`, `sm90a` or PATH.cu with its contract PATH.toml beside it.

    Errors: OSError for a file that cannot be read; CU4xx for a faulty contract; CU809 for a dtype or head dim it lacks."""
    path = FOLDER / kernel / "attention_forward.cu" if kernel in PACKAGED else Path(kernel)
    if path.suffix != ".cu":
        known = " or ".join(PACKAGED)
        raise CuError(Diagnostic("CU808", f"`{kernel}` is not a kernel", help=f"{known}, or the path of a .cu file"))
    name = kernel if kernel in PACKAGED else path.name
    source = SourceFile(name if kernel not in PACKAGED else f"{kernel}/{path.name}", path.read_bytes())
    contract_path = path.with_suffix(".toml")
    contract = read_contract(contract_path, source)
    return KernelText(
        name, source, contract_path, contract, _instantiation(contract, dtype, head_dim), path.parent / contract.include
    )


def _instantiation(contract: LaunchContract, dtype: str, head_dim: int) -> Instantiation:
    forms = instantiations(contract, DTYPES[dtype], head_dim)
    if forms:
        return forms[0]
    dims = ", ".join(map(str, contract.head_dims))
    raise Refused(
        Diagnostic(
            "CU809",
            f"{contract.source} has no form for {dtype} and head dim {head_dim}",
            help=f"it has {', '.join(str(d) for d, _ in contract.dtypes)} and head dims {dims}",
        )
    )
