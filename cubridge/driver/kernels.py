"""Which kernel the user means: one that comes with the package, by its architecture, or a text of his own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cubridge.backend.compile.compiler import listed_instantiations
from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.launch.device import KernelText
from cubridge.frontend.contract import read_contract
from cubridge.ir.contract import Instantiation
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.families import take_forward
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import SOURCE_REGIONS
from cubridge.ir.types import DTYPES

FOLDER: Final = KERNELS_DIR
PACKAGED: Final = ("sm80", "sm90a")
BACKWARD: Final = {"sm90a-backward-rows": "_rows", "sm90a-backward": "", "sm90a-backward-dq": "_dq"}
"""The packaged kernels of a backward pass in the order in which they run, with what the names of their files end in."""


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """A kernel text with its contract. `contract_path`: the TOML that it was read from, for reading patched texts likewise."""

    name: str
    text: KernelText
    contract_path: Path

    def with_text(self, source: SourceFile) -> KernelText:
        """Another text under the same contract; its own `Params` is read from it."""
        return KernelText(source, read_contract(self.contract_path, source), self.text.include_dirs)

    def instantiation(self, dtype: str, head_dim: int) -> Instantiation:
        """The first form listed. Errors: CU809 for a dtype or head dim that the kernel does not have."""
        return listed_instantiations(self.text.contract, DTYPES[dtype], head_dim)[0]


def is_kernel_text(name: str) -> bool:
    """Does `name` stand for CUDA text, and not for CuIR."""
    return name in PACKAGED or name in BACKWARD or name.endswith(".cu")


def choose_kernel(kernel: str) -> ChosenKernel:
    """`sm80`, `sm90a`, a name of `BACKWARD`, or the path of a .cu whose contract lies beside it as .toml; a text without one is
    read under the contract of the packaged kernel whose headers it includes. Headers that are not below its header root are the
    packaged ones.

    Errors: OSError for a file that cannot be read; CU420 for an empty one; CU451 to CU455 for a faulty contract; CU840 for a
    name that is no kernel; CU841 for a text without a contract."""
    if (path := _packaged(kernel)) is not None:
        source = SourceFile(f"{path.parent.name}/{path.name}", path.read_bytes())
        return _read(kernel, source, path.with_suffix(".toml"))
    path = Path(kernel)
    if path.suffix != ".cu":
        message = f"`{kernel}` is not a kernel"
        names = ", ".join((*PACKAGED, *BACKWARD))
        raise CuError(Diagnostic("CU840", message, help=f"{names}, or the path of a .cu file"))
    source = SourceFile.read(path)
    if not source.data.strip():
        raise CuError(Diagnostic("CU420", "the file is empty", _start(source)))
    contract = path.with_suffix(".toml")
    return _read(kernel, source, contract if contract.exists() else _packaged_contract(source))


def choose_forward(kernel: str) -> ChosenKernel:
    """As `choose_kernel`. Errors: besides, CU509."""
    chosen = choose_kernel(kernel)
    take_forward(chosen.text.contract.family, _start(chosen.text.source))
    return chosen


def backward_pass(kernel: ChosenKernel) -> tuple[ChosenKernel, ChosenKernel, ChosenKernel]:
    """The three kernels of the backward pass that a kernel is one of: the packaged ones, or NAME_rows.cu, NAME.cu and NAME_dq.cu
    beside each other. Errors: as `choose_kernel`."""
    if kernel.name in BACKWARD:
        names = [*BACKWARD]
    else:
        path = Path(kernel.name)
        own = next((e for e in BACKWARD.values() if e and path.stem.endswith(e)), "")
        names = [str(path.with_name(f"{path.stem.removesuffix(own)}{e}.cu")) for e in BACKWARD.values()]
    rows, pairs, last = (choose_kernel(name) for name in names)
    return rows, pairs, last


def _packaged(name: str) -> Path | None:
    if name in PACKAGED:
        return FOLDER / name / "attention_forward.cu"
    return FOLDER / "sm90a" / f"attention_backward{BACKWARD[name]}.cu" if name in BACKWARD else None


def _packaged_contract(source: SourceFile) -> Path:
    for name in PACKAGED:
        if f'"common/tile_{name}.cuh"' in source.text:
            return FOLDER / name / "attention_forward.toml"
    raise CuError(_outside_the_dialect(source))


def _outside_the_dialect(source: SourceFile) -> Diagnostic:
    """All that a text lacks to be read by rules, at once, and the two ways in."""
    path = Path(source.name)
    contract = path.with_suffix(".toml").name
    marked = [name for name in SOURCE_REGIONS if f"@region {name}" in source.text]
    unmarked = [name for name in SOURCE_REGIONS if name not in marked]
    lacks = [
        f"a launch contract beside it, {contract}",
        "the packaged headers, `common/tile_sm80.cuh` or `common/tile_sm90a.cuh`",
    ]
    if unmarked:
        lacks.append(f"region markers, `// @region NAME`, of {', '.join(unmarked)}")
    message = "no launch contract: this is CUDA text outside the dialect that kernels are written in here"
    notes = tuple(Note(f"it lacks {what}") for what in lacks)
    help = (
        "docs/kernels.md shows how a kernel is made to be read; or let its runs be read: "
        f"`cuirc contract {path.name} -o {contract}`, fill the blanks, `cuirc lift {path.name} --contract {contract}`"
    )
    return Diagnostic("CU841", message, _start(source), notes, help)


def _start(source: SourceFile) -> Span:
    return Span(source, 0, 0)


def _read(name: str, source: SourceFile, contract_path: Path) -> ChosenKernel:
    contract = read_contract(contract_path, source)
    folders = dict.fromkeys(((contract_path.parent / contract.include).resolve(), FOLDER.resolve()))
    return ChosenKernel(name, KernelText(source, contract, tuple(folders)), contract_path)
