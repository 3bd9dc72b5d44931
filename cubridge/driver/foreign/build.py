"""A foreign kernel text to a program on the PTX machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cubridge.backend.compile.log import messages_of
from cubridge.backend.compile.nvrtc import NvrtcOutput, run_nvrtc, system_include_dir
from cubridge.backend.ptx.machine import Machine
from cubridge.backend.ptx.parser import parse_program
from cubridge.driver.foreign.host_headers import host_headers
from cubridge.driver.foreign.structs import LAYOUT, StructLayout, layout_places, layout_text, read_layouts
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract
from cubridge.ir.source import SourceFile

_TEXT: Final = "kernel.cu"
_NO_KERNEL: Final = re.compile(r"^__nv_name_map\(\d+\): error: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Built:
    """A program, and its text. `layouts`: of the parameters that are structures."""

    machine: Machine
    source: SourceFile
    layouts: Mapping[str, StructLayout] = field(default_factory=dict[str, StructLayout])


def build(source: SourceFile, contract: ForeignContract, folder: Path) -> Built:
    """`folder`: where the text's own headers are. Errors: CU805; CU806 what the compiler refuses; CU808 no kernel of the contract's
    name; CU838, CU839; CU852 fields that a structure does not have."""
    ptx, entry = _compiled(source, contract, folder)
    files = {_TEXT: source, **_own_headers(ptx, folder)}
    machine = Machine(parse_program(ptx, entry), files, innermost=True)
    if LAYOUT not in ptx.text:
        return Built(machine, source)
    return Built(machine, source, read_layouts(Machine(parse_program(ptx, LAYOUT), {}), contract))


def _compiled(source: SourceFile, contract: ForeignContract, folder: Path) -> tuple[SourceFile, str]:
    """PTX, and what the kernel is called in it."""
    options = (
        f"--gpu-architecture={contract.arch.replace('sm_', 'compute_')}",
        "--std=c++17",
        "-lineinfo",
        "--no-cache",
        *contract.options,
        *(f"-I{path}" for path in _folders(contract, folder)),
    )
    whole = SourceFile(source.name, source.data + layout_text(contract).encode())
    headers = host_headers(contract.standard_headers, contract.headers)
    output = run_nvrtc(_TEXT, whole, headers, options, [contract.entry])
    if output.cubin is None:
        raise CuError(*_refused(output, source, whole, contract))
    return SourceFile.from_text("kernel.ptx", output.ptx.rstrip("\0")), output.lowered[contract.entry]


def _folders(contract: ForeignContract, folder: Path) -> Iterator[Path]:
    yield folder
    yield from (folder / path for path in contract.include)
    if (system := system_include_dir()) is not None:
        yield system
        if contract.standard_headers:
            yield system / "cccl"


def _own_headers(ptx: SourceFile, folder: Path) -> dict[str, SourceFile]:
    """The headers beside the text, by the names that the compiler has for them."""
    names = re.findall(r'^\s*\.file\s+\d+\s+"([^"]+)"', ptx.text, re.MULTILINE)
    return {name: SourceFile.read(Path(name)) for name in names if Path(name).parent == folder and Path(name).is_file()}


def _refused(
    output: NvrtcOutput, source: SourceFile, whole: SourceFile, contract: ForeignContract
) -> tuple[Diagnostic, ...]:
    errors = [m for m in messages_of(output.log, {_TEXT: whole}, {}) if m.severity == "error"]
    missing = _NO_KERNEL.search(output.log)
    if missing is not None:
        message = f"the text has no one kernel `{contract.entry}`: {missing[1]}"
        return (Diagnostic("CU808", message, contract.place("entry")),)
    last = len(source.line_starts)
    places = layout_places(contract)
    for error in errors:
        line = error.span.location[0] - last - 2
        if error.span.file is whole and 0 <= line < len(places):
            return (Diagnostic("CU852", error.message, places[line]),)
    return tuple(errors) or (Diagnostic("CU806", f"{source.name} does not compile: {output.log[:500]}"),)
