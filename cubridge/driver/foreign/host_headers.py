"""Headers that device code includes and the compiler library does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from cubridge.ir.source import SourceFile

_PLAIN: Final = {
    "cstdint": "#pragma once\ntypedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t;\n"
    "typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned int uint32_t;\n"
    "typedef long long int64_t; typedef unsigned long long uint64_t;\n",
    "stdint.h": "#include <cstdint>\n",
    "cmath": "#pragma once\n#define INFINITY __int_as_float(0x7f800000)\n",
    "math.h": "#include <cmath>\n",
}
_OF_CUDA: Final = (
    "array", "cstddef", "cstdint", "cstring", "functional", "initializer_list", "limits", "tuple", "type_traits", "utility",
)  # fmt: skip
"""Those of the standard library that CUDA's own has a counterpart of."""
_NOTHING: Final = (
    "algorithm", "assert.h", "cassert", "cfenv", "cinttypes", "cstdio", "cstdlib", "stdio.h", "stdlib.h", "string", "vector",
)  # fmt: skip
"""Those of which a compile for the device alone needs nothing."""
_STREAMS: Final = """#pragma once
namespace std {
struct Silent {};
struct EndOfLine {};
template <class Any> inline const Silent& operator<<(const Silent& out, const Any&) { return out; }
inline constexpr Silent cerr, cout;
inline constexpr EndOfLine endl;
}
"""
_INTEGERS: Final = "".join(
    f"using cuda::std::{sign}int{bits}_t;\n" for sign in ("", "u") for bits in (8, 16, 32, 64, "ptr")
)


def host_headers(standard: bool, folders: Iterable[Path]) -> Mapping[str, SourceFile]:
    """`standard`: with CUDA's standard library as the host's; `folders`: whose headers stand in for any others."""
    texts = dict(_PLAIN)
    if standard:
        texts |= dict.fromkeys(_NOTHING, "#pragma once\n")
        texts |= {name: _counterpart(name) for name in _OF_CUDA}
        texts |= {"cstdint": _counterpart("cstdint") + _INTEGERS, "iostream": _STREAMS}
    for folder in folders:
        texts |= {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}
    return {name: SourceFile.from_text(name, text) for name, text in texts.items()}


def _counterpart(name: str) -> str:
    return f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
