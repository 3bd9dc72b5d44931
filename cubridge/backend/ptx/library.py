"""The native library, by ctypes. native/interface.h is its interface."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.backend.ptx.build import LIBRARY, NATIVE, sources_digest
from cubridge.ir.diagnostics import CuError, Diagnostic

PATH: Final = Path(__file__).resolve().parent / LIBRARY
_HELP: Final = "install the package again: `pip install -e .` builds it"


class COperand(ctypes.Structure):
    _fields_ = (
        ("slot", ctypes.c_int32), ("offset", ctypes.c_int32), ("bytes", ctypes.c_uint8), ("negated", ctypes.c_uint8),
        ("is_address", ctypes.c_uint8), ("pad", ctypes.c_uint8),
    )  # fmt: skip


class CConstant(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int32), ("kind", ctypes.c_int32), ("value", ctypes.c_uint64))


class CInstruction(ctypes.Structure):
    _fields_ = tuple((n, ctypes.c_int32) for n in ("row", "guard", "negated", "target", "first", "results", "count"))


class CProgram(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("code", "operands", "constants", "widths", "data")),
        *(
            (name, ctypes.c_int32)
            for name in (
                "code_count", "operand_count", "constant_count", "register_count", "predicates", "data_bytes", "shared_bytes",
                "local_bytes",
            )
        ),
    )  # fmt: skip


class CTensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 48), ("bytes", ctypes.c_void_p), ("size", ctypes.c_uint64), ("flags", ctypes.c_uint32),
        ("align", ctypes.c_uint32),
    )  # fmt: skip


class CMap(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("tensor", "rank", "element_bytes", "swizzle")),
        ("extents", ctypes.c_uint64 * 5), ("strides", ctypes.c_uint64 * 5), ("box", ctypes.c_uint32 * 5),
        ("param_offset", ctypes.c_uint32),
    )  # fmt: skip


class CPointer(ctypes.Structure):
    _fields_ = (("param_offset", ctypes.c_uint32), ("tensor", ctypes.c_uint32))


class CLaunch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("cluster", ctypes.c_uint32),
        ("dynamic_shared_bytes", ctypes.c_uint32), ("schedule", ctypes.c_int32), ("registers", ctypes.c_int32),
        ("traced", ctypes.c_int32), ("seconds", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("params", "tensors", "maps", "pointers")),
        *((name, ctypes.c_int32) for name in ("param_bytes", "tensor_count", "map_count", "pointer_count")),
    )  # fmt: skip


class CLog(ctypes.Structure):
    _fields_ = (("words", ctypes.POINTER(ctypes.c_uint64)), ("count", ctypes.c_uint64))


@cache
def library(path: Path = PATH) -> ctypes.CDLL:
    """Errors: CU830 where it was not built, or was built from other sources than lie beside it."""
    try:
        native = ctypes.CDLL(str(path))
    except OSError as error:
        raise CuError(
            Diagnostic("CU830", f"the emulator's library cannot be loaded: {error}", help=_HELP), exit_code=5
        ) from error
    native.ptx_digest.restype = ctypes.c_char_p
    if NATIVE.is_dir() and native.ptx_digest().decode() != sources_digest():
        raise CuError(
            Diagnostic("CU830", "the emulator's library was built from other sources", help=_HELP), exit_code=5
        )
    native.ptx_row.restype = ctypes.c_char_p
    native.ptx_load.argtypes, native.ptx_load.restype = (ctypes.c_void_p,), ctypes.c_void_p
    native.ptx_free.argtypes = (ctypes.c_void_p,)
    native.ptx_run.argtypes = (
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int32,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    native.ptx_free_log.argtypes = (ctypes.c_void_p,)
    return native
