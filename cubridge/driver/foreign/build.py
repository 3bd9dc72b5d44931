"""A foreign kernel text to a program on the PTX machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cubridge.backend.compile.log import messages_of
from cubridge.backend.compile.nvrtc import run_nvrtc, system_include_dir
from cubridge.backend.ptx.machine import Machine
from cubridge.backend.ptx.parser import parse_program
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract
from cubridge.ir.source import SourceFile

_TEXT: Final = "kernel.cu"
_HOST_HEADERS: Final = {
    name: SourceFile.from_text(name, text)
    for name, text in {
        "cstdint": "#pragma once\ntypedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t;\n"
        "typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned int uint32_t;\n"
        "typedef long long int64_t; typedef unsigned long long uint64_t;\n",
        "stdint.h": "#include <cstdint>\n",
        "cmath": "#pragma once\n#define INFINITY __int_as_float(0x7f800000)\n",
        "math.h": "#include <cmath>\n",
    }.items()
}
"""What device code needs of headers that the compiler library does not have."""


@dataclass(frozen=True, slots=True)
class Built:
    """A program, and its text."""

    machine: Machine
    source: SourceFile


def build(source: SourceFile, contract: ForeignContract, folder: Path) -> Built:
    """`folder`: where the text's own headers are. Errors: CU805; CU806 what the compiler refuses; CU808 no kernel of the contract's
    name; CU838, CU839."""
    includes = [f"-I{folder / path}" for path in (".", *contract.include)]
    if (system := system_include_dir()) is not None:
        includes.append(f"-I{system}")
    options = (
        f"--gpu-architecture={contract.arch.replace('sm_', 'compute_')}",
        "--std=c++17",
        "-lineinfo",
        "--no-cache",
    )
    output = run_nvrtc(_TEXT, source, _HOST_HEADERS, (*options, *contract.options, *includes))
    files = {_TEXT: source}
    if output.cubin is None:
        errors = tuple(m for m in messages_of(output.log, files, {}) if m.severity == "error")
        raise CuError(*(errors or (Diagnostic("CU806", f"{source.name} does not compile: {output.log[:500]}"),)))
    ptx = SourceFile.from_text("kernel.ptx", output.ptx.rstrip("\0"))
    return Built(Machine(parse_program(ptx, _entry(ptx.text, contract)), files), source)


def _entry(ptx: str, contract: ForeignContract) -> str:
    """The kernel of the contract's name: its own, or, of a function or template, the name that the compiler made of it."""
    found = re.findall(r"\.entry\s+([\w$]+)\s*\(", ptx)
    named = [name for name in found if name == contract.entry or re.match(rf"_Z\w*?{_mangled(contract.entry)}", name)]
    if len(named) != 1:
        there = ", ".join(f"`{name}`" for name in named or found) or "none"
        message = f"the text has {'several kernels' if named else 'no kernel'} `{contract.entry}`: {there}"
        raise CuError(Diagnostic("CU808", message, contract.place("entry")))
    return named[0]


def _mangled(entry: str) -> str:
    """`name<16, true>` as it is written in a mangled name, as far as arguments are numbers and truths."""
    name, _, rest = entry.partition("<")
    start = f"{len(name.strip())}{re.escape(name.strip())}"
    arguments = [a.strip() for a in rest.rstrip("> ").split(",")] if rest else []
    return start + ("I" + "".join(_mangled_argument(a) for a in arguments) + "E" if arguments else "")


def _mangled_argument(text: str) -> str:
    return {"true": "Lb1E", "false": "Lb0E"}.get(text, rf"L[ijlmsth]{text.replace('-', 'n')}E")
