"""Numbers of the machine that rules and engines share. Source: CUDA C++ Programming Guide, technical specifications per compute
capability; PTX ISA, `setmaxnreg` and `bar`."""

from __future__ import annotations

from typing import Final

ARCHITECTURES: Final = ("sm_80", "sm_90a")
"""What kernels are written for. One that ends in `a` has instructions that no other GPU has, later ones neither."""

WARP: Final = 32
WARPGROUP: Final = 128
"""Threads of a warp, and of the four warps that issue a wgmma together."""

FRAGMENT_ROWS: Final = 8
MMA_COLUMNS: Final = 8
MMA_DEPTH: Final = 16
"""Rows of a fragment, and what columns and depth of an mma or wgmma on 16-bit elements are multiples of."""

NAMED_BARRIERS: Final = 16
"""Named barriers of a block; 0 is the one of `block_sync`."""

REGISTER_FILE: Final = 65_536
"""Registers of an SM."""

SHARED_BYTES: Final = {
    "sm_80": 163 << 10, "sm_86": 99 << 10, "sm_87": 163 << 10, "sm_89": 99 << 10, "sm_90a": 227 << 10, "sm_100a": 227 << 10,
    "sm_103a": 227 << 10, "sm_120a": 99 << 10,
}  # fmt: skip
"""Most shared memory of one block, by architecture."""


def launch_registers(threads: int) -> int:
    """Registers that each thread of a block of `threads` holds at launch: a multiple of 8, at most 255."""
    return min(255, REGISTER_FILE // threads) // 8 * 8
